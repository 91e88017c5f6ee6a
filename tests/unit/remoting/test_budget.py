"""Memory for incomplete frames: shared so that some peer always makes progress, and counted completely."""

from __future__ import annotations

import random

import pytest

from broker_probe import reserved_bytes
from tianzhou.remoting.budget import LARGEST_SMALL_READ, SMALLEST_READ, FrameBudget
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.session import READ_SIZE
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode


class Peer:
    def __init__(self) -> None:
        self.held = False

    def hold(self) -> None:
        assert not self.held
        self.held = True

    def release(self) -> None:
        self.held = False


def test_nobody_waits_below_the_limit() -> None:
    budget, peers = FrameBudget(100_000), [Peer() for _ in range(4)]
    for peer in peers:
        budget.reserve(peer, 25_000)
    assert (budget.used, budget.read_size) == (100_000, READ_SIZE)
    assert not any(peer.held for peer in peers)


def test_above_it_one_goes_on_and_the_others_wait_their_turn() -> None:
    budget, peers = FrameBudget(100_000), [Peer() for _ in range(4)]
    for peer in peers:
        budget.reserve(peer, 60_000)
    assert [peer.held for peer in peers] == [False, False, True, True]
    budget.reserve(peers[1], 120_000)  # the favoured one may grow
    assert not peers[1].held
    budget.reserve(peers[0], 0)
    assert [peer.held for peer in peers[2:]] == [True, True]
    budget.reserve(peers[1], 0)
    assert [peer.held for peer in peers[2:]] == [False, True]
    budget.reserve(peers[2], 0)
    assert budget.waiting == 0
    budget.reserve(peers[3], 0)
    assert (budget.used, budget.read_size) == (0, READ_SIZE)


def test_who_keeps_little_never_waits_and_is_counted() -> None:
    budget, hogs, others = FrameBudget(100_000), [Peer() for _ in range(2)], [Peer() for _ in range(20)]
    for hog in hogs:
        budget.reserve(hog, 60_000)
    for peer in others:
        budget.reserve(peer, LARGEST_SMALL_READ)
    assert not any(peer.held for peer in others)
    assert budget.used == 120_000 + 20 * LARGEST_SMALL_READ
    budget.reserve(others[0], LARGEST_SMALL_READ + 1)
    assert others[0].held


def test_who_has_finished_a_frame_lets_others_go_first() -> None:
    budget, peers = FrameBudget(100_000), [Peer() for _ in range(3)]
    for peer in peers:
        budget.reserve(peer, 60_000)
    assert [peer.held for peer in peers] == [False, False, True]
    # Its next frame begins in the same read, like requests sent in a row.
    budget.reserve(peers[1], 50_000, finished=True)
    assert [peer.held for peer in peers] == [False, True, False]
    # Bytes that TLS had decrypted arrive even from a held peer. When they complete the frame, the hold ends.
    budget.reserve(peers[1], 0, finished=True)
    assert not peers[1].held


def test_reads_are_the_smaller_the_more_connections_share_the_limit() -> None:
    budget, hog = FrameBudget(1_000_000), Peer()
    sizes = []
    for connections in (10, 100, 10_000):
        budget.set_connections(connections)
        assert budget.read_size == READ_SIZE
        budget.reserve(hog, 1_000_001)
        sizes.append(budget.read_size)
        budget.reserve(hog, 0)
    assert sizes == [LARGEST_SMALL_READ, 2500, SMALLEST_READ]


@pytest.mark.over_limit("maxHalfFrameBytes")
def test_all_frames_are_finished_in_the_end_and_memory_stays_bounded() -> None:
    rng = random.Random(5)
    for _ in range(50):
        budget = FrameBudget(1_000_000)
        wanted = {Peer(): rng.choice((64_000, 256_000, 512_000)) for _ in range(40)}
        budget.set_connections(len(wanted))
        sizes = dict.fromkeys(wanted, 0)
        most = 0
        while wanted:
            active = [peer for peer in wanted if not peer.held]
            assert active, "everyone waits"
            peer = rng.choice(active)
            if sizes[peer] >= wanted[peer]:
                del wanted[peer], sizes[peer]
                budget.reserve(peer, 0, finished=True)
                continue
            sizes[peer] = 2 * sizes[peer] or (16_000 if budget.read_size == READ_SIZE else budget.read_size)
            budget.reserve(peer, sizes[peer])
            most = max(most, budget.used)
        assert (budget.used, budget.waiting) == (0, 0)
        assert most <= 3 * 1_000_000 + 512_000


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_thousands_of_frames_that_stop_after_the_first_read_stay_within_the_bound(count: int) -> None:
    limit, body = 3_200 * count, b"h" * 100_000

    served: list[int] = []

    def processor(_connection: Connection, command: Command) -> Command:
        served.append(len(command.body))
        return command.reply(0)

    group = ConnectionGroup(processor, idle_timeout_s=0)
    group.budget.limit = limit
    group.start()
    frame = encode(Command(10, body=body))
    ends = [MemoryTransport(Connection(group)) for _ in range(count)]
    taken = [end.feed(frame[:READ_SIZE]) for end in ends]
    kept = reserved_bytes(group.connections)
    # All of it is counted. Reading from every peer would need 100 KB per connection.
    assert kept == group.budget.used
    assert limit < kept <= 3 * limit + len(frame)
    # Meanwhile, requests of a few hundred bytes are served, also in two pieces.
    small = encode(Command(10, body=b"s" * 300))
    for _ in range(2):
        MemoryTransport(Connection(group)).feed(small)
    newcomer = MemoryTransport(Connection(group))
    assert [newcomer.feed(piece) for piece in (small[:200], small[200:])] == [200, len(small) - 200]
    assert served == [300] * 3
    # When all peers continue, all frames arrive.
    left = list(range(count))
    served.clear()
    while left:
        before = len(left)
        for position in left[:]:
            taken[position] += ends[position].feed(frame[taken[position] :])
            assert group.budget.used <= 3 * limit + len(frame)
            if taken[position] == len(frame):
                left.remove(position)
        assert len(left) < before, "nobody gets on"
    assert served == [len(body)] * count
    assert (group.budget.used, group.budget.waiting) == (0, 0)
    await group.close()
