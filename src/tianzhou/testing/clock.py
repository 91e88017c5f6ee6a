"""A clock that moves only by `advance`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_700_000_000_000


class VirtualClock:
    """A `tianzhou.clock.Clock` for tests: wall-clock and monotonic time stand still until `advance`.

    Args:
        now_ms: initial wall-clock time, ms since the epoch.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._start_ms = now_ms
        self._seconds = 0.0

    def now_ms(self) -> int:
        """Return the wall-clock time, milliseconds since the epoch."""
        return self._start_ms + round(self._seconds * 1000)

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Advance the time; timers of a running loop fire only under `run_virtual`."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s; use step_wall_clock for the wall clock")
        self._seconds += seconds

    def step_wall_clock(self, milliseconds: int) -> None:
        """Set the wall clock forwards or backwards, as an administrator would; monotonic time does not change."""
        self._start_ms += milliseconds


def run(main: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """Run `tianzhou.testing.run_virtual`, by default with a clock that starts at `START_MS`."""
    from tianzhou.testing.virtual_loop import run_virtual

    return run_virtual(main, clock or VirtualClock())
