"""The one waiting primitive: a number that only grows, and those who wait for it to pass a mark.

Sync flush is `flushed.reach(end)`, a quorum is `committed.reach(end)`, a long poll is
`arrived.reach(offset + 1)` under a deadline. A parked request *is* its coroutine: cancelling it forgets it.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class Watermark:
    """A monotonic number with waiters; owned by one event loop, not thread-safe.

    Args:
        value: where it starts.
    """

    __slots__ = ("_error", "_gone", "_sequence", "_waiters", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._gone = 0  # how many of the waiters were cancelled
        self._sequence = count()
        self._error: BaseException | None = None

    @property
    def waiting(self) -> int:
        """How many waiters are parked (cancelled ones count until the mark passes them)."""
        return len(self._waiters)

    def advance(self, value: int) -> None:
        """Raise the mark to `value` and wake everyone it passes; nothing happens for a smaller one, or after `fail`."""
        if value <= self.value or self._error is not None:
            return
        self.value = value
        waiters = self._waiters
        while waiters and waiters[0][0] <= value:
            future = heapq.heappop(waiters)[2]
            if future.done():
                self._gone -= 1
            else:
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Make every present and future wait above the present value raise `error`: the mark will not move again."""
        self._error = error
        waiters, self._waiters = self._waiters, []
        self._gone = 0
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(error)

    async def reach(self, value: int) -> None:
        """Return once the mark is at or above `value`.

        Raises:
            BaseException: what `fail` was given, when the mark can no longer get there.
        """
        if self.value >= value:
            return
        if self._error is not None:
            raise self._error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (value, next(self._sequence), future))
        try:
            await future
        finally:
            if future.cancelled():
                self._forget_cancelled()

    def _forget_cancelled(self) -> None:
        # Looking through all waiters at every cancellation would be quadratic when many long polls time out.
        self._gone += 1
        waiters = self._waiters
        if self._gone * 2 >= len(waiters):
            self._waiters = [w for w in waiters if not w[2].done()]
            self._gone = 0
            heapq.heapify(self._waiters)
