"""Heartbeats, departures, connected clients, queue locks."""

import asyncio
from dataclasses import replace

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.model import MessageModel, MessageQueue, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from tianzhou.wire.bodies.clients import (
    CONSUMER_CONNECTION,
    CONSUMER_IDS,
    LOCK_REQUEST,
    LOCKED_QUEUES,
    PRODUCER_CONNECTION,
    PRODUCER_TABLE,
    LockRequest,
)
from tianzhou.wire.bodies.heartbeat import CLIENT_CONFIG_CHECK, ClientConfigCheck


async def ids(peer: Peer, group: str = "G") -> list[str]:
    return CONSUMER_IDS.loads((await peer.ask(38, consumer_group=group)).body)


async def test_a_heartbeat_makes_group_and_retry_topic(bench: Bench, peer: Peer) -> None:
    reply = await peer.heartbeat("c1", "T", producer="P")
    assert reply.code == 0
    assert reply.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert bench.tables.groups.get("G") == SubscriptionGroupConfig("G")
    assert bench.tables.topics.get("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, 6)
    assert await ids(peer) == ["c1"]


async def test_a_group_that_may_not_be_made_is_skipped(broker: OpenBench) -> None:
    async with broker(auto_create_subscription_group=False) as bench:
        peer = bench.peer()
        assert (await peer.heartbeat("c1", "T")).code == 0
        reply = await peer.ask(38, consumer_group="G")
        assert reply.code == 1
        assert "no consumer for this group, G" in (reply.remark or "")


async def test_everyone_is_notified_on_join_and_on_leave(bench: Bench) -> None:
    first, second, third = (bench.peer() for _ in range(3))
    await first.heartbeat("c1", "T")
    assert first.notices() == 1
    await first.heartbeat("c1", "T")
    assert first.notices() == 0
    await second.heartbeat("c2", "T")
    assert (first.notices(), second.notices()) == (1, 1)
    await third.heartbeat("c3", "T")
    assert await ids(first) == ["c1", "c2", "c3"]
    for peer in (first, second, third):
        peer.notices()
    await second.ask(35, client_id="c2", consumer_group="G")
    assert (first.notices(), second.notices(), third.notices()) == (1, 0, 1)
    third.transport.lose()
    await asyncio.sleep(0.01)
    assert first.notices() == 1
    assert await ids(first) == ["c1"]


async def test_broadcast_groups_and_silenced_groups_are_not_notified(bench: Bench) -> None:
    first, second = bench.peer(), bench.peer()
    await first.heartbeat("c1", "T", model=MessageModel.BROADCASTING)
    await second.heartbeat("c2", "T", model=MessageModel.BROADCASTING)
    assert first.notices() == 0
    bench.tables.groups.put(SubscriptionGroupConfig("Q", notify_consumer_ids_changed_enable=False), 1)
    await first.heartbeat("c1", "T", group="Q")
    assert first.notices() == 0


async def test_silent_clients_are_closed_and_the_others_notified(bench: Bench) -> None:
    silent, lively = bench.peer(), bench.peer()
    await silent.heartbeat("c1", "T")
    await lively.heartbeat("c2", "T")
    await asyncio.sleep(100)
    await lively.heartbeat("c2", "T")
    lively.notices()
    await asyncio.sleep(30)
    bench.parts.clients.sweep()
    await asyncio.sleep(0.01)
    assert silent.transport.closed
    assert lively.notices() == 1
    assert await ids(lively) == ["c2"]


async def test_connections_as_tools_see_them(peer: Peer) -> None:
    await peer.heartbeat("c1", "T", producer="P")
    shown = CONSUMER_CONNECTION.loads((await peer.ask(203, consumer_group="G")).body)
    assert [(one.client_id, one.client_addr, one.version) for one in shown.connection_set] == [
        ("c1", peer.connection.remote_address, 479)
    ]
    assert shown.subscription_table["T"].sub_string == "*"
    producers = PRODUCER_CONNECTION.loads((await peer.ask(204, producer_group="P")).body)
    assert [one.client_id for one in producers] == ["c1"]
    table = PRODUCER_TABLE.loads((await peer.ask(328)).body)
    assert table["P"][0].remote_ip == f"/{peer.connection.remote_address}"
    assert (await peer.ask(203, consumer_group="nobody")).code == 206
    assert (await peer.ask(204, producer_group="nobody")).code == 1


async def test_running_info_is_requested_of_the_client(bench: Bench) -> None:
    consumer, tool = bench.peer(), bench.peer()
    await consumer.heartbeat("c1", "T")
    consumer.notices()
    asked = tool.post(307, consumer_group="G", client_id="c1", jstack_enable=False)
    await asyncio.sleep(0.01)
    (question,) = consumer.received(307)
    assert question.fields["clientId"] == "c1"

    consumer.answer(question, 0, "fine", b"{}")
    answer = await tool.reply(asked)
    assert (answer.code, answer.remark, answer.body) == (0, "fine", b"{}")
    assert (await tool.ask(307, consumer_group="G", client_id="c9")).code == 1
    silent = tool.post(307, consumer_group="G", client_id="c1")
    assert (await tool.reply(silent)).code == 207


async def test_client_config_is_checked(peer: Peer) -> None:
    for kind, text, code in (("TAG", "a || b", 0), ("TAG", "||", 23), ("SQL92", "a > 1", 1)):
        check = ClientConfigCheck("c1", "G", SubscriptionData("T", text, expression_type=kind))
        assert (await peer.ask(46, CLIENT_CONFIG_CHECK.dumps(check))).code == code


def queues(*numbers: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", number) for number in numbers]


async def lock(peer: Peer, client: str, *numbers: int) -> list[int]:
    request = LockRequest(client, "G", queues(*numbers))
    return [queue.queue_id for queue in LOCKED_QUEUES.loads((await peer.ask(41, LOCK_REQUEST.dumps(request))).body)]


async def test_locks_are_free_at_once_when_their_owner_leaves(bench: Bench) -> None:
    first, second = bench.peer(), bench.peer()
    await first.heartbeat("c1", "T")
    await second.heartbeat("c2", "T")
    assert await lock(first, "c1", 0, 1) == [0, 1]
    assert await lock(second, "c2", 0, 1, 2) == [2]
    await first.ask(42, LOCK_REQUEST.dumps(LockRequest("c1", "G", queues(1))))
    assert await lock(second, "c2", 0, 1, 2) == [1, 2]
    first.transport.lose()
    assert await lock(second, "c2", 0, 1, 2) == [0, 1, 2]


async def test_locks_stay_while_their_owner_has_another_connection(bench: Bench) -> None:
    old, new, other = (bench.peer() for _ in range(3))
    await old.heartbeat("c1", "T")
    assert await lock(old, "c1", 0) == [0]
    await new.heartbeat("c1", "T")
    old.transport.lose()
    assert await lock(other, "c2", 0) == []
    bench.clock.step_wall_clock(10 * 60_000)
    assert await lock(other, "c2", 0) == [], "the wall clock does not count"
    await asyncio.sleep(61)
    assert await lock(other, "c2", 0) == [0]


async def test_order_of_the_retry_topic_follows_what_is_subscribed(bench: Bench) -> None:
    bench.tables.topics.put(replace(TopicConfig("T"), order=True), 1)
    await bench.peer().heartbeat("c1", "T")
    assert bench.tables.topics.get("%RETRY%G").order


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
async def test_a_wall_clock_that_is_set_disconnects_nobody(bench: Bench, peer: Peer, step_ms: int) -> None:
    await peer.heartbeat("c1", "T", producer="P")
    bench.clock.step_wall_clock(step_ms)
    bench.parts.housekeeping.sweep()
    assert not peer.connection.closed
    assert bench.tables.clients.is_member("G", "c1")
    # Silence is measured by the monotonic clock, independent of the wall clock.
    bench.clock.advance(121)
    bench.clock.step_wall_clock(-step_ms)
    bench.parts.housekeeping.sweep()
    assert peer.connection.closed
