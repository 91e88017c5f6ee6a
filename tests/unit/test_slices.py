"""Long work yields to the loop after a few items, and work requested many times in an iteration runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest

from tianzhou.slices import NextTurn, each_in_turns, in_turns, start_in_turns
from tianzhou.testing.virtual_loop import VirtualLoop


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


pytestmark = pytest.mark.runner.with_args(run)


class Turns:
    """Counts the iterations of the running loop."""

    def __init__(self) -> None:
        self.count = 0
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.mark.parametrize(
    ("count", "per_turn", "expected"),
    [(0, 2, []), (2, 2, [0, 0]), (5, 2, [0, 0, 1, 1, 2]), (3, 1, [0, 1, 2]), (3, 10, [0, 0, 0])],
)
async def test_items_come_so_many_a_turn_and_nothing_is_waited_for_after_the_last(
    count: int, per_turn: int, expected: list[int]
) -> None:
    turns = Turns()
    seen = [(item, turns.count) async for item in each_in_turns(iter(range(count)), per_turn)]
    assert seen == list(enumerate(expected))
    assert turns.count == max(expected, default=0)
    turns.stop()


def test_a_generator_takes_one_step_a_turn_and_its_result_or_error_comes_out() -> None:
    def steps(error: bool) -> Generator[None, None, str]:
        for _ in range(3):
            seen.append(turns.count)
            yield
        if error:
            raise ValueError("broken")
        return "done"

    seen: list[int] = []
    turns: Turns

    async def main() -> None:
        nonlocal turns
        turns = Turns()
        assert await in_turns(steps(error=False)) == "done"
        assert seen == [0, 1, 2]
        with pytest.raises(ValueError, match="broken"):
            await in_turns(steps(error=True))
        turns.stop()

    run(main())


def test_what_nobody_waits_for_begins_at_once_and_goes_on_in_later_turns() -> None:
    seen: list[int] = []

    def steps(turns: Turns) -> Iterator[None]:
        for _ in range(3):
            seen.append(turns.count)
            yield
        seen.append(-1)

    async def main() -> None:
        turns = Turns()
        start_in_turns(steps(turns))
        assert seen == [0]
        await asyncio.sleep(0)
        assert seen[:2] == [0, 1]
        for _ in range(4):
            await asyncio.sleep(0)
        assert seen == [0, 1, 2, -1]
        turns.stop()

    run(main())


async def test_many_calls_of_a_turn_become_one_in_the_next_and_the_callback_may_ask_again() -> None:
    calls: list[int] = []

    turns = Turns()

    def callback() -> None:
        assert not soon.pending
        calls.append(turns.count)
        if len(calls) == 1:
            soon.ask()

    soon = NextTurn(callback)
    for _ in range(5):
        soon.ask()
    assert soon.pending
    assert calls == []
    await asyncio.sleep(0)
    assert (calls, soon.pending) == ([1], True)
    await asyncio.sleep(0)
    assert (calls, soon.pending) == ([1, 2], False)
    soon.ask()
    await asyncio.sleep(0)
    assert calls == [1, 2, 3]
    turns.stop()
