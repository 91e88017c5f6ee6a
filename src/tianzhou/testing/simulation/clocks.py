"""The clock of a simulated machine: it goes with the loop, and its hands may be set."""

from __future__ import annotations

from typing import Final

from tianzhou.testing.simulation.loop import SimulationLoop

START_MS: Final = 1_700_000_000_000


class MachineClock:
    """A `tianzhou.clock.Clock`.

    Args:
        loop: its time is the monotonic one.
        ahead_ms: how far the wall clock is ahead of the other machines'.
    """

    def __init__(self, loop: SimulationLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._start_ms = START_MS + ahead_ms
        # Connections ask several times for each read.
        self.monotonic = loop.time
        """Seconds of the loop."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        return self._start_ms + round(self._loop.time() * 1000)

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forwards or backwards; monotonic time is untouched."""
        self._start_ms += milliseconds
