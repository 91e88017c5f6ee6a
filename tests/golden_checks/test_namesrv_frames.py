"""Apache's recorded name-server conversations, repeated with our name server.

Our connection gets every recorded request unchanged, and our reply must equal Apache's. The registrations that a reply
depends on are put into the tables before, from the reply itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from tianzhou.access.settings import AuthSettings
from tianzhou.limits import LIMITS
from tianzhou.metrics.settings import MetricsSettings
from tianzhou.model import BrokerData, DataVersion, QueueData, TopicConfig
from tianzhou.namesrv.handlers import NamesrvHandlers
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.routes import NamesrvRouteTable, Registration
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.settings import dump, key_of, parse_properties
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.bodies.register import RegisterCodec
from tianzhou.wire.bodies.route import CLUSTER_INFO, ROUTE
from tianzhou.wire.bodies.topics import TOPIC_LIST
from tianzhou.wire.codes import V5_0_0
from tianzhou.wire.command import Command, decode, split

WIRE = Path(__file__).parent.parent / "golden" / "wire"
MACHINE_KEYS = {"configStorePath", "kvConfigPath", "listenPort", "rocketmqHome"}


@dataclass
class Exchange:
    """A recorded request and its reply, None for a one-way request."""

    file: str
    link: str
    connection: int
    request: bytes
    reply: Command | None

    def __str__(self) -> str:
        return f"{self.file} connection {self.connection}: {decode(self.request[4:])}"


def exchanges(file: Path) -> Iterator[Exchange]:
    lines = [json.loads(line) for line in file.read_text().splitlines()][1:]
    frames = [line for line in lines if line["link"] != "client-broker"]
    replies = {(line["conn"], line["opaque"]): bytes.fromhex(line["hex"]) for line in frames if line["dir"] == "resp"}
    for line in frames:
        if line["dir"] == "req":
            reply = replies.get((line["conn"], line["opaque"]))
            answer = None if reply is None else decode(reply[4:])
            yield Exchange(file.name, line["link"], line["conn"], bytes.fromhex(line["hex"]), answer)


FILES = sorted(WIRE.glob("*.jsonl"))
CLIENT_FILES = [file for file in FILES if any(e.link == "client-namesrv" for e in exchanges(file))]


class Desk:
    """Our name server without a socket."""

    def __init__(self, home: Path) -> None:
        self.clock = VirtualClock()
        self.routes = NamesrvRouteTable()
        self.kv = KvConfig(home / "kvConfig.json")
        settings = NamesrvSettings(
            kv_config_path=str(home / "kvConfig.json"), config_store_path=str(home / "namesrv.properties")
        )
        self.handlers = NamesrvHandlers(settings, self.routes, self.kv, self.clock, lambda _change: None)
        self.group = ConnectionGroup(self.handlers.serve, clock=self.clock, idle_timeout_s=0)
        self.group.start()
        self.transports: dict[int, MemoryTransport] = {}

    def ask(self, exchange: Exchange) -> Command | None:
        transport = self.transports.get(exchange.connection)
        if transport is None:
            transport = self.transports[exchange.connection] = MemoryTransport(Connection(self.group))
        transport.written.clear()
        transport.feed(exchange.request)
        return self.reply(exchange)

    async def answer(self, exchange: Exchange) -> Command:
        """Return the reply like `ask`, for requests whose reply waits for a file."""
        ours = self.ask(exchange)
        async with asyncio.timeout(10):
            while ours is None:
                await asyncio.sleep(0.001)
                ours = self.reply(exchange)
        return ours

    def reply(self, exchange: Exchange) -> Command | None:
        written = bytes(self.transports[exchange.connection].written)
        replies, _ = split(written, 0, len(written), MAX_FRAME)
        assert len(replies) <= 1
        return replies[0] if replies else None

    def register(self, broker: BrokerData, queues: dict[str, QueueData]) -> None:
        topics = {
            topic: TopicConfig(topic, q.read_queue_nums, q.write_queue_nums, q.perm, topic_sys_flag=q.topic_sys_flag)
            for topic, q in queues.items()
        }
        if len(topics) == 1:
            topics["another"] = TopicConfig("another")
        for broker_id, address in broker.broker_addrs.items():
            self.routes.register(
                Registration(
                    broker.cluster, broker.broker_name, address, broker_id, "", topics, DataVersion(),
                    enable_acting_master=broker.enable_acting_master, zone_name=broker.zone_name,
                ),
                self.clock.now_ms(),
            )  # fmt: skip


def prime(desk: Desk, request: Command, reply: Command) -> None:
    """Put the data of the recorded server into the tables."""
    if request.code == 105 and reply.code == 0:
        route = ROUTE.loads(reply.body)
        for broker in route.broker_datas:
            (queues,) = (q for q in route.queue_datas if q.broker_name == broker.broker_name)
            desk.register(broker, {request.fields["topic"]: queues})
    elif request.code == 106:
        for broker in CLUSTER_INFO.loads(reply.body).broker_addr_table.values():
            desk.register(broker, {})
    elif request.code in (206, 205, 327):
        count = int(reply.fields.get("wipeTopicCount") or reply.fields.get("addTopicCount") or 0)
        names = TOPIC_LIST.loads(reply.body).topic_list if reply.body else [f"t{i}" for i in range(count)]
        desk.register(
            BrokerData("broker-a", "DefaultCluster", {0: "127.0.0.1:1"}),
            {name: QueueData("broker-a", 4, 4, 6) for name in names},
        )


OF_BROKERS = (*map(key_of, fields(AuthSettings)), *map(key_of, fields(MetricsSettings)))
OWN_KEYS = {"enableRemoteAdmin", "logLevels", "proxyProtocolTrusted", "requireSignedLookups", *LIMITS, *OF_BROKERS} - {
    "rocketmqHome",
    "serverChannelMaxIdleTimeSeconds",
}
"""Tianzhou's own settings, and those of access control and metrics, which Apache shows only at a broker."""


def same(code: int, ours: Command, theirs: Command) -> None:
    """Check that our reply equals Apache's."""
    assert (ours.code, ours.opaque, ours.flag) == (theirs.code, theirs.opaque, theirs.flag)
    if theirs.version < V5_0_0 and theirs.remark is not None:
        assert str(ours.remark).splitlines()[0] == theirs.remark.splitlines()[0]  # the linked pages have moved
    else:
        assert ours.remark == theirs.remark
    assert ours.fields == theirs.fields
    if code == 206:
        lists = [TOPIC_LIST.loads(reply.body) for reply in (ours, theirs)]
        assert sorted(lists[0].topic_list) == sorted(lists[1].topic_list)
        assert lists[0].broker_addr == lists[1].broker_addr
    elif code == 319:
        shown, wanted = (parse_properties(bytes(reply.body).decode()) for reply in (ours, theirs))
        shown = {key: value for key, value in shown.items() if key not in OWN_KEYS}
        assert list(shown) == list(wanted)
        assert {k: v for k, v in shown.items() if k not in MACHINE_KEYS} == {
            k: v for k, v in wanted.items() if k not in MACHINE_KEYS
        }
    else:
        body = bytes(ours.body)
        if theirs.version < V5_0_0:
            body = body.replace(b',"enableActingMaster":false', b"")  # wire.md §17: new in 5.x
        assert body == bytes(theirs.body)


@pytest.mark.parametrize("file", CLIENT_FILES, ids=lambda file: file.stem)
def test_clients_and_tools_get_the_replies_of_apache(file: Path, tmp_path: Path) -> None:
    async def main() -> int:
        count = 0
        kv = Desk(tmp_path)  # values in the KV configuration are needed later
        for exchange in exchanges(file):
            request = decode(exchange.request[4:])
            if exchange.reply is None:
                continue
            desk = kv if request.code in (100, 101, 102) else Desk(tmp_path)
            prime(desk, request, exchange.reply)
            ours = await desk.answer(exchange)
            same(request.code, ours, exchange.reply)
            count += 1
        return count

    assert asyncio.run(main()) > 0


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
async def test_a_broker_registers_and_leaves_as_at_apache(version: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    registered = 0
    for exchange in exchanges(WIRE / f"broker-{version}-register.jsonl"):
        request = decode(exchange.request[4:])
        ours = desk.ask(exchange)
        if exchange.reply is None:
            assert ours is None, str(exchange)
        else:
            assert ours is not None, str(exchange)
            same(request.code, ours, exchange.reply)
        if request.code == 103:
            registered += 1
            sent = RegisterCodec(request.version).loads(request.body).table
            assert set(sent.topic_config_table) <= set(desk.routes.topics())
            assert desk.routes.members("broker-a") == {0: request.fields["brokerAddr"]}
            assert desk.routes.data_version("DefaultCluster", request.fields["brokerAddr"]) == sent.data_version
        elif request.code == 104:
            assert desk.routes.topics() == []
    assert registered >= 2


def test_every_setting_apache_shows_is_one_of_ours() -> None:
    shown: dict[str, Any] = {}
    for exchange in exchanges(WIRE / "mqadmin-5.3.3.jsonl"):
        if decode(exchange.request[4:]).code == 319 and exchange.reply is not None:
            shown = parse_properties(bytes(exchange.reply.body).decode())
    assert shown
    assert shown.keys() == dump(NamesrvSettings()).keys() - OWN_KEYS
