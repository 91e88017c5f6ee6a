"""A watermark, the common primitive for waiting: a number that only grows, and waiters for values of it.

Sync flush is `flushed.reach(end)`, a quorum is `committed.reach(end)`, a long poll is `arrived.wait(offset + 1, pull)`
with a deadline. A coroutine in `reach` stops waiting when it is cancelled. Where a coroutine per waiter is too
expensive, `reached` returns the future that `reach` awaits. Where a future is too expensive, as for long polls, `wait`
takes the caller's own waiter.

Thousands of waiters may wait for the same value. Each turn of the loop wakes a few of them, in the order of their
arrival, so that the loop can serve other work in between.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import Final, Protocol

WAKES_PER_TURN: Final = 32
"""Maximum number of waiters woken per turn of the loop, each of which may read and send a page or more."""


class Waiter(Protocol):
    """A waiter for a value of the watermark, such as a future."""

    def done(self) -> bool:
        """Whether it no longer waits."""

    def set_result(self, result: None, /) -> None:
        """Report that the watermark has reached the value. Must not raise."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report that the watermark will not reach the value. Must not raise."""


class Watermark:
    """A monotonic number with waiters. It belongs to one event loop and is not thread-safe.

    Args:
        value: the initial value.
    """

    __slots__ = ("_error", "_gone", "_sequence", "_waiters", "_waking", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._gone = 0  # number of cancelled waiters in the heap
        self._waking = False  # whether the next turn of the loop continues waking
        self._sequence = count()
        self._error: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Number of waiters. Cancelled ones count until they are removed."""
        return len(self._waiters)

    def advance(self, value: int) -> None:
        """Raise the watermark to `value`, and wake all waiters up to it.

        Ignore a smaller value, and any value after `fail`.
        """
        if value <= self.value or self._error is not None:
            return
        self.value = value
        if self._waiters and not self._waking:
            self._wake()

    def fall_back(self, value: int) -> None:
        """Lower the watermark to `value`, because the measured data was truncated, such as an uncommitted end of a log.

        Waiters that have been woken stay woken. A larger value is ignored.
        """
        self.value = min(self.value, value)

    def _wake(self) -> None:
        self._waking = False
        waiters, value = self._waiters, self.value
        left = WAKES_PER_TURN
        while waiters and waiters[0][0] <= value:
            waiter = waiters[0][2]
            if waiter.done():
                self._gone -= 1
            elif left:
                waiter.set_result(None)
                left -= 1
            else:
                # Schedule behind the waiters just woken, which the loop runs first.
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake)
                return
            heapq.heappop(waiters)

    def fail(self, error: BaseException) -> None:
        """Make all present and future waits for larger values raise `error`. The watermark will not rise any more."""
        self._error = error
        waiters, self._waiters = self._waiters, []
        self._gone = 0
        for value, _, waiter in waiters:
            if waiter.done():
                continue
            if value <= self.value:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def reach(self, value: int) -> None:
        """Wait until the watermark is at or above `value`.

        Raises:
            BaseException: the error of `fail`, when the watermark cannot reach the value any more.
        """
        if self.value >= value:
            return
        future = self.reached(value)
        try:
            await future
        finally:
            if future.cancelled():
                self.left()

    def reached(self, value: int) -> asyncio.Future[None]:
        """Return a future that is done when the watermark reaches `value` or fails. `forget` cancels it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(value, future)
        return future

    def wait(self, value: int, waiter: Waiter) -> None:
        """Notify `waiter` when the watermark is at or above `value`, or has failed; at once if it already is.

        Args:
            value: the awaited value.
            waiter: the waiter; when its `done` becomes true earlier, call `left`.
        """
        if self.value >= value:
            waiter.set_result(None)
        elif self._error is not None:
            waiter.set_exception(self._error)
        else:
            heapq.heappush(self._waiters, (value, next(self._sequence), waiter))

    def forget(self, future: asyncio.Future[None]) -> None:
        """Cancel a future of `reached`. A done future is ignored."""
        if future.cancel():
            self.left()

    def left(self) -> None:
        """Count a waiter whose `done` has become true before its value was reached."""
        # Removing each cancelled waiter by a search would be quadratic when many long polls time out.
        self._gone += 1
        waiters = self._waiters
        if self._gone * 2 >= len(waiters):
            self._waiters = [w for w in waiters if not w[2].done()]
            self._gone = 0
            heapq.heapify(self._waiters)
