"""Offsets and look-ups: requests 12, 14, 15, 29 to 33, 43, 45, 222, 314."""

import asyncio
from typing import Any

import pytest
from broker_bench import Bench, Peer

from store_probe import StoreProbe
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.records.codec import decode_record, decode_records
from tianzhou.wire.bodies.offsets import CONSUMER_OFFSETS, DELAY_OFFSETS, OFFSET_TABLE
from tianzhou.wire.fields import read_reply

QUEUE = {"topic": "T", "queue_id": 0}
HERE = {"consumer_group": "G"} | QUEUE


async def fill(bench: Bench, count: int) -> None:
    peer = bench.peer()
    for n in range(count):
        await peer.send("T", f"m{n}".encode(), properties={"UNIQ_KEY": f"U{n}", "KEYS": "all"})
        await asyncio.sleep(1)


async def test_committed_offsets(bench: Bench, peer: Peer) -> None:
    await fill(bench, 3)
    bench.tables.groups.put(SubscriptionGroupConfig("G"), 1)
    assert (await peer.ask(15, commit_offset=2, **HERE)).code == 0
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 2
    assert (await peer.ask(15, commit_offset=1, **HERE)).code == 0
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 1
    table = CONSUMER_OFFSETS.loads((await peer.ask(43)).body)
    assert table.offset_table == {"T@G": {0: 1}}


async def test_commits_that_are_refused(bench: Bench, peer: Peer) -> None:
    await fill(bench, 1)
    bench.tables.groups.put(SubscriptionGroupConfig("G"), 1)
    assert (await peer.ask(15, commit_offset=1, consumer_group="X", **QUEUE)).code == 26
    assert (await peer.ask(15, commit_offset=1, consumer_group="G", topic="X", queue_id=0)).code == 17
    missing = await peer.ask(15, **HERE)
    assert missing.code == 29
    assert "commitOffset" in (missing.remark or "")


async def test_a_new_group_starts_at_zero_where_the_queue_does(bench: Bench, peer: Peer) -> None:
    bench.tables.topics.put(TopicConfig("T", 2, 2), 1)
    empty = await peer.ask(14, **HERE)
    assert (empty.code, empty.fields) == (0, {"offset": "0"})
    await fill(bench, 1)
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 0
    assert (await peer.ask(14, set_zero_if_not_found=False, **HERE)).code == 22
    assert read_reply(14, await peer.ask(14, set_zero_if_not_found=True, **HERE)).offset == 0


async def test_a_new_group_does_not_start_at_zero_when_that_has_gone_cold(bench: Bench) -> None:
    await fill(bench, 3)
    StoreProbe(bench.store).bound_memory(1)
    reply = await bench.peer().ask(14, **HERE)
    assert reply.code == 22
    assert reply.remark


async def test_bounds_and_times(bench: Bench, peer: Peer) -> None:
    start = bench.clock.now_ms()
    await fill(bench, 3)

    async def at(timestamp: int, **more: Any) -> int:
        return int(read_reply(29, await peer.ask(29, timestamp=timestamp, **QUEUE, **more)).offset)

    assert read_reply(30, await peer.ask(30, **QUEUE)).offset == 3
    assert read_reply(31, await peer.ask(31, **QUEUE)).offset == 0
    assert read_reply(32, await peer.ask(32, **QUEUE)).timestamp == bench.records("T")[0].store_timestamp
    second = bench.records("T")[1].store_timestamp
    assert [await at(start - 1), await at(second), await at(second + 1), await at(1 << 50)] == [0, 1, 2, 3]
    assert await at(second + 1, boundary_type="UPPER") == 1
    for code in (30, 31):
        assert read_reply(code, await peer.ask(code, topic="nowhere", queue_id=0)).offset == 0
    assert read_reply(32, await peer.ask(32, topic="nowhere", queue_id=0)).timestamp == -1


async def test_reset_by_time_by_offset_and_to_the_end(bench: Bench, peer: Peer) -> None:
    await fill(bench, 5)
    bench.tables.groups.put(SubscriptionGroupConfig("G"), 1)
    third = bench.records("T")[2].store_timestamp
    common = {"topic": "T", "group": "G", "is_force": True}
    reply = await peer.ask(222, timestamp=third, **common)
    table = OFFSET_TABLE.loads(reply.body)
    assert table[MessageQueue("T", "broker-a", 0)] == 2
    assert len(table) == 4
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 2
    shielded = await peer.ask(15, commit_offset=5, **HERE)
    assert (shielded.code, shielded.remark) == (0, "Offset has been previously reset")
    await peer.pull("T", 5)
    await peer.ask(15, commit_offset=3, **HERE)
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 3
    await peer.ask(222, timestamp=-1, **common)
    assert read_reply(14, await peer.ask(14, **HERE)).offset == 5
    assert OFFSET_TABLE.loads((await peer.ask(222, timestamp=0, queue_id=0, offset=1, **common)).body) == {
        MessageQueue("T", "broker-a", 0): 1
    }
    assert (await peer.ask(222, timestamp=0, queue_id=0, offset=9, **common)).code == 1
    assert (await peer.ask(222, timestamp=0, topic="X", group="G", is_force=True)).code == 17
    assert (await peer.ask(222, timestamp=0, topic="T", group="X", is_force=True)).code == 26


async def test_offsets_of_a_group_can_be_copied(bench: Bench) -> None:
    offsets, peer = bench.tables.offsets, bench.peer()
    bench.tables.topics.put(TopicConfig("T"), 1)
    offsets.commit("G", "T", 0, 4, 1)
    offsets.commit("G", "gone", 0, 4, 1)
    await peer.ask(314, src_group="G", dest_group="H", offline=True)
    assert offsets.committed("H", "T", 0) == 4
    assert offsets.committed("H", "gone", 0) is None, "there is no such topic"
    await peer.heartbeat("c1", "other")
    await peer.ask(314, src_group="G", dest_group="I", offline=False)
    assert offsets.committed("I", "T", 0) is None, "the group is online and does not subscribe it"
    await peer.ask(314, src_group="G", dest_group="I", offline=True)
    assert offsets.committed("I", "T", 0) == 4


async def test_delay_offsets(bench: Bench) -> None:
    bench.tables.delays.advance(3, 5, 1)
    assert DELAY_OFFSETS.loads((await bench.peer().ask(45)).body).offset_table == {3: 5}


async def test_single_messages(bench: Bench, peer: Peer) -> None:
    await fill(bench, 3)
    place = bench.records("T")[1].physical_offset
    assert decode_record((await peer.ask(33, offset=place)).body).body == b"m1"
    assert (await peer.ask(33, offset=1 << 40)).code == 1
    window = {"topic": "T", "begin_timestamp": 0, "end_timestamp": (1 << 63) - 1}
    found = await peer.ask(12, key="all", max_num=64, **window)
    assert [record.body for record in decode_records(found.body)] == [b"m0", b"m1", b"m2"]
    assert read_reply(12, found).index_last_update_phyoffset == bench.records("T")[2].physical_offset
    one = await peer.ask(12, key="U2", max_num=1, unique_key_query=True, **window)
    assert [record.body for record in decode_records(one.body)] == [b"m2"]
    assert (await peer.ask(12, key="none", max_num=64, **window)).code == 22


@pytest.mark.parametrize(("asked", "unique", "given"), [(100, False, 64), (5, False, 5), (5, True, 32)])
async def test_how_many_a_query_returns(peer: Peer, asked: int, unique: bool, given: int) -> None:
    for _ in range(70):
        await peer.send("T", b"x", properties={"UNIQ_KEY": "U", "KEYS": "k"})
    window = {"topic": "T", "begin_timestamp": 0, "end_timestamp": (1 << 63) - 1}
    found = await peer.ask(12, key="k", max_num=asked, unique_key_query=unique, **window)
    assert len(list(decode_records(found.body))) == given
