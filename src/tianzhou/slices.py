"""Long work in slices: a few items per turn of the event loop, so that the loop can serve other work in between.

`each_in_turns` is for coroutines, `in_turns` for generators that a coroutine awaits, `start_in_turns` for generators
without a waiter, and `NextTurn` combines many calls in one turn. Work that shares a budget of *time* with other
requests uses `tianzhou.remoting.turns`. Hot paths have their own flag instead of `NextTurn` (`Connection`,
`Dispatcher`, `Acknowledgements`), because a call per message is too expensive. So do heaps whose entries may end early
(`Watermark`, `TimerHeap`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def each_in_turns(items: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """Yield items one by one. After each `per_turn` items, wait for the next turn of the loop."""
    left = per_turn
    for item in items:
        if not left:
            await asyncio.sleep(0)
            left = per_turn
        left -= 1
        yield item


async def in_turns(steps: Generator[object, None, T]) -> T:
    """Advance a generator by one step per turn of the loop, and return its result."""
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
    """A callback in the next turn of the running loop, once for all requests in the present turn.

    Args:
        callback: the callback, which may request another call.

    Attributes:
        pending: whether the callback is due.
    """

    __slots__ = ("_callback", "pending")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.pending = False

    def ask(self) -> None:
        """Schedule the callback for the next turn of the loop."""
        if not self.pending:
            self.pending = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self.pending = False
        self._callback()
