"""Who takes long waits for others who do, and never makes anybody else wait for more than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tianzhou.remoting.turns import AT_ONCE, Turns


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await body()

    asyncio.run(main())


def test_the_allowance_of_a_turn_is_used_up_and_comes_back() -> None:
    async def body() -> None:
        turns = Turns(0.010)
        turns.spend(0.006)
        assert turns.free()
        turns.spend(0.006)
        assert not turns.free()
        await asyncio.sleep(0)
        assert turns.free()

    run(body)


@pytest.mark.parametrize(("cost_s", "in_a_turn"), [(0.5, 1), (0.003, 4), (0.0001, AT_ONCE)])
def test_the_first_of_the_line_go_on_as_far_as_the_allowance_goes(cost_s: float, in_a_turn: int) -> None:
    async def body() -> None:
        turns = Turns(0.010)
        in_turn = [0]
        order: list[int] = []

        async def slow(number: int) -> None:
            await turns.turn()
            turns.spend(cost_s)
            in_turn[-1] += 1
            order.append(number)

        slow_ones = [asyncio.ensure_future(slow(number)) for number in range(2 * AT_ONCE)]
        while not all(one.done() for one in slow_ones):
            in_turn.append(0)
            await asyncio.sleep(0)
        await asyncio.gather(*slow_ones)
        assert max(in_turn) == in_a_turn
        assert order == list(range(2 * AT_ONCE))
        await asyncio.sleep(0)
        assert turns.free()

    run(body)


def test_who_comes_later_is_served_later_however_slow_the_others_are() -> None:
    async def body() -> None:
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

    run(body)


def test_nobody_overtakes_the_line() -> None:
    async def body() -> None:
        turns = Turns(0.010)
        grant = turns.wait()
        assert not turns.free()
        await grant
        assert not turns.free()
        assert turns.free(grant)
        assert turns.free()

    run(body)


def test_who_went_away_keeps_nobody() -> None:
    async def body() -> None:
        turns = Turns(0.010)
        gone, called = turns.wait(), turns.wait()
        gone.cancel()
        await called
        # It does not look again: others go on all the same.
        turns.spend(1.0)
        await turns.turn()
        assert turns.free()

    run(body)
