"""Choice of a writer's coordinator: name servers store it, and some of them are down or new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_probe import ClientProbe
from tianzhou.client.staging import KV_NAMESPACE, Staging
from tianzhou.errors import ConnectFailed
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_reply


class NameServer:
    """A fake name server that stores values, or is down."""

    def __init__(self, value: str | None = None, *, up: bool = True, meanwhile: str | None = None) -> None:
        self.value = value
        self.up = up
        self.meanwhile = meanwhile
        self.puts = 0

    def answer(self, command: Command) -> Command:
        fields = command.fields
        assert fields["namespace"] == KV_NAMESPACE
        assert fields["key"].startswith("coordinator-")
        if command.code == RequestCode.PUT_KV_CONFIG and self.meanwhile is not None:
            self.value = self.meanwhile
            return command.reply(ResponseCode.SYSTEM_ERROR, "is not replaced; delete it first")
        if command.code == RequestCode.PUT_KV_CONFIG:
            self.value, self.puts = fields["value"], self.puts + 1
            return command.reply(ResponseCode.SUCCESS)
        assert command.code == RequestCode.GET_KV_CONFIG
        if self.value is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, "no config item")
        return command.reply(ResponseCode.SUCCESS, fields=write_reply(command.code, value=self.value))


class Remoting:
    """Fake connections to name servers; the first that is up is in use."""

    def __init__(self, *servers: NameServer) -> None:
        self.servers = {f"n{index}:9876": server for index, server in enumerate(servers)}
        self.remoting = self
        self.name_servers = list(self.servers)

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        if not self.servers[address].up:
            raise ConnectFailed(f"cannot connect to {address}")
        return self.servers[address].answer(command)

    async def ask_name_server(self, code: int, **header: Any) -> Command:
        from tianzhou.client.cluster.rpc import request

        for address, server in self.servers.items():
            if server.up:
                return await self.invoke(address, request(code, **header), 1)
        raise ConnectFailed("no name server answers")


def ask(*servers: NameServer, choice: str = "new") -> tuple[str, int]:
    """Return the coordinator, and the number of new choices."""
    chosen = 0

    async def choose(writer: str, bucket: int) -> str:
        nonlocal chosen
        chosen += 1
        return choice

    async def main() -> str:
        staging = Staging("127.0.0.1:1", timeout_ms=1000)
        staging.instance = Remoting(*servers)  # type: ignore[assignment]
        ClientProbe(staging).choose_by(choose)
        return await staging.coordinator("query")

    return asyncio.run(main()), chosen


def test_a_miss_at_one_name_server_changes_no_choice() -> None:
    new, old, down = NameServer(), NameServer("broker-a"), NameServer("broker-a", up=False)
    assert ask(new, down, old) == ("broker-a", 0)
    assert [server.value for server in (new, old)] == ["broker-a", "broker-a"], "the new one learns it"
    assert (new.puts, old.puts, down.puts) == (1, 0, 0)


def test_a_choice_is_made_when_all_that_answer_have_none() -> None:
    one, two, down = NameServer(), NameServer(), NameServer(up=False)
    assert ask(one, down, two) == ("new", 1)
    assert (one.value, two.value, down.value) == ("new", "new", None)
    down.up, one.up = True, False
    assert ask(one, down, two, choice="another") == ("new", 0)
    assert down.value == "new", "it has learned what it missed"


def test_one_answer_is_enough_when_it_is_there() -> None:
    new, old = NameServer(), NameServer("broker-a")
    assert ask(old, new) == ("broker-a", 0)
    assert new.puts == 0


def test_nothing_is_chosen_while_no_name_server_answers() -> None:
    with pytest.raises(ConnectFailed):
        ask(NameServer(up=False), NameServer("broker-a", up=False))


def test_who_chooses_second_takes_the_first_choice() -> None:
    assert ask(NameServer(meanwhile="broker-b"), choice="broker-a") == ("broker-b", 1)


def test_a_choice_that_no_name_server_takes_is_an_error() -> None:
    class Refusing(NameServer):
        def answer(self, command: Command) -> Command:
            if command.code == RequestCode.PUT_KV_CONFIG:
                return command.reply(ResponseCode.NO_PERMISSION, "Group:TIANZHOU_STAGING")
            return super().answer(command)

    with pytest.raises(ConnectFailed, match=r"no name server keeps which broker decides .*Group:TIANZHOU_STAGING"):
        ask(Refusing())
