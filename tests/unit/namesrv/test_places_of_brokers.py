"""A registration cannot replace a live broker, except from that broker's own host."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tianzhou.model import DataVersion, TopicConfig
from tianzhou.namesrv.handlers import NamesrvHandlers
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.routes import BROKER_TIMEOUT_MS, NamesrvRouteTable
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.error_codes import failure
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.bodies.register import REGISTER_BODY, RegisterBody
from tianzhou.wire.bodies.topics import TopicTable
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

OURS, ATTACKER, SECOND = "10.0.0.1", "10.0.0.66", "10.0.0.2"


class Desk:
    """A name server's handlers, and brokers on connections of memory."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.routes = NamesrvRouteTable()
        kv = KvConfig(home / "kv.json")
        self.handlers = NamesrvHandlers(NamesrvSettings(**settings), self.routes, kv, self.clock, lambda _change: None)
        self.group = ConnectionGroup(self.handlers.serve, clock=self.clock, idle_timeout_s=0)

    def connect(self, host: str) -> tuple[Connection, MemoryTransport]:
        connection = Connection(self.group)
        return connection, MemoryTransport(connection, (host, 4000))

    def ask(self, connection: Connection, command: Command) -> Command:
        try:
            return self.handlers.serve(connection, command)  # type: ignore[return-value]
        except Exception as error:  # noqa: BLE001 - as the connection does
            return failure(command, error)

    def register(self, connection: Connection, address: str, *, state: int = 0, **changes: Any) -> Command:
        table = TopicTable(
            {name: TopicConfig(name, 4, 4) for name in ("T", "U")}, DataVersion(1, 1, state_version=state)
        )
        header: dict[str, Any] = {
            "broker_name": "broker-a", "broker_addr": address, "cluster_name": "C", "ha_server_addr": "",
            "broker_id": 0, "compressed": False, "body_crc32": 0, "enable_acting_master": False,
        }  # fmt: skip
        code = RequestCode.REGISTER_BROKER
        body = REGISTER_BODY.dumps(RegisterBody(table))
        return self.ask(
            connection, Command(code, fields=write_header(code, **header | changes), body=body, version=479)
        )

    def unregister(self, connection: Connection, address: str, cluster: str = "C") -> Command:
        fields = {"clusterName": cluster, "brokerName": "broker-a", "brokerAddr": address, "brokerId": "0"}
        return self.ask(connection, Command(RequestCode.UNREGISTER_BROKER, fields=fields))


@pytest.mark.parametrize(
    "changes",
    [
        {"address": f"{ATTACKER}:10911"},  # its name and id
        {"address": f"{OURS}:10911"},  # its address
        {"address": f"{OURS}:10911", "broker_id": -1},
        {"address": f"{ATTACKER}:10911", "cluster_name": "Other"},
        {"address": f"{ATTACKER}:10911", "state": 9},
        {"address": f"{OURS}:10911", "broker_name": "broker-b"},
    ],
)
def test_a_living_brokers_place_is_not_taken_from_another_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any]
) -> None:
    desk = Desk(tmp_path)
    broker, _ = desk.connect(OURS)
    assert desk.register(broker, f"{OURS}:10911").code == 0
    stranger, _ = desk.connect(ATTACKER)
    with caplog.at_level(logging.WARNING):
        refused = desk.register(stranger, **changes)
    assert refused.code == 16
    assert "has its place and is alive; stop that one first (after 120 s of silence its place is free)" in str(
        refused.remark
    )
    assert f"{ATTACKER}:4000" in caplog.text
    assert f"{OURS}:4000" in caplog.text
    assert desk.routes.members("broker-a") == {0: f"{OURS}:10911"}


def test_moves_that_are_meant_are_taken(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first, transport = desk.connect(OURS)
    assert desk.register(first, f"{OURS}:10911").code == 0
    again, transport_again = desk.connect(OURS)  # restarted, while its old connection still looks open
    assert desk.register(again, f"{OURS}:10911").code == 0
    other_port, _ = desk.connect(OURS)
    assert desk.register(other_port, f"{OURS}:20911").code == 0
    moved, _ = desk.connect(SECOND)
    assert desk.register(moved, f"{SECOND}:10911").code == 16
    for end in (transport, transport_again):
        end.lose()
    # From now on the process at the other port is silent.
    desk.clock.advance(BROKER_TIMEOUT_MS / 1000 + 1)
    assert desk.register(moved, f"{SECOND}:10911").code == 0
    assert desk.routes.members("broker-a") == {0: f"{SECOND}:10911"}
    back, _ = desk.connect(OURS)
    assert desk.register(back, f"{OURS}:10911", broker_id=1).code == 0  # beside it, as a slave


def test_a_higher_state_takes_over_where_the_key_allows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path, enable_remote_admin=True)
    broker, _ = desk.connect(OURS)
    assert desk.register(broker, f"{OURS}:10911").code == 0
    elected, _ = desk.connect(SECOND)
    assert desk.register(elected, f"{SECOND}:10911").code == 16
    with caplog.at_level(logging.WARNING):
        assert desk.register(elected, f"{SECOND}:10911", state=1).code == 0
    assert "takes over from 10.0.0.1:10911, which is alive" in caplog.text


@pytest.mark.parametrize("cluster", ["C", "Other"])
def test_only_its_own_host_or_this_machine_unregisters_a_broker(tmp_path: Path, cluster: str) -> None:
    desk = Desk(tmp_path)
    broker, _ = desk.connect(OURS)
    assert desk.register(broker, f"{OURS}:10911").code == 0
    stranger, _ = desk.connect(ATTACKER)
    refused = desk.unregister(stranger, f"{OURS}:10911", cluster)
    assert (refused.code, "only it, or this name server's own machine" in str(refused.remark)) == (16, True)
    assert desk.routes.members("broker-a") == {0: f"{OURS}:10911"}
    operator, _ = desk.connect("127.0.0.1")
    assert desk.unregister(operator, f"{OURS}:10911").code == 0
    assert desk.routes.members("broker-a") == {}


def test_thousands_of_brokers_that_come_and_go_write_a_hundred_lines_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    with caplog.at_level(logging.INFO):
        for number in range(300):
            connection, _ = desk.connect(OURS)
            desk.register(connection, f"10.0.0.1:{10_000 + number}", broker_name=f"broker-{number}")
            connection.connection_lost(None)
    lines = [text for text in caplog.messages if "connection closed, unregistered" in text]
    assert len(lines) == 100
    desk.clock.advance(61)
    with caplog.at_level(logging.INFO):
        connection, _ = desk.connect(OURS)
        desk.register(connection, "10.0.0.1:1")
        connection.connection_lost(None)
    assert "(200 more such lines were left out)" in caplog.messages[-1]
