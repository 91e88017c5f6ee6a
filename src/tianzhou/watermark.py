"""Watermark, the one waiting primitive: a number that only grows, and futures done when it reaches a value.

Sync flush is `flushed.reach(end)`, a quorum is `committed.reach(end)`, a long poll is
`arrived.wait(offset + 1, pull)` under a deadline. A parked request *is* its coroutine: cancelling it forgets it.
Where a coroutine each is too much, `reached` returns the future that `reach` awaits; where a future is too much, as
for long polls, `wait` takes a waiter of the caller's own.

Thousands may wait for the same mark. They are woken a few in each turn of the loop, the longest waiting first, so
that the loop serves others in between.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import Final, Protocol

WAKES_PER_TURN: Final = 32
"""Maximum waiters woken per loop turn, each of which may read and send a page or more."""


class Waiter(Protocol):
    """Who waits for a mark; futures are such waiters."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, result: None, /) -> None:
        """The mark has come there. It must not raise."""

    def set_exception(self, exception: BaseException, /) -> None:
        """The mark will not come there. It must not raise."""


class Watermark:
    """A monotonic number with waiters; owned by one event loop, not thread-safe.

    Args:
        value: where it starts.
    """

    __slots__ = ("_error", "_gone", "_sequence", "_waiters", "_waking", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._gone = 0  # how many of the waiters were cancelled
        self._waking = False  # the next turn of the loop goes on with waking
        self._sequence = count()
        self._error: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Number of parked waiters (cancelled ones count until the mark passes them)."""
        return len(self._waiters)

    def advance(self, value: int) -> None:
        """Raise the mark to `value` and wake everyone it passes; nothing happens for a smaller one, or after `fail`."""
        if value <= self.value or self._error is not None:
            return
        self.value = value
        if self._waiters and not self._waking:
            self._wake()

    def fall_back(self, value: int) -> None:
        """Lower the mark to `value`: what was measured has been cut off, as an end of a log that its group has not.

        Who has been woken for it was told the truth at that time. Nothing happens for a larger one.
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
                # Behind those just woken, which the loop gets to first.
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake)
                return
            heapq.heappop(waiters)

    def fail(self, error: BaseException) -> None:
        """Make every present and future wait above the present value raise `error`: the mark will not move again."""
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
        """Return once the mark is at or above `value`.

        Raises:
            BaseException: the error of `fail`, when the mark can no longer get there.
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
        """Future that is done once the mark is at or above `value`, or has failed; `forget` it to wait no longer."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wait(value, future)
        return future

    def wait(self, value: int, waiter: Waiter) -> None:
        """Tell `waiter` once the mark is at or above `value`, or has failed; at once when it is there already.

        Args:
            value: what it waits for.
            waiter: when its `done` becomes true before that, `left` has to be called.
        """
        if self.value >= value:
            waiter.set_result(None)
        elif self._error is not None:
            waiter.set_exception(self._error)
        else:
            heapq.heappush(self._waiters, (value, next(self._sequence), waiter))

    def forget(self, future: asyncio.Future[None]) -> None:
        """Cancel a future of `reached`; nothing happens when it is done."""
        if future.cancel():
            self.left()

    def left(self) -> None:
        """One that waited does so no longer, as its `done` says."""
        # Looking through all waiters at every cancellation would be quadratic when many long polls time out.
        self._gone += 1
        waiters = self._waiters
        if self._gone * 2 >= len(waiters):
            self._waiters = [w for w in waiters if not w[2].done()]
            self._gone = 0
            heapq.heapify(self._waiters)
