"""Waits that end together end a few a turn, in order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tianzhou.broker.messages.timer_heap import EXPIRIES_PER_TURN, TimerHeap
from tianzhou.testing.virtual_loop import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)


class Limit:
    """Ends the coroutine that is within it when its time is up."""

    def __init__(self) -> None:
        self.timeout = asyncio.timeout(None)

    def expire(self) -> None:
        self.timeout.reschedule(0.0)


class Waits:
    """Coroutines that wait until their time."""

    def __init__(self) -> None:
        self.deadlines = TimerHeap()
        self.limits: dict[int, Limit] = {}
        self.ended: list[tuple[int, float]] = []
        self.done: list[int] = []

    async def wait(self, number: int, seconds: float, enough: asyncio.Event | None = None) -> None:
        limit = Limit()
        try:
            async with limit.timeout:
                self.limits[number] = limit
                self.deadlines.add(limit, seconds)
                await (enough or asyncio.Event()).wait()
                self.done.append(number)
        except TimeoutError:
            self.ended.append((number, round(asyncio.get_running_loop().time(), 3)))
        finally:
            self.deadlines.remove(limit)


async def test_each_ends_at_its_time() -> None:
    waits = Waits()
    now = asyncio.get_running_loop().time()
    await asyncio.gather(waits.wait(1, 3), waits.wait(2, 1), waits.wait(3, 2), waits.wait(4, 0))
    assert [number for number, _ in waits.ended] == [4, 2, 3, 1]
    for (_, at), seconds in zip(waits.ended, (0, 1, 2, 3), strict=True):
        assert abs(at - now - seconds) <= 0.002
    assert len(waits.deadlines) == 0


async def test_thousands_that_end_together_end_a_few_a_turn_in_order() -> None:
    waits, loop, turn = Waits(), asyncio.get_running_loop(), 0
    ended_in: list[int] = []

    def tick() -> None:
        nonlocal turn
        turn += 1
        if len(ended_in) < 2_000:
            loop.call_soon(tick)

    async def wait(number: int) -> None:
        await waits.wait(number, 5)
        if not ended_in:
            loop.call_soon(tick)
        ended_in.append(turn)

    await asyncio.gather(*(wait(number) for number in range(2_000)))
    assert [number for number, _ in waits.ended] == list(range(2_000))
    assert max(Counter(ended_in).values()) <= EXPIRIES_PER_TURN
    assert turn >= 2_000 // EXPIRIES_PER_TURN - 2


async def test_who_is_hurried_ends_before_the_others_and_who_is_done_does_not_end() -> None:
    waits, enough = Waits(), asyncio.Event()
    tasks = [asyncio.create_task(waits.wait(number, 10, enough if number == 0 else None)) for number in range(4)]
    await asyncio.sleep(1)
    enough.set()
    await asyncio.sleep(0)
    waits.deadlines.expire_now([waits.limits[0], waits.limits[3], waits.limits[2]])
    waits.deadlines.expire_now([waits.limits[3]])
    await asyncio.wait(tasks[2:])
    assert asyncio.get_running_loop().time() < 5
    assert [number for number, _ in waits.ended] == [3, 2]
    await asyncio.wait(tasks)
    assert [number for number, _ in waits.ended] == [3, 2, 1]
    assert waits.done == [0]


async def test_what_is_over_takes_no_memory() -> None:
    deadlines = TimerHeap()
    deadlines.add(Limit(), 3600)
    for _ in range(1_000):
        limit = Limit()
        deadlines.add(limit, 1800)
        deadlines.remove(limit)
    assert len(deadlines) == 1
    assert len(deadlines._heap) <= EXPIRIES_PER_TURN + 3


def test_waits_that_drop_themselves_as_they_end_leave_the_later_ones_to_their_times() -> None:
    class Dropped:
        def __init__(self, number: int) -> None:
            self.number = number

        def expire(self) -> None:
            deadlines.remove(self)
            ended.append((self.number, round(asyncio.get_running_loop().time() - began)))

    deadlines = TimerHeap()
    ended: list[tuple[int, int]] = []
    began = 0.0

    async def main() -> None:
        nonlocal began
        began = asyncio.get_running_loop().time()
        for number in range(500):
            deadlines.add(Dropped(number), 1)
        deadlines.add(Dropped(500), 3)
        deadlines.add(Dropped(501), 2)
        await asyncio.sleep(4)
        assert ended == [*((number, 1) for number in range(500)), (501, 2), (500, 3)]
        assert len(deadlines) == 0

    run_virtual(main())
