"""One timer for many deadlines, which expire a few per loop turn.

Thousands of long polls that began together would end together, and hold up everyone else for as long as their answers
take. A timer each would do that; here one timer serves them all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from itertools import count
from typing import Final, Protocol

EXPIRIES_PER_TURN: Final = 32
"""Maximum deadlines that expire per loop turn."""
_EARLY_S: Final = 0.001
"""How early a loop may call a timer: loops count time in milliseconds."""


class Expiring(Protocol):
    """Something with a deadline."""

    def expire(self) -> None:
        """The deadline has passed. It must not raise."""


class TimerHeap:
    """Deadlines of one event loop, the earliest first, equal ones in the order they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Expiring]] = []
        self._waits: dict[Expiring, float] = {}
        self._sequence = count()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._running: asyncio.AbstractEventLoop | None = None

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # Asking for the running loop asks the system for the process's number: a microsecond for each pull.
        if self._running is None:
            self._running = asyncio.get_running_loop()
        return self._running

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: Expiring, seconds: float) -> None:
        """Call `wait.expire()` once after `seconds`, unless it is removed before."""
        self._put(wait, self._loop.time() + seconds)

    def expire_now(self, waits: Iterable[Expiring]) -> None:
        """Expire waits in the next turns, before all others; those that have ended are passed over."""
        now = self._loop.time()
        for wait in waits:
            if self._waits.get(wait, 0.0) > now:
                self._put(wait, 0.0)

    def remove(self, wait: Expiring) -> None:
        """Forget a wait that has ended."""
        self._waits.pop(wait, None)
        if len(self._heap) > 2 * len(self._waits) + EXPIRIES_PER_TURN:
            # In place: `_run` walks it when a wait that expires removes itself.
            self._heap[:] = [entry for entry in self._heap if self._waits.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _put(self, wait: Expiring, when: float) -> None:
        self._waits[wait] = when
        heapq.heappush(self._heap, (when, next(self._sequence), wait))
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        loop = self._loop
        self._timer = loop.call_at(when, self._run) if when > loop.time() else loop.call_soon(self._run)

    def _run(self) -> None:
        self._timer = None
        heap, waits = self._heap, self._waits
        now = self._loop.time() + _EARLY_S
        left = EXPIRIES_PER_TURN
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
                    wait.expire()
        finally:
            # Also when one of them raised all the same: the others' time is up, too.
            if heap:
                self._arm(heap[0][0])
