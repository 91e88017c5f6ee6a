"""Topics that are deleted and created again while members run: no message is skipped."""

from __future__ import annotations

import asyncio

import pytest
from broker_bench import Bench, OpenBench, Peer

from open_fixtures import open_for_test
from tianzhou.broker.tables.void_positions import MOST_CORRECTIONS, VoidPositions
from tianzhou.model import MessageModel, TopicConfig
from tianzhou.store.results import NewRecord
from tianzhou.wire.fields import read_reply

MOVED, FOUND = 21, 0
COMMITS = 5
"""System flag of a pull that commits and contains its subscription."""


@pytest.fixture
def bench(broker: OpenBench, request: pytest.FixtureRequest) -> Bench:
    return open_for_test(request, broker())


async def consumed(peer: Peer, count: int = 10) -> None:
    """Have a member of G consume messages of T and commit them."""
    await peer.create_topic("T", 1)
    await peer.heartbeat("c1", "T")
    for _ in range(count):
        await peer.send("T")
    await peer.pull("T", 0)
    await peer.pull("T", count, sys_flag=COMMITS, commit_offset=count, suspend_timeout_millis=1)


async def remade(peer: Peer, count: int = 10) -> None:
    """Delete T, create it again, and fill it up to the offsets of its members."""
    await peer.ask(215, topic="T")
    await peer.create_topic("T", 1)
    for number in range(count):
        await peer.send("T", b"new%d" % number)


def commit(peer: Peer, offset: int) -> int:
    return peer.post(15, consumer_group="G", topic="T", queue_id=0, commit_offset=offset)


async def test_a_member_begins_a_topic_that_was_made_again_at_its_first_message(bench: Bench, peer: Peer) -> None:
    await consumed(peer)
    await remade(peer)
    moved = await peer.pull("T", 10)
    assert (moved.code, read_reply(11, moved).next_begin_offset) == (MOVED, 0)
    found = await peer.pull("T", 0)
    assert (found.code, b"new0" in bytes(found.body)) == (FOUND, True)
    assert (await peer.pull("T", 10, sys_flag=4, suspend_timeout_millis=1)).code == 19


async def test_offsets_that_a_member_commits_late_do_not_count(bench: Bench, peer: Peer) -> None:
    await consumed(peer)
    await peer.ask(215, topic="T")
    assert (await peer.reply(commit(peer, 10))).code != 0
    await peer.create_topic("T", 1)
    assert (await peer.reply(commit(peer, 10))).code == 0
    assert bench.tables.offsets.committed("G", "T", 0) is None
    asked = await peer.ask(14, consumer_group="G", topic="T", queue_id=0)
    assert read_reply(14, asked).offset == 0
    await peer.pull("T", 0, suspend_timeout_millis=1)
    await peer.send("T")
    await peer.reply(commit(peer, 1))
    assert bench.tables.offsets.committed("G", "T", 0) == 1


async def test_a_pull_that_waits_ends_with_its_topic(bench: Bench, peer: Peer) -> None:
    await consumed(peer)
    held = peer.post_pull("T", 10, sys_flag=6, suspend_timeout_millis=20_000)
    await asyncio.sleep(0.1)
    assert peer.peek(held) is None
    await peer.ask(215, topic="T")
    reply = await peer.reply(held, 1.0)
    assert (reply.code, read_reply(11, reply).next_begin_offset) == (MOVED, 0)


async def test_members_of_a_broadcast_group_begin_each_by_itself(bench: Bench, peer: Peer) -> None:
    other = bench.peer()
    await peer.create_topic("T", 1)
    for one, client_id in ((peer, "c1"), (other, "c2")):
        await one.heartbeat(client_id, "T", model=MessageModel.BROADCASTING)
    for _ in range(10):
        await peer.send("T")
    for one in (peer, other):
        await one.pull("T", 0)
    await remade(peer)
    for one in (peer, other):
        moved = await one.pull("T", 10)
        assert (moved.code, read_reply(11, moved).next_begin_offset) == (MOVED, 0)
    for one in (peer, other, peer):
        assert (await one.pull("T", 0)).code == FOUND
        assert (await one.pull("T", 5)).code == FOUND


async def test_a_restarted_broker_learns_of_the_deletion_by_the_pulls(bench: Bench, peer: Peer) -> None:
    await peer.heartbeat("c1", "T")
    assert (await peer.pull("T", 10)).code == 17
    await peer.create_topic("T", 1)
    for _ in range(10):
        await peer.send("T")
    assert read_reply(11, await peer.pull("T", 10)).next_begin_offset == 0


async def test_a_group_that_is_not_online_is_told_nothing(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T", 1)
    for _ in range(10):
        await peer.send("T")
    await peer.pull("T", 0)
    await remade(peer)
    assert (await peer.pull("T", 5)).code == FOUND, "a reader of its own, which knows where it reads"


async def test_a_member_beyond_the_end_goes_on_where_its_group_is(bench: Bench, peer: Peer) -> None:
    await peer.create_topic("T", 1)
    for _ in range(8):
        await peer.send("T")
    bench.tables.offsets.commit("G", "T", 0, 5, 1)
    moved = await peer.pull("T", 20)
    assert (moved.code, read_reply(11, moved).next_begin_offset) == (MOVED, 5)
    bench.tables.offsets.commit("G", "T", 0, 30, 1)
    assert read_reply(11, await peer.pull("T", 20)).next_begin_offset == 8


def test_a_client_that_insists_gets_its_way() -> None:
    voids = VoidPositions()
    voids.topic_deleted("T", "G", [0])
    told = [voids.is_void("G", "T", 0, 10, None) for _ in range(MOST_CORRECTIONS + 1)]
    assert told == [True] * MOST_CORRECTIONS + [False]
    assert not voids.waits("G", "T", 0)


def test_the_oldest_positions_are_dropped_first() -> None:
    voids = VoidPositions(most=2)
    for queue_id in range(3):
        voids.topic_deleted("T", "G", [queue_id])
    assert [voids.waits("G", "T", queue_id) for queue_id in range(3)] == [False, True, True]
    voids.forget_group("G")
    assert not voids.waits("G", "T", 2)


async def test_a_slave_that_does_not_know_a_topic_yet_moves_no_member(bench: Bench, peer: Peer) -> None:
    bench.services.replication.is_slave = bench.settings.slave_read_enable = True
    await peer.heartbeat("c1", "T")
    assert (await peer.pull("T", 10)).code == 17
    bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
    for _ in range(12):
        bench.store.append(NewRecord("T", 0, b"copied", b""))
    await asyncio.sleep(0)
    assert (await peer.pull("T", 10)).code == FOUND
