"""Long tasks take turns with each other, and other work never waits for more than one of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from loops import run_bounded

from tianzhou.remoting.turns import CALLS_PER_TURN, SLICE_S, Pace, Slices, Turns

pytestmark = pytest.mark.runner.with_args(run_bounded)


async def test_the_allowance_of_a_turn_is_used_up_and_comes_back() -> None:
    turns = Turns(0.010)
    turns.spend(0.006)
    assert turns.free()
    turns.spend(0.006)
    assert not turns.free()
    await asyncio.sleep(0)
    assert turns.free()


@pytest.mark.parametrize(("cost_s", "in_a_turn"), [(0.5, 1), (0.003, 4), (0.0001, CALLS_PER_TURN)])
async def test_the_first_of_the_line_go_on_as_far_as_the_allowance_goes(cost_s: float, in_a_turn: int) -> None:
    turns = Turns(0.010)
    in_turn = [0]
    order: list[int] = []

    async def slow(number: int) -> None:
        await turns.turn()
        turns.spend(cost_s)
        in_turn[-1] += 1
        order.append(number)

    slow_ones = [asyncio.ensure_future(slow(number)) for number in range(2 * CALLS_PER_TURN)]
    while not all(one.done() for one in slow_ones):
        in_turn.append(0)
        await asyncio.sleep(0)
    await asyncio.gather(*slow_ones)
    assert max(in_turn) == in_a_turn
    assert order == list(range(2 * CALLS_PER_TURN))
    await asyncio.sleep(0)
    assert turns.free()


async def test_who_comes_later_is_served_later_however_slow_the_others_are() -> None:
    turns = Turns(0.010)
    order: list[int] = []

    async def slow(number: int) -> None:
        await turns.turn()
        turns.spend(1.0)
        order.append(number)

    tasks = [asyncio.ensure_future(slow(number)) for number in range(10)]
    for number in range(10, 40):
        await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(slow(number)))
    await asyncio.gather(*tasks)
    assert order == list(range(40))


async def test_nobody_overtakes_the_line() -> None:
    turns = Turns(0.010)
    grant = turns.wait()
    assert not turns.free()
    await grant
    assert not turns.free()
    assert turns.free(grant)
    assert turns.free()


async def test_who_went_away_keeps_nobody() -> None:
    turns = Turns(0.010)
    gone, called = turns.wait(), turns.wait()
    gone.cancel()
    await called
    # The work does not check again, but others still proceed.
    turns.spend(1.0)
    await turns.turn()
    assert turns.free()


class Ticking:
    """A clock whose seconds pass with each call."""

    def __init__(self, step_s: float = SLICE_S / 4) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def work(name: str, steps: int, done: list[str]) -> Slices[str]:
    for _ in range(steps):
        done.append(name)
        yield
    return name


async def test_little_work_is_done_at_once_and_much_in_slices() -> None:
    turns = Turns(0.010, Ticking())
    done: list[str] = []
    assert turns.sliced(work("a", 2, done)) == "a"
    rest = turns.sliced(work("b", 40, done))
    assert done.count("b") < 5
    assert not isinstance(rest, str)
    seen = []
    task = asyncio.ensure_future(rest)
    while not task.done():
        seen.append(done.count("b"))
        await asyncio.sleep(0)
    assert await task == "b"
    assert max(after - before for before, after in pairwise(seen)) < 5


async def test_what_began_first_ends_first_and_nothing_is_begun_meanwhile() -> None:
    turns = Turns(SLICE_S, Ticking())
    done: list[str] = []
    ended: list[str] = []

    async def slowly(name: str) -> None:
        ended.append(await turns.in_slices(work(name, 30, done)))

    tasks = [asyncio.ensure_future(slowly(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert turns.slow == 3
    later = turns.sliced(work("d", 1, done))
    assert "d" not in done
    assert not isinstance(later, str)
    assert await later == "d"
    await asyncio.gather(*tasks)
    assert ended == ["a", "b", "c"]
    assert turns.slow == 0
    assert turns.free() is False or turns.sliced(work("e", 1, done)) == "e"


async def test_who_takes_one_turn_goes_before_those_who_take_long() -> None:
    turns = Turns(SLICE_S, Ticking())
    done: list[str] = []
    slow = asyncio.ensure_future(turns.in_slices(work("slow", 1_000, done)))
    await asyncio.sleep(0)
    await turns.turn()
    assert 0 < len(done) < 50
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert turns.slow == 0


async def test_a_cancelled_wait_for_the_first_turn_is_no_work_that_goes_on() -> None:
    turns = Turns(0.010, Ticking())
    turns.spend(1.0)

    async def wait() -> None:
        async with Pace(turns):
            raise AssertionError("not its turn")

    task = asyncio.ensure_future(wait())
    turns.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert turns.slow == 0
