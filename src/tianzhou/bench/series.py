"""The counts of a run: in a worker by the second, in the parent aggregated (HdrHistogram). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

LONGEST_US = 3_600_000_000
DIGITS = 3
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
SETTLED_S = 3
"""Seconds of this age are complete: every process has reported its counts of them."""
HOW_TO_INSTALL = "install it with: pip install 'tianzhou[bench]'"


class Slice(msgspec.Struct, array_like=True):
    """Counts of one process in one second, or in a part of it.

    Attributes:
        second: whole seconds since the start of the run.
        messages: number of acknowledged or consumed messages.
        size: size of their bodies in bytes.
        latencies: number of messages by latency in microseconds.
        errors: number of failures by reason.
    """

    second: int
    messages: int = 0
    size: int = 0
    latencies: dict[int, int] = {}
    errors: dict[str, int] = {}


class Gathering:
    """The counters of a worker. They cost a few dictionary look-ups per message.

    Args:
        start_s: the beginning of the run in seconds of the monotonic clock.
    """

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self._open: dict[int, Slice] = {}
        self._now = Slice(-1)
        self.messages = 0
        self.last_s = 0.0

    def timed(self, at_s: float, latency_s: float, size: int, count: int = 1) -> None:
        """Count messages with a latency."""
        found = self.add(at_s, size, count)
        taken_us = int(latency_s * 1e6)
        found.latencies[taken_us] = found.latencies.get(taken_us, 0) + count

    def fail(self, at_s: float, reason: str, count: int = 1) -> None:
        """Count messages that failed."""
        found = self.add(at_s, 0, 0)
        found.errors[reason] = found.errors.get(reason, 0) + count

    def add(self, at_s: float, size: int, count: int = 1) -> Slice:
        """Count messages without a latency. Return the counts of their second."""
        self.last_s = at_s
        self.messages += count
        second = int(at_s - self.start_s)
        found = self._now
        if found.second != second:
            found = self._now = self._open.setdefault(second, Slice(second))
        found.messages += count
        found.size += size
        return found

    def take(self) -> list[Slice]:
        """Return the counts since the last call."""
        taken, self._open, self._now = list(self._open.values()), {}, Slice(-1)
        return taken


def new_histogram() -> HdrHistogram:
    """Return a histogram from one microsecond to one hour, with three significant digits.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError:
        raise ConfigError(f"bench needs the package hdrhistogram; {HOW_TO_INSTALL}") from None
    return HdrHistogram(1, LONGEST_US, DIGITS)


def _fill(histogram: HdrHistogram, latencies: Mapping[int, int]) -> None:
    for taken_us, count in latencies.items():
        histogram.record_value(min(max(taken_us, 1), LONGEST_US), count)


def milliseconds(histogram: HdrHistogram) -> dict[str, float] | None:
    """Return mean, percentiles and maximum of a histogram of microseconds; None if it is empty."""
    if not histogram.get_total_count():
        return None
    figures = {"mean": histogram.get_mean_value()}
    found = histogram.get_percentile_to_value_dict(list(PERCENTILES.values()))
    figures |= {name: found[at] for name, at in PERCENTILES.items()}
    figures["max"] = histogram.get_max_value()
    return {name: round(value / 1000, 3) for name, value in figures.items()}


@dataclass
class Second:
    """One second of a run.

    Attributes:
        second: whole seconds since the start.
        warm_up: whether the second is before the measurement.
        messages: number of acknowledged or consumed messages.
        size: size of their bodies in bytes.
        errors: number of failed messages.
        latency_ms: percentiles in ms, None if no message was timed.
        latencies: number of messages by latency in microseconds, until the second is settled.
        settled: whether the percentiles are final. Later reports count in the totals only.
    """

    second: int
    warm_up: bool
    messages: int = 0
    size: int = 0
    errors: int = 0
    latency_ms: dict[str, float] | None = None
    latencies: Counter[int] = field(default_factory=Counter, repr=False)
    settled: bool = False

    def document(self) -> dict[str, Any]:
        """Return the second for JSON and CSV."""
        return {
            "second": self.second,
            "warm_up": self.warm_up,
            "messages": self.messages,
            "bytes": self.size,
            "errors": self.errors,
            "latency_ms": self.latency_ms,
        }


class RunSeries:
    """The seconds of a run, aggregated from the reports of all processes of one role.

    Args:
        warm_up_s: seconds at the beginning that the figures leave out.
    """

    def __init__(self, warm_up_s: int) -> None:
        self._warm_up_s = warm_up_s
        self._seconds: dict[int, Second] = {}
        self._unsettled: set[int] = set()
        self._work = new_histogram()
        self.total = new_histogram()
        self.errors = Counter[str]()
        self.seen = 0
        """Number of messages, including those of the warm-up."""

    def add(self, slices: Iterable[Slice]) -> None:
        """Count a report of a process."""
        for part in slices:
            second = self._seconds.get(part.second)
            if second is None:
                second = self._seconds[part.second] = Second(part.second, part.second < self._warm_up_s)
            second.messages += part.messages
            second.size += part.size
            second.errors += sum(part.errors.values())
            self.seen += part.messages
            if not second.settled:
                second.latencies.update(part.latencies)
                self._unsettled.add(part.second)
            if not second.warm_up:
                _fill(self.total, part.latencies)
                self.errors.update(part.errors)
            self._settle(part.second - SETTLED_S)

    def _settle(self, before: float) -> None:
        for number in [number for number in self._unsettled if number < before]:
            self._unsettled.discard(number)
            second = self._seconds[number]
            self._measure(second)
            second.latencies, second.settled = Counter(), True

    def _measure(self, second: Second) -> None:
        if second.latencies:
            self._work.reset()
            _fill(self._work, second.latencies)
            second.latency_ms = milliseconds(self._work)

    def at(self, number: int) -> Second | None:
        """Return a second with its counts so far, None if there are none."""
        second = self._seconds.get(number)
        if second is not None and not second.settled:
            self._measure(second)
        return second

    def seconds(self) -> list[Second]:
        """Return all seconds that have counts."""
        self._settle(float("inf"))
        return [self._seconds[number] for number in sorted(self._seconds)]

    def figures(self, last_s: float) -> dict[str, Any]:
        """Return the figures without the warm-up.

        Args:
            last_s: time of the last message, in seconds since the start.
        """
        measured = [second for second in self._seconds.values() if not second.warm_up]
        messages = sum(second.messages for second in measured)
        size = sum(second.size for second in measured)
        seconds = max(last_s - self._warm_up_s, 0.0)
        return {
            "messages": messages,
            "errors": sum(second.errors for second in measured),
            "bytes": size,
            "seconds": round(seconds, 3),
            "messages_per_second": round(messages / seconds, 1) if seconds and messages else 0.0,
            "mib_per_second": round(size / seconds / 2**20, 2) if seconds and messages else 0.0,
            "latency_ms": milliseconds(self.total),
        }
