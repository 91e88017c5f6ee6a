"""What a counter did in the last minute, hour and day (broker.md §20.1).

Samples are taken every ten seconds, ten minutes and hour; a window is the difference between its newest and its oldest
sample. Between two samples a window stands still, as with Apache's broker.
"""

from __future__ import annotations

from collections import deque

from tianzhou.wire.bodies import BrokerStats as StatsBody
from tianzhou.wire.bodies import StatsSample

MINUTE_STEP_MS = 10_000
HOUR_STEP_MS = 600_000
DAY_STEP_MS = 3_600_000
_KEPT_MINUTE, _KEPT_HOUR, _KEPT_DAY = 7, 7, 25


class Window:
    """Samples of one counter, evenly spaced.

    Args:
        step_ms: from one sample to the next.
        kept: how many there are at most.
    """

    __slots__ = ("_same", "_samples", "_step_ms")

    def __init__(self, step_ms: int, kept: int) -> None:
        self._step_ms = step_ms
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=kept)
        self._same = 0

    def sample(self, now_ms: int, value: int, times: int) -> None:
        """Note the counter's value, and how often it was raised."""
        samples = self._samples
        if not samples:
            # What was counted before the first sample counts as counted since a moment one step before it.
            samples.append((now_ms - self._step_ms, 0, 0))
        else:
            _, last_value, last_times = samples[-1]
            if (last_value, last_times) != (value, times):
                if self._same >= (samples.maxlen or 0):
                    samples.clear()
                    samples.append((now_ms - self._step_ms, last_value, last_times))
                self._same = 0
            elif self._same >= (samples.maxlen or 0):
                # All samples are equal: one more would change nothing.
                return
            else:
                self._same += 1
        samples.append((now_ms, value, times))

    def figures(self) -> StatsSample:
        """Sum, per second, and per call over the window."""
        if not self._samples:
            return StatsSample()
        began, first_value, first_times = self._samples[0]
        ended, last_value, last_times = self._samples[-1]
        total, calls, ms = last_value - first_value, last_times - first_times, ended - began
        return StatsSample(total, total * 1000 / ms if ms > 0 else 0.0, total / calls if calls > 0 else 0.0)


class Windows:
    """The three windows of one counter."""

    __slots__ = ("_day", "_hour", "_minute")

    def __init__(self) -> None:
        self._minute = Window(MINUTE_STEP_MS, _KEPT_MINUTE)
        self._hour = Window(HOUR_STEP_MS, _KEPT_HOUR)
        self._day = Window(DAY_STEP_MS, _KEPT_DAY)

    def sample(self, now_ms: int, value: int, times: int, *, hour: bool, day: bool) -> None:
        """Note the counter's value; `hour` and `day` when it is the turn of those windows, too."""
        self._minute.sample(now_ms, value, times)
        if hour:
            self._hour.sample(now_ms, value, times)
        if day:
            self._day.sample(now_ms, value, times)

    def figures(self) -> StatsBody:
        """As request 315 shows them."""
        return StatsBody(self._minute.figures(), self._hour.figures(), self._day.figures())
