"""Figures of consumption and lag: browsing does not count, removed queues of a topic still do."""

from __future__ import annotations

from broker_bench import Bench, Peer

from tianzhou.wire.bodies.offsets import CONSUME_STATS


async def test_unread_messages_of_queues_that_a_topic_lost_stay_in_the_lag(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T", 4)
    for number in range(46):
        await peer.send("T", queue_id=number % 4)
    for queue_id in range(4):
        bench.tables.offsets.commit("G", "T", queue_id, 0, 1)
    await peer.create_topic("T", 2)

    async def lag() -> int:
        stats = CONSUME_STATS.loads((await peer.ask(208, consumer_group="G", topic="T")).body)
        return sum(one.broker_offset - one.consumer_offset for one in stats.offset_table.values())

    assert await lag() == 46
    for queue_id in (2, 3):
        bench.tables.offsets.commit("G", "T", queue_id, 11 + (queue_id < 2), 1)
    assert await lag() == 24


async def test_looking_at_messages_is_no_consumption(bench: Bench, peer: Peer) -> None:
    for _ in range(5):
        await peer.send("T")
    for _ in range(20):
        await peer.pull("T", 0, consumer_group="TOOLS_CONSUMER")
        (record, *_) = bench.records("T")
        await peer.ask(33, offset=record.physical_offset)
    await peer.pull("T", 0)
    assert (await peer.figures())["msgGetTotalTodayNow"] == "5"
    await peer.ask(215, topic="T")
    assert (await peer.figures())["msgGetTotalTodayNow"] == "5"
