"""Periodic work of a broker by its settings: late notices, disabled slow groups, dropped figures, stored offsets."""

from __future__ import annotations

import asyncio
import logging

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.broker.stats.channels import Channels
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.broker.tables.broadcast_offsets import BroadcastOffsets
from tianzhou.model import MessageModel, SubscriptionGroupConfig, TopicConfig
from tianzhou.wire.bodies.groups import GROUP_LIST
from tianzhou.wire.bodies.tables import BROKER_STATS
from tianzhou.wire.fields import read_reply

SECOND, MINUTE = 1000, 60_000


# --- settings changed by request --------------------------------------------------------------------------------------


async def test_an_update_of_keys_without_effect_is_logged(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        reply = await peer.ask(25, b"popPollingSize=7\nmaxChecksumRange=9\nregionId=here\nnoSuchKey=1\nregoinId=x\n")
    assert (reply.code, reply.remark) == (0, None)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "configuration update: unknown key noSuchKey ignored",
        "configuration update: unknown key regoinId ignored; meant regionId?",
        "configuration update: no effect: maxChecksumRange: acting masters and controllers are not built",
        (
            "configuration update: no effect: popPollingSize:"
            " POP consumption and shares decided by the broker (5.x) are not built"
        ),
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for update in (b"popPollingSize=7\n", b"popPollingSize=1024\n", b"regionId=there\n"):
            assert (await peer.ask(25, update)).code == 0
    assert not caplog.records, "what is so already, is a default, or has an effect needs no word"


async def test_an_update_with_a_wrong_value_changes_nothing(bench: Bench) -> None:
    refused = await bench.peer().ask(25, b"regionId=here\nmaxMessageSize=1\n")
    assert (refused.code, "maxMessageSize=1: must be at least 10" in (refused.remark or "")) == (1, True)
    assert bench.settings.region_id == "DefaultRegion"


# --- members ----------------------------------------------------------------------------------------------------------


async def test_members_are_notified_later_when_that_is_wanted(broker: OpenBench) -> None:
    async with broker(real_time_notify_consumer_change=False) as bench:
        first, second = bench.peer(), bench.peer()
        await first.heartbeat("c1", "T")
        await second.heartbeat("c2", "T")
        assert (first.notices(), second.notices()) == (0, 0)
        await asyncio.sleep(15.1)
        assert (first.notices(), second.notices()) == (1, 1)
        await asyncio.sleep(60)
        assert first.notices() == 0, "nothing changed since"
        second.transport.lose()
        await asyncio.sleep(10)
        assert first.notices() == 0
        await asyncio.sleep(6)
        assert first.notices() == 1


@pytest.mark.parametrize(
    ("register", "reject", "noted"), [(True, True, 1), (False, False, 1), (False, True, 0), (True, False, 1)]
)
async def test_producers_are_noted_unless_nobody_would_ask_them(
    broker: OpenBench, *, register: bool, reject: bool, noted: int
) -> None:
    async with broker(enable_register_producer=register, reject_transaction_message=reject) as bench:
        await bench.peer().heartbeat("c", producer="P")
        assert len(bench.tables.clients.producers) == noted
        registered = bench.stats.view("PRODUCER_REGISTER_TIME", "DefaultCluster")
        assert registered is not None


# --- figures ----------------------------------------------------------------------------------------------------------


async def test_registrations_and_connections_are_counted(bench: Bench, peer: Peer) -> None:
    channels = Channels(bench.stats, bench.clock, 120)
    connected = [bench.peer() for _ in range(3)]
    broken = bench.peer()
    for one in (*connected, broken):
        channels.connected(one.connection)
    broken.transport.lose(ConnectionResetError("reset by peer"))
    await connected[0].heartbeat("c1", "T", producer="P")
    await connected[1].heartbeat("c2", "T")
    connected[2].transport.lose()
    await asyncio.sleep(130)
    connected[1].transport.lose()
    await asyncio.sleep(10)
    bench.stats.sample(bench.clock.now_ms())
    found = {(name, key): (value, times) for name, key, value, times in bench.stats.items()}
    assert found["CONSUMER_REGISTER_TIME", "DefaultCluster"] == (0, 2)
    assert found["PRODUCER_REGISTER_TIME", "DefaultCluster"] == (0, 1)
    assert found["CHANNEL_ACTIVITY", "CONNECT"] == (4, 4)
    assert found["CHANNEL_ACTIVITY", "CLOSE"] == (3, 3)
    assert found["CHANNEL_ACTIVITY", "IDLE"] == (1, 1)
    assert found["CHANNEL_ACTIVITY", "EXCEPTION"] == (1, 1)
    reply = await peer.ask(315, stats_name="CHANNEL_ACTIVITY", stats_key="CONNECT")
    assert BROKER_STATS.loads(reply.body).stats_minute.sum == 4
    # Apache's own broker does not count these either; only plug-ins do.
    for name in ("COMMERCIAL_SEND_TIMES", "COMMERCIAL_RCV_SIZE", "DLQ_PUT_NUMS", "GROUP_GET_FALL_SIZE"):
        missing = await peer.ask(315, stats_name=name, stats_key="Owner@T@G@SEND_SUCCESS")
        assert missing.remark == f"The stats <{name}> <Owner@T@G@SEND_SUCCESS> not exist"


def test_who_is_to_pay_is_part_of_the_key_of_dead_letters() -> None:
    stats = BrokerStats(0)
    stats.sent_back("T", "G", "%DLQ%G", 0, 1, dead=True, owner="me")
    assert stats.view("SNDBCK2DLQ_TIMES", "me@T@G@SEND_BACK_TO_DLQ") is not None


def test_totals_do_not_fall_when_a_topic_goes() -> None:
    stats = BrokerStats(0, "C")
    stats.is_system = lambda name: name == "SYS"
    stats.put("T").add(0, 3, 300)
    stats.put("SYS").add(0, 1, 10)
    stats.got("T", "G").add(0, 2, 200)
    stats.forget_topic("T")
    stats.forget_topic("SYS")
    assert (stats.put_count, stats.put_bytes, stats.user_put_count) == (4, 310, 3)
    assert (stats.get_count, stats.user_get_count) == (2, 2)
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    stats.got("U", "G").add(0, 1, 1)
    stats.forget_group("G")
    assert (stats.get_count, stats.user_get_count) == (3, 3)


def test_figures_stay_when_that_is_wanted() -> None:
    stats = BrokerStats(0)
    stats.forgets = False
    stats.put("T").add(0, 1, 1)
    stats.got("T", "G").add(0, 1, 1)
    stats.forget_topic("T")
    stats.forget_group("G")
    assert stats.view("TOPIC_PUT_NUMS", "T") is not None
    assert stats.view("GROUP_GET_NUMS", "T@G") is not None


def test_figures_that_stood_still_are_dropped_and_come_back() -> None:
    stats = BrokerStats(0)
    stats.idle_ms = 30 * MINUTE
    stats.put("T").add(0, 5, 50)
    stats.put("U").add(0, 1, 10)
    for tick in range(1, 6 * 32):
        stats.put("U").add(0, 1, 10)
        stats.sample(tick * 10 * SECOND)
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("TOPIC_PUT_NUMS", "U") is not None
    assert stats.view("BROKER_PUT_NUMS", "DefaultCluster") is not None
    stats.put("T").add(0, 2, 20)
    stats.sample(40 * MINUTE)
    back = stats.view("TOPIC_PUT_NUMS", "T")
    assert back is not None


async def test_settings_of_figures_are_followed(broker: OpenBench) -> None:
    async with broker(
        enable_detail_stat=False,
        enable_schedule_message_stats=False,
        auto_delete_unused_stats=False,
        max_stats_idle_time_in_minutes=5,
    ) as bench:
        stats, housekeeping = bench.stats, bench.parts.housekeeping
        assert (stats.by_queue, stats.by_level, stats.forgets, stats.idle_ms) == (False, False, False, 30 * MINUTE)
        bench.settings.max_stats_idle_time_in_minutes = 45
        housekeeping.follow_settings()
        assert stats.idle_ms == 45 * MINUTE
        bench.settings.max_stats_idle_time_in_minutes = -1
        bench.settings.auto_delete_unused_stats = True
        housekeeping.sweep()
        assert (stats.idle_ms, stats.forgets) == (None, True)


@pytest.mark.parametrize("counted", [True, False])
def test_what_is_delivered_late_is_counted_when_that_is_wanted(*, counted: bool) -> None:
    stats = BrokerStats(0, "C")
    stats.by_level = counted
    stats.delivered(3, "T", 1, 120)
    found = {(name, key): value for name, key, value, _ in stats.items()}
    assert found["BROKER_GET_NUMS", "C"] == 0
    assert found.get(("TOPIC_PUT_NUMS", "T"), 0) == counted
    assert found.get(("GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"), 0) == 120 * counted
    assert found.get(("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER"), 0) == counted


# --- slow groups ------------------------------------------------------------------------------------------------------


async def test_groups_far_behind_lose_their_permission(broker: OpenBench, caplog: pytest.LogCaptureFixture) -> None:
    async with broker(disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=10_000) as bench:
        bench.tables.groups.put(SubscriptionGroupConfig("Fast"), 1)
        peer = bench.peer()
        for _ in range(30):
            await peer.send("T", b"x" * 500)
        await peer.pull("T", 0, max_msg_nums=1)
        await peer.pull("T", 29, consumer_group="Fast")
        with caplog.at_level(logging.WARNING):
            bench.parts.housekeeping.protect()
        assert not bench.tables.groups.get("G").consume_enable
        assert bench.tables.groups.get("Fast").consume_enable
        assert "group G may not consume any more" in caplog.text
        assert "consumerFallbehindThreshold=10000" in caplog.text
        refused = await peer.pull("T", 1)
        assert (refused.code, refused.remark) == (16, "subscription group no permission, G")
        # An operator enables the group again; its earlier reads do not count again.
        bench.tables.groups.put(SubscriptionGroupConfig("G"), 2)
        bench.parts.housekeeping.protect()
        assert bench.tables.groups.get("G").consume_enable


@pytest.mark.parametrize("switched_off", ["disable_consume_if_consumer_read_slowly", "disk_fall_recorded"])
async def test_nobody_is_slow_when_nobody_looks(broker: OpenBench, switched_off: str) -> None:
    of_broker = {"disable_consume_if_consumer_read_slowly": switched_off == "disk_fall_recorded"}
    store = {"disk_fall_recorded": switched_off != "disk_fall_recorded"}
    async with broker(store=store, consumer_fallbehind_threshold=1, **of_broker) as bench:
        peer = bench.peer()
        for _ in range(5):
            await peer.send("T", b"x" * 500)
        await peer.pull("T", 0, max_msg_nums=1)
        bench.parts.housekeeping.protect()
        assert bench.tables.groups.get("G").consume_enable


# --- broadcast consumers ----------------------------------------------------------------------------------------------

PROXY = {"request_source": 1, "proxy_froward_client_id": "far"}


def test_what_broadcast_consumers_have_reached_never_falls_and_the_slowest_counts() -> None:
    kept = BroadcastOffsets()
    kept.pulled("G", "T", 0, "a", 5, 1000, proxied=False)
    kept.pulled("G", "T", 0, "a", 3, 2000, proxied=False)
    kept.pulled("G", "T", 0, "b", 9, 2000, proxied=False)
    kept.pulled("G", "T", 1, "b", 4, 2000, proxied=True)
    assert kept.reached("G", "T", 0, "a") == 5
    ages = {"away_ms": 120_000, "silent_ms": 300_000}
    assert sorted(kept.sweep(3000, lambda group, client: False, **ages)) == [
        ("G@broadcast", "T", 0, 5), ("G@broadcast", "T", 1, 4),
    ]  # fmt: skip
    # A closed queue counts for two minutes, an open one for five.
    assert kept.sweep(125_000, lambda group, client: client == "b", **ages) == [
        ("G@broadcast", "T", 0, 9), ("G@broadcast", "T", 1, 4),
    ]  # fmt: skip
    assert kept.reached("G", "T", 0, "a") is None
    kept.sweep(400_000, lambda group, client: client == "b", **ages)
    assert kept.sweep(400_001, lambda group, client: True, **ages) == []


@pytest.mark.parametrize(
    ("before", "offset", "proxied", "anew"),
    [
        (None, 5, False, False), (None, -1, True, True), (None, 5, True, False), (False, 5, False, False),
        (False, -1, False, False), (True, 5, True, False), (True, -1, True, True), (True, 5, False, True),
        (False, 5, True, True),
    ],
)  # fmt: skip
def test_who_has_to_learn_where_to_begin(*, before: bool | None, offset: int, proxied: bool, anew: bool) -> None:
    kept = BroadcastOffsets()
    if before is not None:
        kept.pulled("G", "T", 0, "a", 7, 1, proxied=before)
    assert kept.needs_start("G", "T", "a", offset, proxied=proxied) == anew


async def test_offsets_of_broadcast_consumers_are_committed_and_a_proxy_goes_on_there(bench: Bench) -> None:
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    peer, proxy = bench.peer(), bench.peer()
    for _ in range(5):
        await peer.send("T")
    await peer.heartbeat("near", "T", model=MessageModel.BROADCASTING)
    assert (await peer.pull("T", 3)).code == 0
    bench.parts.housekeeping.commit_broadcasts()
    assert bench.tables.offsets.queues("G@broadcast", "T") == {0: 3}
    assert GROUP_LIST.loads((await peer.ask(300, topic="T")).body) == ["G"], "it is no group of its own"
    # A client new to the proxy begins at the slowest position. One that comes from the proxy resumes at its own.
    told = await proxy.pull("T", -1, **PROXY)
    assert (told.code, told.remark, read_reply(11, told).next_begin_offset) == (21, "OFFSET_RESET", 3)
    assert (await proxy.pull("T", 4, **PROXY)).code == 0
    await proxy.heartbeat("far", "T", model=MessageModel.BROADCASTING)
    told = await proxy.pull("T", 0)
    assert (told.code, read_reply(11, told).next_begin_offset) == (21, 4)
    assert (await proxy.pull("T", 4)).code == 0
    version = bench.tables.offsets.dirty
    bench.parts.housekeeping.commit_broadcasts()
    assert bench.tables.offsets.dirty == version, "the slowest has not moved"


async def test_a_proxys_first_client_begins_at_the_first_message(bench: Bench) -> None:
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    for _ in range(3):
        await bench.peer().send("T")
    told = await bench.peer().pull("T", -1, **PROXY)
    assert (told.code, read_reply(11, told).next_begin_offset) == (21, 0)


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
async def test_of_others_nothing_is_stored(broker: OpenBench, model: MessageModel) -> None:
    async with broker(enable_broadcast_offset_store=model is MessageModel.CLUSTERING) as bench:
        bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
        peer = bench.peer()
        await peer.send("T")
        await peer.heartbeat("c", "T", model=model)
        assert (await peer.pull("T", 0)).code == 0
        bench.parts.housekeeping.commit_broadcasts()
        assert not bench.tables.offsets.queues("G@broadcast", "T")
