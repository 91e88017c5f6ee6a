"""Hostile names in every request of a broker: refused, not stored, and no file changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker.router import NOT_ON_FAST_PORT
from tianzhou.errors import IllegalName
from tianzhou.model import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData, TopicConfig
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LockRequest
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_dialect import loads

HOSTILE = ("/etc", "..", "../../outside", "a\nb", "\x1b[2J", "\0", "x" * 1_000_000, "a/b")


def kept(bench: Bench) -> str:
    """Return the contents of all state files."""
    tables = bench.tables
    return json.dumps(
        [
            sorted(tables.topics.all()), sorted(tables.groups.all()), tables.groups.forbidden,
            tables.offsets.snapshot(), tables.filters.to_json(), sorted(tables.clients.consumers),
        ],
        default=str,
    )  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
async def test_deleting_a_topic_removes_no_other_folder(broker: OpenBench, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    async with broker() as bench:
        peer = bench.peer()
        await peer.send("T", b"kept")
        files = sorted((tmp_path / "store").rglob("*"))
        for topic in (name, str(outside)):
            reply = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            assert reply.code == ResponseCode.INVALID_PARAMETER
            assert "the topic" in reply.remark
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="unknown")).code == 0
        assert sorted((tmp_path / "store").rglob("*")) == files
        assert [record.body for record in bench.records("T")] == [b"kept"]
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        assert not (tmp_path / "store" / "consumequeue" / "T").exists()
    assert (outside / "precious").exists()


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
async def test_what_the_hot_path_does_not_judge_has_been_judged_where_it_came_to_be(
    broker: OpenBench, name: str
) -> None:
    async with broker({"enable_lmq": True, "enable_multi_dispatch": True}, enable_broadcast_offset_store=True) as bench:
        peer = bench.peer()
        await peer.send("T")
        before = kept(bench)
        light = "%LMQ%/" + name
        for topic in (name, "%RETRY%" + name, light):
            assert (await peer.send(topic)).code in {13, 17, 29}
            assert (await peer.send(topic, default_topic=name)).code in {13, 17, 29}
            assert (await peer.pull(topic, consumer_group="TOOLS_CONSUMER")).code == ResponseCode.TOPIC_NOT_EXIST
        for group in (name, light):
            reply = await peer.pull("T", consumer_group=group)
            assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        proxied = await peer.pull("T", consumer_group="G", request_source=1, proxy_froward_client_id=name + "\n")
        assert proxied.code == ResponseCode.INVALID_PARAMETER
        bench.tables.groups.delete("G", 1)
        assert kept(bench) == before


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
async def test_names_in_bodies_are_judged_before_they_are_stored(bench: Bench, peer: Peer, name: str) -> None:
    before = kept(bench)
    queue = MessageQueue("T", "broker-a", 0)
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        for wish in (
            LockRequest("c\n" + name, "G", [queue]),
            LockRequest("c", name, [queue]),
            LockRequest("c", "G", [MessageQueue(name, "broker-a", 0)]),
            LockRequest("c", "G", [MessageQueue("T", name, 0)]),
        ):
            reply = await peer.ask(code, LOCK_REQUEST.dumps(wish))
            assert reply.code == ResponseCode.INVALID_PARAMETER
    said = [
        HeartbeatData("c\n" + name, ["P"], []),
        HeartbeatData("c", [name], []),
        HeartbeatData("c", [], [ConsumerData(name, subscription_data_set=[SubscriptionData("T", "*")])]),
        HeartbeatData("c", [], [ConsumerData("H", subscription_data_set=[SubscriptionData(name, "*")])]),
    ]
    for heartbeat in said:
        reply = await peer.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(heartbeat))
        assert reply.code == ResponseCode.INVALID_PARAMETER
    assert kept(bench) == before
    assert bench.tables.clients.producers == {}


async def test_a_wrong_group_in_a_heartbeat_does_not_harm_the_others_of_its_client(bench: Bench, peer: Peer) -> None:
    consumers = [
        ConsumerData(group, subscription_data_set=[SubscriptionData("T", "*")]) for group in ("bad\ngroup", "good")
    ]
    reply = await peer.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(HeartbeatData("c", ["P"], consumers)))
    assert (reply.code, reply.remark) == (
        29,
        "the group 'bad\\ngroup' has '\\n' at position 3; use characters that can be seen, without / and \\",
    )
    assert list(bench.tables.clients.consumers) == ["good"]
    assert list(bench.tables.clients.producers) == ["P"]


async def test_a_group_is_forbidden_to_read_only_what_there_is(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T"), 1)

    async def forbid(group: str, topic: str, *, readable: bool = False) -> int:
        return (await peer.ask(353, group=group, topic=topic, readable=readable)).code

    assert await forbid("nobody", "T") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await forbid("TOOLS_CONSUMER", "nothing") == ResponseCode.TOPIC_NOT_EXIST
    assert await forbid("x" * 1_000_000, "T") == ResponseCode.INVALID_PARAMETER
    assert bench.tables.groups.forbidden == {}
    assert await forbid("TOOLS_CONSUMER", "T") == 0
    bench.tables.topics.delete(["T"], 2)
    assert await forbid("TOOLS_CONSUMER", "T", readable=True) == 0
    assert bench.tables.groups.forbidden == {}


async def test_offsets_are_copied_to_groups_that_are_or_may_come_to_be(bench: Bench, peer: Peer) -> None:
    tables = bench.tables
    tables.topics.put(TopicConfig("T"), 1)
    tables.offsets.commit("G", "T", 0, 7, 1)

    async def clone(target: str, **more: Any) -> int:
        return (await peer.ask(314, src_group="G", dest_group=target, offline=True, **more)).code

    before = sorted(tables.groups.all())
    assert await clone("x" * 1_000_000) == ResponseCode.INVALID_PARAMETER
    assert await clone("bad name") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await clone("other", topic="never read") == 0
    assert sorted(tables.groups.all()) == before
    assert await clone("fresh") == 0
    assert tables.offsets.committed("fresh", "T", 0) == 7
    assert sorted(tables.groups.all()) == before  # like at Apache's, first use creates it
    tables.groups.auto_create = False
    assert await clone("later") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert tables.offsets.committed("later", "T", 0) is None


async def test_what_a_member_consumes_at_once_comes_from_the_store(bench: Bench) -> None:
    consumer, tool = bench.peer(), bench.peer()
    await consumer.heartbeat("c1", "T")
    for more in ({}, {"msg_id": ""}):
        reply = await tool.ask(309, b"made by hand", consumer_group="G", client_id="c1", topic="T", **more)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "msgId is missing" in reply.remark
    assert not consumer.received(309)


async def test_a_list_of_topics_names_those_there_are(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    reply = await peer.ask(208, consumer_group="G", topic="", topic_list="T;" + "u;" * 100_000 + "T")
    assert len(loads(reply.body)["offsetTable"]) == 1


async def test_the_fast_port_judges_names_too(bench: Bench) -> None:
    fast = bench.parts.router.without(NOT_ON_FAST_PORT)
    request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, fields={"topic": "../.."})
    with pytest.raises(IllegalName):
        fast.serve(bench.peer().connection, request)
    assert fast.codes == bench.parts.router.codes - NOT_ON_FAST_PORT
