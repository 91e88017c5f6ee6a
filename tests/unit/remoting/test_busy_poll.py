"""A loop stays awake for a peer with one request in flight, and for no other peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import cast

import pytest

from tianzhou.remoting.busy_poll import MAX_POLLS, STREAK, BusyPoll
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode

BUSY_POLL_S = 0.000150
QUICK_S = 0.000060
TURN_S = 0.000003


class Turns:
    """The part of a loop that `BusyPoll` uses: callbacks of the next iteration, each of `TURN_S`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[Callable[[], None]] = []
        self.busy_poll = BusyPoll(cast("asyncio.AbstractEventLoop", self), lambda: self.now, BUSY_POLL_S)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def until_asleep(self, *, turn_s: float = TURN_S) -> int:
        """Return the number of iterations until the loop would sleep."""
        turns = 0
        while self.due:
            due, self.due = self.due, []
            for callback in due:
                callback()
            self.now += turn_s
            turns += 1
        return turns

    def asks(self, peer: str = "a", gap_s: float = QUICK_S) -> None:
        self.now += gap_s
        self.busy_poll.requested(peer, gap_s)


def awake_for(peer: str = "a") -> Turns:
    turns = Turns()
    for _ in range(STREAK + 1):
        turns.asks(peer)
        assert not turns.due
    turns.asks(peer)
    return turns


def test_it_waits_for_who_requested_quickly_a_few_times() -> None:
    turns = awake_for()
    assert turns.until_asleep() == pytest.approx(BUSY_POLL_S / TURN_S, abs=2)


def test_a_request_meanwhile_prolongs_it_by_no_second_call_each_turn() -> None:
    turns = awake_for()
    turns.asks()
    assert len(turns.due) == 1
    turns.until_asleep()
    turns.asks()
    assert len(turns.due) == 1


def test_who_once_took_longer_has_to_earn_it_again() -> None:
    turns = awake_for()
    turns.until_asleep()
    turns.asks(gap_s=BUSY_POLL_S * 1.1)
    for _ in range(STREAK):
        turns.asks()
        assert not turns.due
    turns.asks()
    assert turns.due


def test_nobody_is_waited_for_while_two_take_turns() -> None:
    turns = Turns()
    for _ in range(50):
        turns.asks("a")
        turns.asks("b")
    assert not turns.due


def test_nobody_is_waited_for_while_another_waits_for_its_reply() -> None:
    turns = Turns()
    for _ in range(50):
        turns.asks("a")
        turns.busy_poll.requested("b", inf)
    assert not turns.due


def test_a_peer_that_left_is_not_waited_for() -> None:
    turns = awake_for()
    turns.busy_poll.left("b")
    assert turns.due
    turns.busy_poll.left("a")
    assert turns.until_asleep() == 1


def test_it_ends_when_the_clock_stands_still() -> None:
    assert awake_for().until_asleep(turn_s=0) == MAX_POLLS + 1


class WorkerReport:
    """A fake `BusyPoll` that records the calls of connections."""

    def __init__(self) -> None:
        self.gaps: list[float] = []

    def requested(self, _peer: object, gap_s: float) -> None:
        self.gaps.append(round(gap_s, 6))

    def left(self, _peer: object) -> None:
        self.gaps.append(-1)


async def test_connections_note_how_soon_their_peers_request_again() -> None:
    clock, told, promised = VirtualClock(), WorkerReport(), DeferredReply()

    def answer(_connection: Connection, command: Command) -> Command | DeferredReply:
        return promised if command.opaque == 1 else command.reply(0)

    group = ConnectionGroup(answer, busy_poll_s=BUSY_POLL_S, idle_timeout_s=0, clock=clock)
    group.start()
    group.busy_poll = cast("BusyPoll", told)
    connection = Connection(group)
    transport = MemoryTransport(connection, ("10.1.2.3", 4567))
    for opaque, gap_s in enumerate((0.25, 0.5, 1.0)):
        clock.advance(gap_s)
        transport.feed(encode(Command(10, opaque=opaque)))
    connection.abort()
    await asyncio.sleep(0)
    await group.close()
    assert told.gaps == [0.25, inf, 1.5, -1]


async def test_a_group_lingers_only_on_request() -> None:
    for busy_poll_s, lingers in ((0.0, False), (BUSY_POLL_S, True)):
        group = ConnectionGroup(busy_poll_s=busy_poll_s, idle_timeout_s=0)
        group.start()
        assert (group.busy_poll is not None) is lingers
