"""Clocks, passed in as arguments so that tests can replace them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time; `tianzhou.testing` has a clock that tests advance."""

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
