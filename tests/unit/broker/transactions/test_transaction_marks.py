"""Marks of ended transactions, and the positions of the transaction service's own group."""

from __future__ import annotations

import asyncio
import time

from broker_bench import Bench, OpenBench, Peer
from transaction_talk import (
    COMMIT,
    HALF,
    OP,
    ROLLBACK,
    bodies,
    checking,
    end,
    fields,
    prepare,
    questions,
)

from broker_probe import BrokerProbe
from tianzhou.store.results import NewRecord

GROUP = "CID_RMQ_SYS_TRANS"


async def on_disk(bench: Bench) -> None:
    """Wait until the flush thread has finished, which needs real time."""
    end = bench.store.end_offset
    await asyncio.sleep(1)
    for turn in range(5_000):
        if bench.store.flushed.value >= end:
            break
        time.sleep(0.001)
        # A flush in progress at the arrival of the last record is followed by one that waits for virtual time.
        await asyncio.sleep(0.5 if turn % 200 == 199 else 0)
    assert bench.store.flushed.value >= end
    await asyncio.sleep(3)


async def test_marks_share_messages(bench: Bench, peer: Peer) -> None:
    sent = [await prepare(peer, f"U{n}") for n in range(30)]
    async with checking(bench):
        for one in sent[:10]:
            assert (await end(peer, one, COMMIT)).code == 0
        assert bodies(bench, OP) == [], "a commit can be read off the log, so its mark may wait"
        await asyncio.sleep(4)
        assert bodies(bench, OP) == [b"0,1,2,3,4,5,6,7,8,9,"]
        for one in sent[10:14]:
            peer.post(37, oneway=True, **fields(one, COMMIT))
        peer.post(37, oneway=True, **fields(sent[20], ROLLBACK))
        await asyncio.sleep(0.01)
        assert bodies(bench, OP)[1:] == [b"10,11,12,13,20,"], "a roll-back does not wait"


async def test_marks_are_written_when_there_are_many(broker: OpenBench) -> None:
    async with broker(transaction_op_msg_max_size=20) as bench:
        peer = bench.peer()
        sent = [await prepare(peer, f"U{n}") for n in range(12)]
        for one in sent:
            await end(peer, one, COMMIT)
        marks = bodies(bench, OP)
        assert marks
        assert all(len(mark) <= 20 for mark in marks)
        await bench.parts.transactions.close()
        await asyncio.sleep(0.01)
        assert sorted(int(n) for mark in bodies(bench, OP) for n in mark.decode().split(",") if n) == [*range(12)]


async def test_positions_follow(broker: OpenBench) -> None:
    async with broker(store={"flush_commit_log_thorough_interval": 100}) as bench:
        peer = bench.peer()
        await peer.heartbeat("c", producer="P")

        def committed(topic: str) -> int | None:
            found: int | None = bench.tables.offsets.committed(GROUP, topic, 0)
            return found

        assert (committed(HALF), committed(OP)) == (None, None)
        sent = [await prepare(peer, f"U{n}") for n in range(5)]
        async with checking(bench):
            for one in (sent[0], sent[1], sent[3]):
                await end(peer, one, COMMIT)
            await asyncio.sleep(4)
            await on_disk(bench)
            assert bodies(bench, OP) == [b"0,1,3,"]
            assert (committed(HALF), committed(OP)) == (2, 0)
            await asyncio.sleep(24)
            await on_disk(bench)
            assert (committed(HALF), committed(OP)) == (5, 1), "2 and 4 were written again"
            for one, _, _ in questions(peer):
                await end(peer, one, ROLLBACK, check=True)
            await on_disk(bench)
            assert (committed(HALF), committed(OP)) == (7, 3)


async def test_positions_wait_for_the_disk(broker: OpenBench) -> None:
    async with broker(
        store={"flush_interval_commit_log": 10_000, "flush_commit_log_thorough_interval": 10_000}
    ) as bench:
        peer = bench.peer()
        store = bench.store
        async with checking(bench):
            await end(peer, await prepare(peer), ROLLBACK)
            await asyncio.sleep(9)
            assert bench.tables.offsets.committed(GROUP, HALF, 0) is None
            assert store.flushed.value < store.end_offset
            await asyncio.sleep(5)
            await on_disk(bench)
            assert bench.tables.offsets.committed(GROUP, HALF, 0) == 1


async def test_marks_of_4_9_are_read(bench: Bench, peer: Peer) -> None:
    for n in range(4):
        await prepare(peer, f"U{n}")
    for mark in (b"0", b"2,3,"):
        bench.store.append(NewRecord(OP, 0, mark, b"TAGS\x01d\x02"))
    await asyncio.sleep(0.1)
    again = type(bench.tables.transactions)()
    checker = bench.parts.transactions
    BrokerProbe(bench.parts).check_halves_of(again)
    await checker.load()
    assert [half.identity.unique_key for half in again.waiting()] == ["U1"]
