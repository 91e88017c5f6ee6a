"""Long work in slices: a few items per turn of the event loop, so that the loop serves others in between.

`each_in_turns` is for coroutines, `in_turns` for generators a coroutine waits for, `start_in_turns` for generators
nobody waits for, and `NextTurn` joins many calls of one turn into one. Work that shares an allowance of *time* with
other requests takes `tianzhou.remoting.turns`. Hot paths keep a flag of their own for what `NextTurn` does
(`Connection`, `Dispatcher`, `Acknowledgements`): a call per message is what they would pay. So do the heaps whose
entries end meanwhile (`Watermark`, `TimerHeap`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def each_in_turns(items: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """Items one by one, the next turn of the loop beginning after each `per_turn` of them."""
    left = per_turn
    for item in items:
        if not left:
            await asyncio.sleep(0)
            left = per_turn
        left -= 1
        yield item


async def in_turns(steps: Generator[object, None, T]) -> T:
    """Result of a generator that is advanced one step per turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def start_in_turns(steps: Iterator[object]) -> None:
    """Advance an iterator to its first step now, and one step further in each later turn of the running loop."""
    for _ in steps:
        asyncio.get_running_loop().call_soon(start_in_turns, steps)
        return


class NextTurn:
    """A callback in the next turn of the running loop, once for all who requested it in this one.

    Args:
        callback: may ask again.

    Attributes:
        pending: whether the callback is due.
    """

    __slots__ = ("_callback", "pending")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.pending = False

    def ask(self) -> None:
        """Have the callback called in the next turn of the loop."""
        if not self.pending:
            self.pending = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self.pending = False
        self._callback()
