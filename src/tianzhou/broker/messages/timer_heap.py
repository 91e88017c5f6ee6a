"""Ends waits whose time is up, a few in each turn of the loop.

Thousands of long polls that began together would end together, and hold up everyone else for as long as their answers
take. A timer each would do that; here one timer serves them all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from itertools import count
from typing import Final, Protocol

AT_ONCE: Final = 32
"""So many waits end in one turn of the loop."""
_EARLY_S: Final = 0.001
"""Loops count time in milliseconds, and may call that much too early."""


class Wait(Protocol):
    """Something that ends when its time is up."""

    def time_up(self) -> None:
        """End now. It must not raise."""


class Deadlines:
    """The waits of one event loop and when they end; the earliest first, and of two the one that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Wait]] = []
        self._waits: dict[Wait, float] = {}
        self._sequence = count()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: Wait, seconds: float) -> None:
        """Have a wait told after so many seconds that its time is up, once, unless it was dropped before."""
        self._put(wait, asyncio.get_running_loop().time() + seconds)

    def hurry(self, waits: Iterable[Wait]) -> None:
        """Have waits end now, before all others; one that has ended is not meant."""
        now = asyncio.get_running_loop().time()
        for wait in waits:
            if self._waits.get(wait, 0.0) > now:
                self._put(wait, 0.0)

    def drop(self, wait: Wait) -> None:
        """A wait is over, whichever way."""
        self._waits.pop(wait, None)
        if len(self._heap) > 2 * len(self._waits) + AT_ONCE:
            # In place: `_run` is at work on it when this is the end of a wait that it has told.
            self._heap[:] = [entry for entry in self._heap if self._waits.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _put(self, wait: Wait, when: float) -> None:
        self._waits[wait] = when
        heapq.heappush(self._heap, (when, next(self._sequence), wait))
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
        try:
            while heap:
                when, _, wait = heap[0]
                valid = waits.get(wait) == when
                if valid and (when > now or not left):
                    return
                heapq.heappop(heap)
                if valid:
                    left -= 1
                    del waits[wait]
                    wait.time_up()
        finally:
            # Also when one of them raised all the same: the others' time is up, too.
            if heap:
                self._arm(heap[0][0])
