"""Pulls: 11 and 361, and waiting."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer

from tianzhou.model import MessageModel, SubscriptionGroupConfig, TopicConfig
from tianzhou.records.codec import decode_records
from tianzhou.watermark import WAKES_PER_TURN
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import read_reply

PULL = RequestCode.PULL_MESSAGE
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def place(reply: Any) -> tuple[int, str, int, int, int]:
    header = read_reply(PULL, reply)
    return reply.code, reply.remark, header.next_begin_offset, header.min_offset, header.max_offset


async def fill(bench: Bench, count: int, topic: str = "T", **properties: str) -> None:
    peer = bench.peer()
    for n in range(count):
        await peer.send(topic, f"m{n}".encode(), properties={"UNIQ_KEY": f"U{n}"} | properties)


async def test_messages_come_as_they_are_stored(bench: Bench) -> None:
    await fill(bench, 3)
    reply = await bench.peer().pull("T")
    assert place(reply) == (0, "FOUND", 3, 0, 3)
    assert [record.body for record in decode_records(reply.body)] == [b"m0", b"m1", b"m2"]
    header = read_reply(PULL, reply)
    assert (header.suggest_which_broker_id, header.topic_sys_flag, header.group_sys_flag) == (0, 0, 0)
    limited = await bench.peer().pull("T", 1, max_msg_nums=1)
    assert [record.body for record in decode_records(limited.body)] == [b"m1"]
    for odd in (0, -1):
        assert place(await bench.peer().pull("T", 1, max_msg_nums=odd))[:3] == (0, "FOUND", 2)


async def test_lite_pull_is_a_pull_that_can_be_forbidden(bench: Bench) -> None:
    await fill(bench, 1)
    fields = {
        "consumer_group": "G", "topic": "T", "queue_id": 0, "queue_offset": 0, "max_msg_nums": 32, "sys_flag": 20,
        "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0,
    }  # fmt: skip
    assert (await bench.peer().ask(361, **fields)).code == 0
    bench.settings.lite_pull_message_enable = False
    assert (await bench.peer().ask(361, **fields)).code == 16
    assert (await bench.peer().pull("T")).code == 0


@pytest.mark.parametrize(
    ("topic", "offset", "expected"),
    [
        ("T", 3, (19, "OFFSET_OVERFLOW_ONE", 3, 0, 3)),
        ("T", 4, (21, "OFFSET_OVERFLOW_BADLY", 3, 0, 3)),
        ("T", -1, (21, "OFFSET_TOO_SMALL", 0, 0, 3)),
        ("empty", 0, (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
        ("empty", 5, (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
    ],
)
async def test_offsets_outside_the_queue(
    bench: Bench, topic: str, offset: int, expected: tuple[int, str, int, int, int]
) -> None:
    bench.tables.topics.put(TopicConfig("empty", 1, 1), 1)
    await fill(bench, 3)
    assert place(await bench.peer().pull(topic, offset)) == expected


async def test_tags_select_by_hash(bench: Bench) -> None:
    await fill(bench, 2, TAGS="TagA")
    await fill(bench, 1, TAGS="TagB")
    await fill(bench, 1)
    pull = bench.peer().pull
    found = await pull("T", subscription="TagB||TagC")
    assert place(found) == (0, "FOUND", 4, 0, 4)
    assert [record.queue_offset for record in decode_records(found.body)] == [2]
    assert place(await pull("T", subscription="TagX")) == (20, "NO_MATCHED_MESSAGE", 4, 0, 4)
    assert (await pull("T", subscription="||")).code == 23
    assert (await pull("T", subscription="a > 1", expression_type="SQL92")).code == 1


async def test_the_checks_and_their_codes(bench: Bench) -> None:
    await fill(bench, 1)
    tables, settings = bench.tables, bench.settings
    pull = bench.peer().pull
    tables.topics.put(TopicConfig("closed", perm=2), 1)
    tables.groups.put(SubscriptionGroupConfig("off", consume_enable=False), 1)
    for expected, forbidden, topic, header in (
        (16, "2", "T", {"consumer_group": "off"}),
        (17, None, "nowhere", {}),
        (16, "3", "closed", {}),
        (29, None, "T", {"queue_id": 4}),
        (29, None, "T", {"queue_id": -1}),
        (24, None, "T", {"sys_flag": 0}),
    ):
        reply = await pull(topic, **header)
        assert (reply.code, reply.fields.get("forbiddenType")) == (expected, forbidden), (topic, header)
        assert reply.remark
    tables.groups.auto_create = False
    assert (await pull("T", consumer_group="new")).code == 26
    settings.broker_permission = 2
    reply = await pull("T")
    assert (reply.code, reply.fields["forbiddenType"]) == (16, "1")


async def test_without_its_own_expression_the_heartbeat_counts(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1, TAGS="TagA")
    await fill(bench, 1, TAGS="TagB")
    await peer.heartbeat("c", "T", expression="TagB", version=10)
    found = await peer.pull("T", sys_flag=0, sub_version=10)
    assert [record.queue_offset for record in decode_records(found.body)] == [1]
    assert (await peer.pull("T", sys_flag=0, sub_version=11)).code == 25
    await fill(bench, 1, "other")
    assert (await peer.pull("other", sys_flag=0)).code == 24
    bench.tables.groups.set_readable("G", "T", False, 1)
    reply = await peer.pull("T", sys_flag=0, sub_version=10)
    assert (reply.code, reply.fields["forbiddenType"]) == (16, "5")
    config = bench.tables.groups.get("G")
    bench.tables.groups.put(replace(config, consume_broadcast_enable=False), 1)
    await peer.heartbeat("c", "T", model=MessageModel.BROADCASTING)
    reply = await peer.pull("T", sys_flag=0)
    assert (reply.code, reply.fields["forbiddenType"]) == (16, "4")


async def test_using_a_group_creates_it(bench: Bench) -> None:
    await fill(bench, 1)
    await bench.peer().pull("T", consumer_group="fresh")
    assert bench.tables.groups.get("fresh") == SubscriptionGroupConfig("fresh")


async def test_commits_come_with_pulls_when_flagged(bench: Bench, peer: Peer) -> None:
    await fill(bench, 3)
    await peer.pull("T", 2, commit_offset=1)
    assert bench.tables.offsets.committed("G", "T", 0) is None
    assert bench.tables.offsets.pull_offset("G", "T", 0) == 3
    await peer.pull("T", 2, commit_offset=1, sys_flag=SUBSCRIPTION | COMMIT)
    assert bench.tables.offsets.committed("G", "T", 0) == 1


async def test_a_pull_waits_for_the_next_message(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    waiting = peer.post_pull("T", 1, sys_flag=SUBSCRIPTION | SUSPEND | COMMIT, commit_offset=1)
    await asyncio.sleep(5)
    assert peer.peek(waiting) is None
    bench.tables.offsets.commit("G", "T", 0, 7, 1)
    await fill(bench, 1)
    reply = await peer.reply(waiting)
    assert place(reply) == (0, "FOUND", 2, 0, 2)
    assert bench.tables.offsets.committed("G", "T", 0) == 7, "it commits once, before it waits"


async def test_a_pull_that_waited_in_vain_says_so(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    waiting = peer.post_pull("T", 1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=15_000)
    await asyncio.sleep(14.9)
    assert peer.peek(waiting) is None
    await asyncio.sleep(0.2)
    found = peer.peek(waiting)
    assert found is not None
    assert place(found) == (19, "OFFSET_OVERFLOW_ONE", 1, 0, 1)


async def test_a_queue_without_messages_can_be_waited_for(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    waiting = peer.post_pull("T", 0, sys_flag=SUBSCRIPTION | SUSPEND)
    await asyncio.sleep(1)
    await fill(bench, 1)
    assert place(await peer.reply(waiting)) == (0, "FOUND", 1, 0, 1)


async def test_what_the_filter_leaves_out_does_not_end_the_wait(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    flags = {"sys_flag": SUBSCRIPTION | SUSPEND, "subscription": "TagA"}
    waiting = peer.post_pull("T", 1, **flags)
    in_vain = peer.post_pull("T", 1, suspend_timeout_millis=2_000, **flags)
    await fill(bench, 2, TAGS="TagB")
    await asyncio.sleep(1)
    assert peer.peek(waiting) is None
    assert place(await peer.reply(in_vain)) == (20, "NO_MATCHED_MESSAGE", 3, 0, 3)
    await fill(bench, 1, TAGS="TagA")
    reply = await peer.reply(waiting)
    assert place(reply) == (0, "FOUND", 4, 0, 4)
    assert [record.queue_offset for record in decode_records(reply.body)] == [3]


async def test_only_a_pull_that_found_nothing_waits(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1, TAGS="TagB")
    flags = SUBSCRIPTION | SUSPEND
    for offset, expression in ((0, "*"), (5, "*"), (0, "TagA")):
        opaque = peer.post_pull("T", offset, sys_flag=flags, subscription=expression)
        assert peer.peek(opaque) is not None


async def test_short_polling(broker: OpenBench) -> None:
    async with broker(long_polling_enable=False) as bench:
        await fill(bench, 1)
        peer = bench.peer()
        waiting = peer.post_pull("T", 1, sys_flag=SUBSCRIPTION | SUSPEND)
        await asyncio.sleep(1.1)
        assert peer.peek(waiting) is not None


async def test_a_lost_connection_forgets_its_waiting_pulls(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    for _ in range(100):
        peer.post_pull("T", 1, sys_flag=SUBSCRIPTION | SUSPEND)
    await asyncio.sleep(0.01)
    assert bench.store.arrived("T", 0).waiting == 100
    peer.transport.lose()
    await asyncio.sleep(0.01)
    await fill(bench, 1)
    assert bench.store.arrived("T", 0).waiting == 0


async def test_what_waits_has_its_message_in_the_turn_that_writes_the_unit(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    waiting = peer.post_pull("T", 1, sys_flag=SUBSCRIPTION | SUSPEND)
    await asyncio.sleep(0.01)
    bench.peer().post_send("T", b"new")
    await asyncio.sleep(0)  # one iteration of the loop
    reply = peer.peek(waiting)
    assert place(reply) == (0, "FOUND", 2, 0, 2)
    assert [record.body for record in decode_records(reply.body)] == [b"new"]


async def test_a_crowd_that_waits_for_many_queues_is_answered_a_few_in_each_turn(bench: Bench, peer: Peer) -> None:
    queues = 3 * WAKES_PER_TURN
    await peer.create_topic("Q", queues)
    sender, served, turns = bench.peer(), 0, 0
    for queue in range(queues):
        sender.post_send("Q", queue_id=queue)
    await asyncio.sleep(1)
    waiting = [peer.post_pull("Q", 1, queue_id=queue, sys_flag=SUBSCRIPTION | SUSPEND) for queue in range(queues)]
    await asyncio.sleep(0.01)
    writes = peer.transport.writes
    for queue in range(queues):
        sender.post_send("Q", queue_id=queue)
    while served < queues:
        await asyncio.sleep(0)
        now = sum(peer.peek(opaque) is not None for opaque in waiting)
        assert now <= WAKES_PER_TURN
        served += now
        turns += 1
        assert turns < 100
    # The replies of one loop iteration to one peer leave together.
    assert peer.transport.writes - writes <= turns


async def test_a_pull_whose_peer_is_lost_before_it_looks_again_is_forgotten(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("Q", WAKES_PER_TURN + 1)
    others = bench.peer()
    for queue in range(WAKES_PER_TURN):
        others.post_pull("Q", 0, queue_id=queue, sys_flag=SUBSCRIPTION | SUSPEND)
    peer.post_pull("Q", 0, queue_id=WAKES_PER_TURN, sys_flag=SUBSCRIPTION | SUSPEND)
    await asyncio.sleep(0.01)
    sender = bench.peer()
    for queue in range(WAKES_PER_TURN + 1):
        sender.post_send("Q", queue_id=queue)
    await asyncio.sleep(0)
    peer.transport.lose()  # woken, but served after the other peer's polls
    await asyncio.sleep(0.01)
    assert (await sender.pull("Q", 0, queue_id=WAKES_PER_TURN)).code == 0
    assert bench.store.arrived("Q", WAKES_PER_TURN).waiting == 0


async def test_a_reset_answers_the_next_pull(bench: Bench, peer: Peer) -> None:
    await fill(bench, 5)
    bench.tables.offsets.reset("G", "T", 0, 2, 1)
    assert place(await peer.pull("T", 5)) == (21, "OFFSET_RESET", 2, 0, 5)
    assert place(await peer.pull("T", 2))[:3] == (0, "FOUND", 5)
