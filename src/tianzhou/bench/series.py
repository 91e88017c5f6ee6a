"""What was counted: in a worker by the second, in the parent put together (HdrHistogram). Pure."""

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
"""Seconds so old are complete: every process has reported what it counted in them."""
HOW_TO_INSTALL = "install it with: pip install 'tianzhou[bench]'"


class Slice(msgspec.Struct, array_like=True):
    """What one process counted in one second, or in a part of it.

    Attributes:
        second: since the start of the run, whole.
        messages: that were acknowledged, or consumed.
        size: bytes of their bodies.
        latencies: how many took how many microseconds.
        errors: how many failed for which reason.
    """

    second: int
    messages: int = 0
    size: int = 0
    latencies: dict[int, int] = {}
    errors: dict[str, int] = {}


class Gathering:
    """Counts in a worker, at the cost of a few dictionary look-ups a message.

    Args:
        start_s: the beginning of the run, seconds of the monotonic clock.
    """

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self._open: dict[int, Slice] = {}
        self._now = Slice(-1)
        self.messages = 0
        self.last_s = 0.0

    def timed(self, at_s: float, latency_s: float, size: int, count: int = 1) -> None:
        """Count messages that took so long."""
        found = self.add(at_s, size, count)
        taken_us = int(latency_s * 1e6)
        found.latencies[taken_us] = found.latencies.get(taken_us, 0) + count

    def fail(self, at_s: float, reason: str, count: int = 1) -> None:
        """Count messages that failed."""
        found = self.add(at_s, 0, 0)
        found.errors[reason] = found.errors.get(reason, 0) + count

    def add(self, at_s: float, size: int, count: int = 1) -> Slice:
        """Count messages without a latency; returns what is counted of that second."""
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
        """What was counted since the last call."""
        taken, self._open, self._now = list(self._open.values()), {}, Slice(-1)
        return taken


def new_histogram() -> HdrHistogram:
    """A histogram from a microsecond to an hour with three digits.

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
    """Percentiles and the like of a histogram in microseconds; None of an empty one."""
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
        second: since the start, whole.
        warm_up: it is not measured.
        messages: that were acknowledged, or consumed.
        size: bytes of their bodies.
        errors: that failed.
        latency_ms: percentiles, None where nothing was timed.
        latencies: what the percentiles are of, until the second is settled.
        settled: what is reported of it later counts in the totals alone.
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
        """As JSON and CSV show it."""
        return {
            "second": self.second,
            "warm_up": self.warm_up,
            "messages": self.messages,
            "bytes": self.size,
            "errors": self.errors,
            "latency_ms": self.latency_ms,
        }


class RunSeries:
    """The seconds of a run, put together from what all processes of one role report.

    Args:
        warm_up_s: seconds in the beginning that are not in the figures.
    """

    def __init__(self, warm_up_s: int) -> None:
        self._warm_up_s = warm_up_s
        self._seconds: dict[int, Second] = {}
        self._unsettled: set[int] = set()
        self._work = new_histogram()
        self.total = new_histogram()
        self.errors = Counter[str]()
        self.seen = 0
        """Messages, those of the warm-up included."""

    def add(self, slices: Iterable[Slice]) -> None:
        """Count what a process has reported."""
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
        """A second as far as it is known, None when nothing was counted in it."""
        second = self._seconds.get(number)
        if second is not None and not second.settled:
            self._measure(second)
        return second

    def seconds(self) -> list[Second]:
        """All seconds in which something was counted."""
        self._settle(float("inf"))
        return [self._seconds[number] for number in sorted(self._seconds)]

    def figures(self, last_s: float) -> dict[str, Any]:
        """The figures without the warm-up.

        Args:
            last_s: when the last message was counted, seconds since the start.
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
