"""Hostile names in every request of a name server, and registrations in the name of others."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import hostile
import pytest
from name_server_desk import Desk

from tianzhou.errors import TianzhouError
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.model.name_rules import TOPIC
from tianzhou.namesrv.handlers import NamesrvHandlers
from tianzhou.namesrv.kv import KvConfig
from tianzhou.namesrv.routes import NamesrvRouteTable
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.bodies.register import REGISTER_BODY, RegisterBody
from tianzhou.wire.bodies.topics import TOPIC_LIST, TopicTable
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

HOSTILE = ("/etc", "..", "a\nb", "\x1b[2J", "\0", "x" * 100_000)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
async def test_hostile_names_are_refused_and_not_stored(
    desk: Desk, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    await desk.register("T", "U")
    for code, fields in (
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": name}),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": name}),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": name}),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": name}),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "N\n" + name, "key": "k", "value": "v"}),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k\n" + name, "value": "v"}),
    ):
        reply = await desk.ask(code, **fields)
        assert reply.code == 29, code
    reply = await desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name)
    assert (reply.code, str(reply.remark)[:9]) == (17, "the topic")
    for changes in ({"broker_name": name}, {"cluster_name": name}, {"broker_addr": name + "\n"}):
        assert (await desk.register("T", "U", counter=2, **changes)).code == 29
    for compressed in (False, True):
        # The broker's other topics are unaffected.
        reply = await desk.register("T", "U", name, counter=2, compressed=compressed)
        assert reply.code == 0
        assert f"topics that are left out: {TOPIC.problem(name)}" in caplog.text
    listed = await desk.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert sorted(TOPIC_LIST.loads(listed.body).topic_list) == ["T", "U"]
    assert (await desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")).code == 22


async def test_a_broker_is_named(desk: Desk) -> None:
    for changes in ({"broker_name": ""}, {"broker_addr": ""}):
        reply = await desk.register("T", "U", **changes)
        assert (reply.code, "is blank" in str(reply.remark)) == (1, True)


async def test_brokers_named_after_their_hosts_register_and_are_topics(desk: Desk) -> None:
    reply = await desk.register("T", "broker-0.brokers.svc", "生产", broker_name="broker-0.brokers.svc")
    assert reply.code == 0
    assert (await desk.route("broker-0.brokers.svc")).queue_datas[0].broker_name == "broker-0.brokers.svc"


async def test_a_queue_mapping_breaks_no_route_of_others(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep}

    async with Desk(tmp_path) as desk:
        await desk.register("orders", "other")
        for mapping in ({"bname": "broker-a", "currIdMap": deep}, [1, 2], "text", {"bname": ["x"]}, {"epoch": {}}):
            for compressed in (False, True):
                reply = await desk.register(
                    "mine", "too", broker_name="broker-x", address="10.0.0.9:1", compressed=compressed,
                    mappings={"orders": mapping},
                )  # fmt: skip
                assert reply.code == 1
        # Well-formed data about a topic or broker of others changes nothing.
        for bname in ("broker-a", "broker-x"):
            reply = await desk.register(
                "mine", "too", broker_name="broker-x", address="10.0.0.9:1",
                mappings={"orders": {"bname": bname, "topic": "orders", "unknown": {"a": {"b": 1}}}},
            )  # fmt: skip
            assert reply.code == 0
        route = await desk.route("orders")
        assert [queue.broker_name for queue in route.queue_datas] == ["broker-a"]
        assert not route.topic_queue_mapping_by_broker


async def test_a_queue_mapping_of_ones_own_is_shown(tmp_path: Path) -> None:
    mapping = {
        "bname": "broker-a", "currIdMap": {"0": 0}, "dirty": False, "epoch": 1, "scope": "__global__", "topic": "T",
        "totalQueues": 1,
    }  # fmt: skip

    async with Desk(tmp_path) as desk:
        assert (await desk.register("T", "U", mappings={"T": mapping})).code == 0
        found = (await desk.route("T")).topic_queue_mapping_by_broker["broker-a"]
        assert {**found, "currIdMap": {str(k): v for k, v in found["currIdMap"].items()}} == mapping


async def test_filter_servers_have_addresses(desk: Desk) -> None:
    table = TopicTable({name: TopicConfig(name) for name in "TU"}, DataVersion(1, 1))
    body = REGISTER_BODY.dumps(RegisterBody(table, ["10.0.0.1:1", "a b\n"]))
    fields = write_header(
        RequestCode.REGISTER_BROKER, broker_name="b", broker_addr="10.0.0.1:10911", cluster_name="C",
        ha_server_addr="", broker_id=0,
    )  # fmt: skip
    reply = await desk.ask(RequestCode.REGISTER_BROKER, body, **fields)
    assert (reply.code, "the address" in str(reply.remark)) == (29, True)


def test_who_reads_a_body_gets_hostile_ones_of_its_kind(tmp_path: Path) -> None:
    settings = NamesrvSettings(config_store_path=str(tmp_path / "namesrv.properties"))
    kv = KvConfig(tmp_path / "kv.json")
    handlers = NamesrvHandlers(settings, NamesrvRouteTable(), kv, VirtualClock(), lambda _: None)
    readers = set()
    for code in sorted(handlers.codes):
        request = hostile.Watched(Command(code, 1, fields=hostile.usual_fields(code), body=b"{}"))
        with contextlib.suppress(TianzhouError, AttributeError):
            handlers.handler(code)(None, request)  # type: ignore[arg-type]
        if request.read:
            readers.add(code)
    assert {103, 217, 322} <= readers <= hostile.EXAMPLES, "give tests/fault/hostile.py examples of their bodies"
