"""Clocks, which are passed as arguments so that tests can replace them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time. `tianzhou.testing` has a clock that tests advance."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch. It may step backwards."""
        ...

    def monotonic(self) -> float:
        """Return the monotonic time in seconds from an arbitrary start. It never steps backwards."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    # The function itself, without a wrapper: connections call it several times per read.
    monotonic = staticmethod(time.monotonic)
    """Return the monotonic time in seconds."""
