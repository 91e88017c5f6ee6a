"""Further requests of tools: members' replies, resets of both kinds, queue units, time spans."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.model import MessageQueue, SubscriptionGroupConfig
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.wire.bodies.clients import CONSUMER_CONNECTION
from tianzhou.wire.bodies.offsets import (
    CLIENT_OFFSETS,
    CONSUMER_STATUS,
    CORRECTION_OFFSETS,
    OFFSET_TABLE,
    QUEUE_UNITS,
    TIME_SPANS,
    QueueUnit,
)
from tianzhou.wire.bodies.replication import COLD_READ_LIMITS, HA_STATUS
from tianzhou.wire.codes import LanguageCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.fields import read_header, write_header
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.json_dialect import loads


def queue(number: int = 0, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


# Members' answers


async def test_a_member_consumes_a_message_at_once(bench: Bench) -> None:
    consumer, tool = bench.peer(), bench.peer()
    await consumer.heartbeat("c1", "T")
    sent = await tool.send("T", b"hello")
    opaque = tool.post(309, consumer_group="G", client_id="c1", msg_id=sent.header.msg_id, topic="T")
    question = await consumer.question(309)
    assert bytes(question.body) == bytes(at_once(bench.store.lookups.record_steps(0)))
    assert question.fields["brokerName"] == "broker-a"
    assert question.fields["topicSysFlag"] == "0"
    consumer.answer(question, 0, None, b'{"consumeResult":"CR_LATER"}')
    answer = await tool.reply(opaque)
    assert (answer.code, bytes(answer.body)) == (0, b'{"consumeResult":"CR_LATER"}')
    for wrong in ("00", "zz", sent.header.msg_id[:-1] + "7"):
        assert (await tool.ask(309, consumer_group="G", client_id="c1", msg_id=wrong)).code == 1
    offline = await tool.ask(309, consumer_group="G", client_id="c9", msg_id=sent.header.msg_id)
    assert (offline.code, offline.remark) == (1, "The Consumer <G> <c9> not online")


async def test_a_member_that_goes_or_is_too_old_is_reported(bench: Bench) -> None:
    consumer, tool = bench.peer(), bench.peer()
    await consumer.heartbeat("c1", "T")
    opaque = tool.post(307, consumer_group="G", client_id="c1")
    await consumer.question(307)
    consumer.transport.lose()
    answer = await tool.reply(opaque)
    assert answer.code == 1
    assert "went offline" in (answer.remark or "")
    old = bench.peer()
    await old.heartbeat("c2", "T")
    client = bench.tables.clients.find_consumer("G", "c2")
    client.version = 30
    answer = await tool.ask(307, consumer_group="G", client_id="c2")
    assert answer.code == 1
    assert "too low" in (answer.remark or "")


async def test_members_say_how_far_they_are(bench: Bench) -> None:
    first, second, tool = bench.peer(), bench.peer(), bench.peer()
    await first.heartbeat("c1", "T")
    await second.heartbeat("c2", "T")
    opaque = tool.post(223, topic="T", group="G", client_addr="")
    for peer, offsets in ((first, {queue(0): 3}), (second, {queue(1): 4})):
        question = await peer.question(221)
        assert (question.fields["topic"], question.fields["group"]) == ("T", "G")
        peer.answer(question, 0, None, CLIENT_OFFSETS.dumps(offsets))
    assert CONSUMER_STATUS.loads((await tool.reply(opaque)).body) == {"c1": {queue(0): 3}, "c2": {queue(1): 4}}
    opaque = tool.post(223, topic="T", group="G", client_addr="c2")
    question = await second.question(221)
    second.answer(question, 1, "no", b"")
    assert CONSUMER_STATUS.loads((await tool.reply(opaque)).body) == {}
    offline = await tool.ask(223, topic="T", group="H")
    assert (offline.code, "No Any Consumer online" in (offline.remark or "")) == (1, True)
    bench.tables.clients.find_consumer("G", "c1").version = 20
    assert "does not support" in ((await tool.ask(223, topic="T", group="G")).remark or "")


# Resets


async def test_members_are_notified_of_a_reset_when_that_is_configured(broker: OpenBench) -> None:
    async with broker(use_server_side_reset_offset=False) as bench:
        consumer, tool = bench.peer(), bench.peer()
        for _ in range(3):
            await tool.send("T")
        common = {"topic": "T", "group": "G", "timestamp": 0, "is_force": False}
        nobody = await tool.ask(222, **common)
        assert (nobody.code, "not exist" in (nobody.remark or "")) == (1, True)
        for number in range(4):
            bench.tables.offsets.commit("G", "T", number, 0 if number else 2, 1)
        assert (await tool.ask(222, **common)).code == 206
        await consumer.heartbeat("c1", "T")
        reply = await tool.ask(222, **common)
        # Without force, a reset only lowers an offset.
        table = {queue(0): 0, queue(1): 0, queue(2): 0, queue(3): 0}
        assert OFFSET_TABLE.loads(reply.body) == table
        told = await consumer.question(220)
        assert told.flag & 2
        assert OFFSET_TABLE.loads(told.body) == table
        header = read_header(told)
        assert (header.topic, header.group, header.timestamp, header.is_force) == ("T", "G", 0, False)
        assert bench.tables.offsets.committed("G", "T", 0) == 2
        ahead = await tool.ask(222, **common | {"timestamp": -1})
        assert OFFSET_TABLE.loads(ahead.body)[queue(0)] == 2
        forced = await tool.ask(222, **common | {"timestamp": -1, "is_force": True})
        assert OFFSET_TABLE.loads(forced.body)[queue(0)] == 3
        bench.tables.clients.find_consumer("G", "c1").version = 27
        assert (await tool.ask(222, **common)).code == 1


async def test_callers_in_cpp_have_their_members_told_in_a_list(broker: OpenBench) -> None:
    async with broker(use_server_side_reset_offset=False) as bench:
        consumer, tool = bench.peer(), bench.peer()
        await tool.send("T")
        for number in range(4):
            bench.tables.offsets.commit("G", "T", number, 0, 1)
        await consumer.heartbeat("c1", "T")
        fields = write_header(222, topic="T", group="G", timestamp=-1, is_force=True)
        command = Command(222, 99, language=LanguageCode.CPP, fields=fields)
        tool.post_frame(encode(command))
        assert (await tool.reply(99)).code == 0
        told = await consumer.question(220)
        assert isinstance(loads(told.body)["offsetTable"], list)
        assert OFFSET_TABLE.loads(told.body)[queue(0)] == 1


async def test_a_reset_ends_pulls_that_wait(bench: Bench) -> None:
    peer, tool = bench.peer(), bench.peer()
    await tool.send("T")
    bench.tables.groups.put(SubscriptionGroupConfig("G"), 1)
    opaque = peer.post_pull("T", 1, sys_flag=6)
    other = peer.post_pull("T", 1, sys_flag=6, consumer_group="H")
    await asyncio.sleep(0.01)
    assert peer.peek(opaque) is None
    began = bench.clock.monotonic()
    await tool.ask(222, topic="T", group="G", timestamp=0, queue_id=0, offset=0, is_force=True)
    reply = await peer.reply(opaque)
    assert bench.clock.monotonic() - began < 1
    assert (reply.code, reply.remark, reply.header.next_begin_offset) == (21, "OFFSET_RESET", 0)
    assert not bench.tables.offsets.reset_waits("G", "T", 0)
    assert (await peer.pull("T", 0)).code == 0
    assert peer.peek(other) is None


async def test_what_a_group_should_be_set_to(bench: Bench) -> None:
    offsets = bench.tables.offsets
    for group, number, offset in (("A", 0, 5), ("B", 0, 3), ("A", 1, 9), ("C", 0, 4), ("C", 1, 7)):
        offsets.commit(group, "T", number, offset, 1)

    async def correction(compared: str, without: str = "") -> dict[int, int]:
        reply = await bench.peer().ask(308, topic="T", compare_group=compared, filter_groups=without)
        return CORRECTION_OFFSETS.loads(reply.body)

    assert await correction("A") == {0: 3, 1: 7}
    assert await correction("A", "B,C") == {0: 5, 1: 9}
    # Excluded groups do not count, and a group behind all others is reported.
    assert await correction("B", "B") == {0: (1 << 63) - 1, 1: 7}
    assert offsets.committed("B", "T", 0) == 3


# Queues


async def test_units_of_a_queue(bench: Bench, peer: Peer) -> None:
    for tag in ("a", "b", "a"):
        await peer.send("T", properties={"TAGS": tag, "UNIQ_KEY": tag})
    places = [*(record.physical_offset for record in bench.records("T")), bench.store.end_offset]
    sizes = [end - begin for begin, end in pairwise(places)]
    reply = await peer.ask(321, topic="T", queue_id=0, index=1, count=10)
    shown = QUEUE_UNITS.loads(reply.body)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 3)
    assert shown.queue_data == [
        QueueUnit(sizes[0], sizes[1], tags_code("b")),
        QueueUnit(sizes[0] + sizes[1], sizes[2], tags_code("a")),
    ]
    offline = QUEUE_UNITS.loads((await peer.ask(321, topic="T", queue_id=0, count=1, consumer_group="G")).body)
    assert offline.filter_data == "G@T is not online!"
    await peer.heartbeat("c1", "T", expression="a")
    found = QUEUE_UNITS.loads((await peer.ask(321, topic="T", queue_id=0, count=3, consumer_group="G")).body)
    assert [unit.eval for unit in found.queue_data or []] == [True, False, True]
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == "a"
    beyond = await peer.ask(321, topic="T", queue_id=0, index=1000, count=2)
    assert (beyond.code, beyond.remark) == (0, "Index 1000 of 0@T is not exist!")
    missing = await peer.ask(321, topic="T", queue_id=9, count=2)
    assert (missing.code, missing.remark) == (1, "9@T is not exist!")


async def test_how_far_behind_a_group_is_in_time(bench: Bench, peer: Peer) -> None:
    for _ in range(3):
        await peer.send("T")
        await asyncio.sleep(1)
    times = [record.store_timestamp for record in bench.records("T")]
    bench.tables.offsets.commit("G", "T", 0, 1, 1)
    spans = {span.message_queue: span for span in TIME_SPANS.loads((await peer.ask(303, topic="T", group="G")).body)}
    assert len(spans) == 4
    span = spans[queue(0)]
    assert (span.min_time_stamp, span.max_time_stamp, span.consume_time_stamp) == (times[0], times[2], times[0])
    assert span.delay_time == pytest.approx(bench.clock.now_ms() - times[1], abs=50)
    assert spans[queue(1)].delay_time == 0
    new = TIME_SPANS.loads((await peer.ask(303, topic="T", group="new")).body)[0]
    assert new.delay_time == pytest.approx(bench.clock.now_ms() - times[0], abs=50)
    assert (await peer.ask(303, topic="nowhere", group="G")).code == 17


async def test_there_are_no_queues_in_rocksdb(bench: Bench) -> None:
    assert loads((await bench.peer().ask(354, topic="T", check_store_time=0)).body) == {"checkStatus": 2}


# The broker


async def test_a_master_without_replicas(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    status = HA_STATUS.loads((await peer.ask(907)).body)
    assert (status.master, status.in_sync_slave_nums, status.ha_connection_info) == (True, 0, [])
    assert status.master_commit_log_max_offset == bench.store.end_offset
    told = await peer.ask(906)
    assert told.fields["masterAddress"] == "127.0.0.1:31011"
    assert told.fields["masterHaAddress"] == "127.0.0.1:31012"
    assert int(told.fields["masterFlushOffset"]) <= bench.store.end_offset
    assert (await peer.ask(906, master_ha_address="there:1")).fields == {}
    for code in (905, 908, 1008):
        header = {"master_flush_offset": 5} if code == 908 else {}
        assert (await peer.ask(code, **header)).code == 0
    epochs = await peer.ask(1007)
    assert (epochs.code, epochs.remark) == (1, "this request only for controllerMode ")


async def test_limits_of_cold_reads_are_stored_and_shown(peer: Peer) -> None:
    assert (await peer.ask(2001, b"G=1000\nH=2000\nbad=x\n")).code == 0
    limits = COLD_READ_LIMITS.loads((await peer.ask(2003)).body)
    assert limits.configs == {"G": 1000, "H": 2000}
    assert (limits.cg_cold_read_threshold, limits.global_cold_read_threshold) == (3_145_728, 104_857_600)
    await peer.ask(2002, b"G")
    await peer.ask(2002, b"nobody")
    assert COLD_READ_LIMITS.loads((await peer.ask(2003)).body).configs == {"H": 2000}
    assert (await peer.ask(2001, b"\xff\xfe")).code == 1


async def test_reading_ahead_is_switched(bench: Bench, peer: Peer) -> None:
    await peer.send("T")
    for mode, wanted in (("1", False), ("0", True)):
        reply = await peer.ask(2004, read_ahead_mode=mode)
        assert (reply.code, reply.remark) == (0, f"set commitlog readahead mode success, mode: {mode}")
        assert bench.store_settings.data_read_ahead_enable is wanted
    assert (await peer.pull("T")).code == 0
    assert (await peer.ask(2004, read_ahead_mode="7")).code == 29
    assert (await peer.ask(2004)).code == 1


async def test_nothing_can_be_recalled(bench: Bench) -> None:
    reply = await bench.peer().ask(370, producer_group="P", topic="T", recall_handle="x")
    assert (reply.code, reply.remark) == (16, "recall failed, operation is forbidden")
    assert reply.fields == {"MSG_REGION": "DefaultRegion"}


# Groups with different subscriptions of members


async def test_members_that_subscribe_different_things_are_found(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.peer(), bench.peer()

    async def shown() -> Any:
        return CONSUMER_CONNECTION.loads((await first.ask(203, consumer_group="G")).body)

    await first.heartbeat("c1", "T", expression="a")
    await second.heartbeat("c2", "T", expression="a", version=2)
    assert (await shown()).subscription_conflicts is None
    assert caplog.text == ""
    await second.heartbeat("c2", "T", expression="a || b", version=3)
    await second.heartbeat("c2", "T", expression="a || b", version=3)
    found = await shown()
    assert found.subscription_conflicts == 1
    assert found.different_subscriptions == {"c1": {"T": "a"}, "c2": {"T": "a || b"}}
    assert caplog.text.count("subscribe different things") == 1
    await first.heartbeat("c1", "T", expression="a || b", version=4)
    found = await shown()
    assert (found.subscription_conflicts, found.different_subscriptions) == (1, None)
    await second.heartbeat("c2", "T", "U", version=5)
    second.transport.lose()
    await asyncio.sleep(0.01)
    assert (await shown()).different_subscriptions is None


async def test_a_group_of_one_agrees_with_itself(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c1", "T")
    await peer.heartbeat("c1", "U", version=2)
    group = bench.tables.clients.consumers["G"]
    assert (group.conflicts, group.differing()) == (0, [])
    assert replace(group, conflicts=3).conflicts == 3


async def test_a_crowd_of_groups_whose_members_disagree_does_not_fill_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = bench.peer(), bench.peer()
    for number in range(120):
        await first.heartbeat("c1", "T", group=f"G{number}", expression="a")
        await second.heartbeat("c2", "T", group=f"G{number}", expression="b")
    assert caplog.text.count("subscribe different things") == 100
    bench.clock.advance(61)
    await first.heartbeat("c1", "T", group="last", expression="a")
    await second.heartbeat("c2", "T", group="last", expression="b")
    assert "(20 more lines about heartbeats were left out since)" in caplog.text
