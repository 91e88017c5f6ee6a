"""Windows of a counter over the last minute, hour and day (broker.md §20.1).

Samples are taken every ten seconds, ten minutes and hour; a window is the difference between the newest ten-second
sample and the window's own oldest one. Apache's broker shows nothing for the hour and the day until they have two
samples of their own.
"""

from __future__ import annotations

from tianzhou.wire.bodies.tables import BrokerStats as StatsBody
from tianzhou.wire.bodies.tables import StatsSample

MINUTE_STEP_MS = 10_000
HOUR_STEP_MS = 600_000
DAY_STEP_MS = 3_600_000
_MINUTE_SAMPLES, _HOUR_SAMPLES, _DAY_SAMPLES = 7, 7, 25
SETTLED = _MINUTE_SAMPLES + 2
"""Number of equal samples after which further ones change only the hour's and the day's window."""


class Window:
    """Evenly spaced samples of one counter.

    Args:
        step_ms: ms from one sample to the next.
        capacity: maximum samples.
    """

    __slots__ = ("_capacity", "_same", "_samples", "_step_ms")

    def __init__(self, step_ms: int, capacity: int) -> None:
        self._step_ms = step_ms
        self._capacity = capacity
        # Use a list, because a deque takes most of a kilobyte and each queue has fifteen windows.
        self._samples: list[tuple[int, int, int]] = []
        self._same = 0

    def sample(self, now_ms: int, value: int, times: int) -> None:
        """Add a sample with the counter's value and number of increments."""
        samples = self._samples
        if not samples:
            # Counts before the first sample belong to the step before it.
            samples.append((now_ms - self._step_ms, 0, 0))
        else:
            _, last_value, last_times = samples[-1]
            if (last_value, last_times) != (value, times):
                if self._same >= self._capacity:
                    samples.clear()
                    samples.append((now_ms - self._step_ms, last_value, last_times))
                self._same = 0
            elif self._same >= self._capacity:
                # All samples are equal, so one more has no effect.
                return
            else:
                self._same += 1
        samples.append((now_ms, value, times))
        if len(samples) > self._capacity:
            del samples[0]

    @property
    def newest(self) -> tuple[int, int, int]:
        """The last sample: time, value and number of increments."""
        return self._samples[-1] if self._samples else (0, 0, 0)

    def figures(self, newest: tuple[int, int, int] | None = None) -> StatsSample:
        """Return the sum, the rate per second and the average per call over the window.

        Args:
            newest: end of the window; None for its last sample.
        """
        if not self._samples:
            return StatsSample()
        began, first_value, first_times = self._samples[0]
        ended, last_value, last_times = newest or self._samples[-1]
        total, calls, ms = last_value - first_value, last_times - first_times, ended - began
        return StatsSample(total, total * 1000 / ms if ms > 0 else 0.0, total / calls if calls > 0 else 0.0)


class Windows:
    """The three windows of one counter.

    Attributes:
        changed_ms: time of the first sample with the present value.
    """

    __slots__ = ("_day", "_hour", "_minute", "_newest", "changed_ms")

    def __init__(self) -> None:
        self._minute = Window(MINUTE_STEP_MS, _MINUTE_SAMPLES)
        self._hour = Window(HOUR_STEP_MS, _HOUR_SAMPLES)
        self._day = Window(DAY_STEP_MS, _DAY_SAMPLES)
        self._newest: tuple[int, int, int] | None = None
        self.changed_ms = 0

    def sample(self, now_ms: int, value: int, times: int, *, hour: bool, day: bool) -> None:
        """Add a sample to the minute's window; with `hour` and `day` also to those windows."""
        fresh = self._minute.newest[0] == 0
        self._minute.sample(now_ms, value, times)
        if hour or fresh:
            self._hour.sample(now_ms, value, times)
        if day or fresh:
            self._day.sample(now_ms, value, times)
        if self._newest is None or self._newest[1:] != (value, times):
            self.changed_ms = now_ms
        self._newest = (now_ms, value, times)

    def figures(self, now_ms: int = 0) -> StatsBody:
        """Return the figures of request 315.

        Args:
            now_ms: time until which the counter is known to be unchanged since its last sample.
        """
        newest = self._newest
        if newest is not None:
            newest = (max(now_ms, newest[0]), *newest[1:])
        return StatsBody(self._minute.figures(), self._hour.figures(newest), self._day.figures(newest))


class IdleTime:
    """Time since the last change of counters, so that unused ones are not sampled."""

    __slots__ = ("_seen", "_since_ms")

    def __init__(self) -> None:
        self._seen: tuple[object, ...] | None = None
        self._since_ms = 0

    def ms(self, now_ms: int, *values: object) -> int:
        """Return the milliseconds since the values changed, as seen by calls of this method."""
        if self._seen != values:
            self._seen, self._since_ms = values, now_ms
        return now_ms - self._since_ms
