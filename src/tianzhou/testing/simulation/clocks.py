"""The clock of a simulated machine: monotonic time is the loop's, and the wall clock can be set."""

from __future__ import annotations

from typing import Final

from tianzhou.testing.simulation.loop import SimulationLoop

START_MS: Final = 1_700_000_000_000


class MachineClock:
    """A `tianzhou.clock.Clock`.

    Args:
        loop: its time is the monotonic one.
        ahead_ms: ms that the wall clock is ahead of other machines.
    """

    def __init__(self, loop: SimulationLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._start_ms = START_MS + ahead_ms
        # Connections read the clock several times for each read.
        self.monotonic = loop.time
        """Seconds of the loop."""

    def now_ms(self) -> int:
        """Return the wall-clock time, milliseconds since the epoch."""
        return self._start_ms + round(self._loop.time() * 1000)

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forwards or backwards; monotonic time does not change."""
        self._start_ms += milliseconds
