"""One of two name servers accepts connections and never replies: brokers, clients and tools work with the other one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from small_broker import name_server, small_broker

from tianzhou import Producer
from tianzhou.admin.admin import Admin
from tianzhou.broker.registration.master_lookup import living_master
from tianzhou.broker.registration.server_registration import MISSED_S, SILENT_S
from tianzhou.client.cluster.name_servers import SLOW_S
from tianzhou.errors import ConnectFailed
from tianzhou.model import Message, MessageQueue
from tianzhou.model.topic import TopicConfig
from tianzhou.namesrv.server import NameServer
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LockRequest
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.usefixtures("shared_loop")


class Hanging:
    """A name server that can stop replying: its socket accepts connections and requests, like a stopped process."""

    def __init__(self, real: NameServer) -> None:
        self._real = real
        self.hangs = True
        self.resumed = asyncio.Event()
        self.server = RemotingServer("127.0.0.1", 0, self._serve)
        self._client = RemotingClient()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def resume(self) -> None:
        self.hangs = False
        self.resumed.set()

    async def _serve(self, _: Connection, command: Command) -> Command:
        if self.hangs:
            await self.resumed.wait()
        forwarded = Command(command.code, fields=command.fields, body=bytes(command.body), version=command.version)
        reply = await self._client.invoke(f"127.0.0.1:{self._real.port}", forwarded)
        return command.reply(reply.code, reply.remark, fields=reply.fields, body=bytes(reply.body))

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.resume()
        await self._client.close()
        await self.server.__aexit__(None, None, None)


def has(server: NameServer, topic: str) -> Callable[[], bool]:
    return lambda: server.routes.route(topic) is not None


def of_this_broker(caplog: pytest.LogCaptureFixture, address: str) -> list[str]:
    return [text for text in caplog.messages if address in text and "broker" in text]


async def test_a_broker_is_ready_and_its_changes_reach_the_other_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tianzhou.broker.registration")
    time = asyncio.get_running_loop().time
    async with name_server(tmp_path) as behind, Hanging(behind) as hanging, name_server(tmp_path) as healthy:
        where = f"{hanging.address};127.0.0.1:{healthy.port}"
        began = time()
        async with small_broker(tmp_path, namesrv_addr=where) as broker:
            await asyncio.wait_for(broker.ready(), SILENT_S + 1)
            assert has(healthy, "TBW102")()
            async with Admin(where) as admin:
                for number in range(3):
                    began = time()
                    await admin.topics.create(f"orders{number}")
                    assert has(healthy, f"orders{number}")()
                    # The client's first request goes to the silent name server, once.
                    assert time() - began < (SLOW_S if number == 0 else 0) + 0.5
                began = time()
                await admin.topics.update("orders0", read_queue_nums=12, write_queue_nums=12)
                assert time() - began < 0.5
            assert not has(behind, "orders0")()
            # The request without a reply is repeated after its limit of 24 s, and logged once.
            await asyncio.sleep(120)
            lines = of_this_broker(caplog, hanging.address)
            assert lines == [
                (
                    f"name server {hanging.address} has not registered this broker: no answer for {MISSED_S:g} s; "
                    "trying again"
                )
            ]
            hanging.resume()
            await until_async(has(behind, "orders2"))
            await asyncio.sleep(60)
            assert of_this_broker(caplog, hanging.address)[1:] == [
                f"name server {hanging.address} knows this broker again"
            ]


async def test_a_name_server_that_hangs_later_delays_no_change(tmp_path: Path) -> None:
    time = asyncio.get_running_loop().time
    async with name_server(tmp_path) as behind, Hanging(behind) as hanging, name_server(tmp_path) as healthy:
        hanging.resume()
        async with small_broker(tmp_path, namesrv_addr=f"{hanging.address};127.0.0.1:{healthy.port}") as broker:
            await broker.ready()
            assert has(behind, "TBW102")()
            assert has(healthy, "TBW102")()
            hanging.hangs, hanging.resumed = True, asyncio.Event()
            for name in ("first", "second", "third"):
                began = time()
                broker.tables.topics.put(TopicConfig(name, 1, 1), 1)
                await until_async(has(healthy, name))
                assert time() - began < 0.5
            broker.tables.topics.delete(["second"], 2)
            began = time()
        # The stopping broker unregisters at the healthy one immediately.
        assert not has(healthy, "first")()
        assert time() - began < 5


async def test_clients_and_tools_ask_the_next_name_server_when_one_is_silent(tmp_path: Path) -> None:
    time = asyncio.get_running_loop().time
    async with name_server(tmp_path) as behind, Hanging(behind) as hanging, name_server(tmp_path) as healthy:
        alone = f"127.0.0.1:{healthy.port}"
        async with small_broker(tmp_path, namesrv_addr=alone) as broker:
            await broker.ready()
            for order in (f"{hanging.address};{alone}", f"{alone};{hanging.address}"):
                began = time()
                async with Producer("p", order) as producer, Admin(order) as admin:
                    await asyncio.gather(*(producer.send(Message(f"T{number}", b"x")) for number in range(5)))
                    assert time() - began < SLOW_S + 0.5
                    began = time()
                    assert [one.broker_name for one in await admin.cluster.status()] == ["broker-a"]
                    assert time() - began < SLOW_S + 0.5
                    began = time()
                    await admin.cluster.status()
                    assert time() - began < 0.2  # both clients stay with the one that replied


async def test_what_all_name_servers_have_to_do_reaches_those_that_answer_and_names_the_other(tmp_path: Path) -> None:
    async with name_server(tmp_path) as behind, Hanging(behind) as hanging, name_server(tmp_path) as healthy:
        alone = f"127.0.0.1:{healthy.port}"
        async with (
            small_broker(tmp_path, namesrv_addr=alone) as broker,
            Admin(f"{hanging.address};{alone}", timeout_ms=3_000) as admin,
            Admin(alone) as other,
        ):
            await broker.ready()
            await other.topics.create("orders")
            deletion = asyncio.ensure_future(admin.topics.delete("orders"))
            change = asyncio.ensure_future(admin.cluster.put_kv("space", "key", "value"))
            await asyncio.sleep(1)
            assert not has(healthy, "orders")()
            assert await other.cluster.get_kv("space", "key") == "value"
            for work in (deletion, change):
                with pytest.raises(ConnectFailed) as failed:
                    await work
                assert str(failed.value).startswith(f"name server {hanging.address} has not answered (")
                assert f"{alone} has carried the request out: repeat the command" in str(failed.value)


async def test_brokers_of_one_name_find_each_other_by_the_name_server_that_answers(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with name_server(tmp_path) as behind, Hanging(behind) as hanging, name_server(tmp_path) as healthy:
        alone = f"127.0.0.1:{healthy.port}"
        strict: dict[str, Any] = {"namesrv_addr": f"{hanging.address};{alone}", "lock_in_strict_mode": True}
        async with (
            small_broker(tmp_path, {"total_replicas": 3}, **strict) as broker,
            RemotingClient() as client,
        ):
            await broker.ready()
            began = loop.time()
            servers = [hanging.address, alone]
            assert await living_master(client, servers, "broker-a", "127.0.0.1:1") == (broker.address, alone)
            assert loop.time() - began < 1.5
            # A broker that locks queues queries name servers for the other brokers of its name.
            wish = LOCK_REQUEST.dumps(LockRequest("c", "G", [MessageQueue("T", "broker-a", 0)]))
            began = loop.time()
            await client.invoke(broker.address, Command(RequestCode.LOCK_BATCH_MQ, body=wish))
            assert loop.time() - began < 0.5
