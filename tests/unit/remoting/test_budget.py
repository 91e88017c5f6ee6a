"""Memory for half-received frames is shared out so that somebody always gets on."""

from __future__ import annotations

import random

from tianzhou.remoting.budget import FrameBudget


class Peer:
    def __init__(self) -> None:
        self.held = False

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


def test_nobody_waits_below_the_limit() -> None:
    budget, peers = FrameBudget(100), [Peer() for _ in range(4)]
    for peer in peers:
        budget.resized(peer, 25)
    assert budget.used == 100
    assert not any(peer.held for peer in peers)


def test_above_it_one_goes_on_and_the_others_wait_their_turn() -> None:
    budget, peers = FrameBudget(100), [Peer() for _ in range(4)]
    for peer in peers:
        budget.resized(peer, 60)
    assert [peer.held for peer in peers] == [False, False, True, True]
    budget.resized(peers[1], 120)  # the favoured one may grow
    assert not peers[1].held
    budget.resized(peers[0], 0)
    assert [peer.held for peer in peers[2:]] == [True, True]
    budget.resized(peers[1], 0)
    assert [peer.held for peer in peers[2:]] == [False, True]
    budget.resized(peers[2], 0)
    assert budget.waiting == 0
    budget.resized(peers[3], 0)
    assert budget.used == 0


def test_all_frames_are_finished_in_the_end_and_memory_stays_bounded() -> None:
    rng = random.Random(5)
    for _ in range(50):
        budget = FrameBudget(1000)
        wanted = {Peer(): rng.choice((64, 256, 512)) for _ in range(40)}
        sizes = dict.fromkeys(wanted, 0)
        most = 0
        while wanted:
            active = [peer for peer in wanted if not peer.held]
            assert active, "everyone waits"
            peer = rng.choice(active)
            if sizes[peer] >= wanted[peer]:
                del wanted[peer], sizes[peer]
                budget.resized(peer, 0)
                continue
            sizes[peer] = max(16, 2 * sizes[peer])
            budget.resized(peer, sizes[peer])
            most = max(most, budget.used)
        assert budget.used == 0
        assert most <= 2 * 1000 + 512 + 40 * 16
