"""Time as a value that is passed in, so that tests can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two readings of time the system takes; `tianzhou.testing` has one that only moves when told."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch; may step backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps backwards."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    # The function itself: connections ask several times for each read.
    monotonic = staticmethod(time.monotonic)
    """Seconds of the monotonic clock."""
