"""Metrics of this process: processor time, memory, descriptors, and the lag of its event loop."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

from tianzhou.metrics.families import Family, Histogram, Kind, Steps, counter, gauge

TICK_S: Final = 0.1
"""Seconds between two measurements of the loop's lag."""
LAG_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_STARTED_S: Final = time.time()


class LoopLag:
    """Lag of the running loop: how late it serves a timer, measured ten times a second.

    Attributes:
        histogram: lags in seconds.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(LAG_BOUNDS_S)
        self._longest_s = 0.0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring, in the running loop."""
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick, loop)

    def close(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        late_s = max(now - self._due_s, 0.0)
        self.histogram.note(late_s)
        self._longest_s = max(self._longest_s, late_s)
        self._due_s = now + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick, loop)

    def steps(self) -> Steps:
        """Yield the families of the lag. Each call resets the longest lag."""
        found = Family("tianzhou_loop_lag_seconds", Kind.HISTOGRAM, "How late the event loop served a timer.")
        found.add(self.histogram.copy())
        yield found
        yield gauge(
            "tianzhou_loop_lag_longest_seconds", "The longest such time since the last look at it.", self._longest_s
        )
        self._longest_s = 0.0


def process_steps() -> Steps:
    """Yield the families of the process, under the names of Prometheus's own clients."""
    used = os.times()
    yield counter("process_cpu_seconds_total", "Processor time of the process.", used.user + used.system)
    yield gauge("process_start_time_seconds", "When the process began, since the epoch.", _STARTED_S)
    if (resident := _resident_bytes()) is not None:
        yield gauge("process_resident_memory_bytes", "Memory of the process, mapped files included.", resident)
    if (private := private_bytes()) is not None:
        yield gauge("tianzhou_private_memory_bytes", "Memory of the process without mapped files.", private)


def _statm() -> list[int]:
    try:
        return [int(field) for field in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []  # not Linux


def _resident_bytes() -> int | None:
    fields = _statm()
    return fields[1] * os.sysconf("SC_PAGE_SIZE") if fields else None


def private_bytes() -> int | None:
    """Return the memory of this process without mapped files, in bytes; None where the system does not report it."""
    fields = _statm()
    return max(fields[1] - fields[2], 0) * os.sysconf("SC_PAGE_SIZE") if fields else None
