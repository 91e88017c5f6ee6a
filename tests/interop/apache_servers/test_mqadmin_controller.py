"""Our mqadmin prints the epochs of a broker whose master a controller of RocketMQ 5 elects, like Apache's tool.

Tianzhou has no controller. `./test --slow` runs both tools at Apache's broker, and records Apache's text and the
broker's replies. Every run feeds the recorded replies to our tool.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from apache import ApacheBroker, ApacheController, ApacheNamesrv
from mqadmin import Mqadmin
from mqadmin_conversation import is_warm
from recorded import RECORD, is_as_recorded, recorded
from servers import Server
from toolchain import SERVERS, ToolchainMissingError

from tianzhou.cli.mqadmin.tool import run
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.command import Command
from waiting import until

NAME: Final = f"mqadmin-controller-{SERVERS[0]}"
LINES: Final = (
    "getBrokerEpoch -b broker-a",
    "getBrokerEpoch -c DefaultCluster",
)
NAMED: Final = {"ns": "127.0.0.1:10001", "broker": "127.0.0.1:10002", "controller": "127.0.0.1:10003"}
"""Addresses in the records."""


def comparable(text: str, addresses: Mapping[str, str]) -> list[str]:
    """Return the lines of a text with the addresses of the records."""
    for name, address in addresses.items():
        text = text.replace(address, NAMED[name])
    return [row.rstrip() for row in text.strip("\n").splitlines()]


def printed_by_ours(line: str, addresses: Mapping[str, str]) -> str:
    """Return the output of our tool."""
    texts: list[str] = []
    run([*line.format_map(addresses).split(), "-n", addresses["ns"]], texts.append)
    return "\n".join(texts)


def captured(line: str, addresses: Mapping[str, str], folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the output of our tool, and the replies that it got, with the addresses of the records.

    Args:
        line: the command line.
        addresses: of the servers, by name.
        folder: of the servers; the records name another one.
    """
    names = {str(folder): "/apache"} | {address: NAMED[name] for name, address in addresses.items()}
    replies: list[dict[str, Any]] = []
    ask = RemotingClient.invoke

    async def invoke(client: RemotingClient, address: str, command: Command, *rest: Any, **more: Any) -> Command:
        reply = await ask(client, address, command, *rest, **more)
        shown = {"asked": int(command.code), "code": reply.code, "remark": reply.remark, "fields": dict(reply.fields)}
        shown["body"] = bytes(reply.body).decode()
        replies.append(renamed(shown, names))
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemotingClient, "invoke", invoke)
        return printed_by_ours(line, addresses), replies


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with other texts in the place of some."""
    if isinstance(value, dict):
        return {key: renamed(one, names) for key, one in value.items()}
    if isinstance(value, str):
        for text, name in names.items():
            value = value.replace(text, name)
    return value


def answers_of_apache(folder: Path) -> dict[str, dict[str, Any]]:
    """Return texts of Apache's tool, and the replies that ours got for the same lines, by line."""
    namesrv, controller = ApacheNamesrv(home=folder / "namesrv"), ApacheController(home=folder / "controller")
    conf = {
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "brokerId": -1,
        "brokerRole": "SLAVE",
    }
    broker = ApacheBroker(namesrv.address, home=folder / "broker", conf=conf)
    try:
        namesrv.start()
        controller.start()
        broker.start()
        is_warm(Server("apache", namesrv.address, broker.address, broker.store_dir))
        addresses = {"ns": namesrv.address, "broker": broker.address, "controller": controller.address}
        with Mqadmin(SERVERS[0]) as tools:
            in_sync = ("getSyncStateSet", "-n", namesrv.address, "-a", controller.address, "-b", "broker-a")
            until(lambda: "alive=true" in tools.run(*in_sync), "the controller knows the broker", every_s=1.0)
            found = {}
            for line in LINES:
                text = tools.run(*line.format_map(addresses).split(), "-n", namesrv.address)
                own, replies = captured(line, addresses, folder)
                found[line] = {"text": comparable(text, addresses), "replies": replies}
                assert comparable(own, addresses) == found[line]["text"], line
            return found
    finally:
        for server in (broker, controller, namesrv):
            server.kill()


@pytest.mark.slow
def test_apaches_controller_and_tool_answer_as_recorded(tmp_path: Path) -> None:
    """Ours prints the same at the live controller, too."""
    try:
        live = answers_of_apache(tmp_path)
    except ToolchainMissingError as error:
        pytest.skip(str(error))
    source = f"controller, broker and mqadmin {SERVERS[0]}"
    # Replies have times and settings of the machine, so that they are recorded and not compared.
    if not os.environ.get(RECORD):
        before = recorded(NAME, LINES)
        live = {line: one | {"replies": before[line]["replies"]} for line, one in live.items()}
    is_as_recorded(NAME, live, source=source, questions=LINES)


@pytest.mark.parametrize("line", LINES)
def test_our_tool_prints_replies_of_such_a_broker_as_apaches(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(NAME, LINES)[line]
    replies = list(record["replies"])

    async def invoke(client: RemotingClient, address: str, command: Command, *rest: Any, **more: Any) -> Command:
        given = replies.pop(0)
        assert int(command.code) == given["asked"], (address, command.code)
        return command.reply(given["code"], given["remark"], given["fields"], given["body"].encode())

    monkeypatch.setattr(RemotingClient, "invoke", invoke)
    assert comparable(printed_by_ours(line, NAMED), NAMED) == record["text"]
    assert not replies, "the tool asked less than at the recording"
