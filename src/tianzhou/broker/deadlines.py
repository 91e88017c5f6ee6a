"""Ends waits whose time is up, a few in each turn of the loop.

Thousands of long polls that began together would end together, and hold up everyone else for as long as their answers
take. A timer each would do that; here one timer serves them all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from itertools import count
from typing import Final

AT_ONCE: Final = 32
"""So many waits end in one turn of the loop."""
_EARLY_S: Final = 0.001
"""Loops count time in milliseconds, and may call that much too early."""


class Deadlines:
    """The waits of one event loop and when they end; the earliest first, and of two the one that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, asyncio.Timeout]] = []
        self._waits: dict[asyncio.Timeout, float] = {}
        self._sequence = count()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Have a timeout, which was entered without a time of its own, run out after so many seconds.

        Who adds one drops it before it is left.
        """
        self._put(limit, asyncio.get_running_loop().time() + seconds)

    def hurry(self, limits: Iterable[asyncio.Timeout]) -> None:
        """Have timeouts run out now, before all others; one that has run out is not meant."""
        now = asyncio.get_running_loop().time()
        for limit in limits:
            if self._waits.get(limit, 0.0) > now:
                self._put(limit, 0.0)

    def drop(self, limit: asyncio.Timeout) -> None:
        """A wait is over, whichever way."""
        self._waits.pop(limit, None)
        if len(self._heap) > 2 * len(self._waits) + AT_ONCE:
            self._heap = [entry for entry in self._heap if self._waits.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _put(self, limit: asyncio.Timeout, when: float) -> None:
        self._waits[limit] = when
        heapq.heappush(self._heap, (when, next(self._sequence), limit))
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(when, self._run) if when > loop.time() else loop.call_soon(self._run)

    def _run(self) -> None:
        self._timer = None
        heap, waits = self._heap, self._waits
        now = asyncio.get_running_loop().time() + _EARLY_S
        left = AT_ONCE
        while heap:
            when, _, limit = heap[0]
            if waits.get(limit) == when:
                if when > now or not left:
                    self._arm(when)
                    return
                left -= 1
                del waits[limit]
                limit.reschedule(0.0)
            heapq.heappop(heap)
