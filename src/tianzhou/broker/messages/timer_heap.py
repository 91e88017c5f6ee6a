"""Timer for many deadlines, of which a few expire in each turn of the event loop.

Thousands of long polls that began together would also end together and delay all other requests. A timer for each poll
would do that, so one timer serves all polls.
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
"""Seconds by which a loop may call a timer early, because loops count time in milliseconds."""


class Expiring(Protocol):
    """A wait with a deadline."""

    def expire(self) -> None:
        """End the wait, because its deadline has passed; must not raise."""


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
        # Cache the loop, because `get_running_loop` calls getpid, which costs each pull a microsecond.
        if self._running is None:
            self._running = asyncio.get_running_loop()
        return self._running

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: Expiring, seconds: float) -> None:
        """Call `wait.expire()` once after `seconds`, unless it is removed before."""
        self._put(wait, self._loop.time() + seconds)

    def expire_now(self, waits: Iterable[Expiring]) -> None:
        """Expire waits in the next turns before all others; ignore waits that have ended."""
        now = self._loop.time()
        for wait in waits:
            if self._waits.get(wait, 0.0) > now:
                self._put(wait, 0.0)

    def remove(self, wait: Expiring) -> None:
        """Drop a wait that has ended."""
        self._waits.pop(wait, None)
        if len(self._heap) > 2 * len(self._waits) + EXPIRIES_PER_TURN:
            # Change the list in place, because an expiring wait may remove itself while `_run` iterates.
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
            # Arm the timer even after an exception, because other deadlines have passed too.
            if heap:
                self._arm(heap[0][0])
