"""Metric families and histograms: the values of pages and exporters. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

LABEL_CHARACTERS: Final = 256
"""Maximum characters of a label's value; names from peers may be longer than any topic."""
PER_STEP: Final = 200
"""Samples collected or written between two loop turns, which takes about a millisecond."""


class Kind(StrEnum):
    """Type of a family, in Prometheus's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """Counts of values by upper bounds.

    Args:
        bounds: upper bounds, ascending, without infinity.

    Attributes:
        counts: values by bound, not cumulative; the last count is of values above all bounds.
        total: sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def note(self, value: float, times: int = 1) -> None:
        """Count a value that occurred `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> Histogram:
        """Return a copy of the present counts, which does not change any more."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts[:], self.total
        return other


class SampledHistogram:
    """Estimated histograms by labels: a few values are sampled, and the total number of values is exact.

    Each call of `advance` divides the new values among the samples since the last call, so that no count ever falls.

    Args:
        bounds: see `Histogram`.
        most: maximum number of label combinations; samples of further ones are dropped.

    Attributes:
        histograms: histograms by labels.
    """

    def __init__(self, bounds: tuple[float, ...], most: int = 1_000) -> None:
        self._bounds = bounds
        self._most = most
        self._samples: dict[tuple[str, ...], Histogram] = {}
        self._seen = 0
        self.histograms: dict[tuple[str, ...], Histogram] = {}

    def note(self, labels: tuple[str, ...], value: float) -> None:
        """Add a sample."""
        found = self._samples.get(labels)
        if found is None:
            if len(self._samples) >= self._most:
                return
            found = self._samples[labels] = Histogram(self._bounds)
        found.note(value)

    def advance(self, total: int) -> None:
        """Divide the values since the last call among the samples since then.

        Args:
            total: number of values since the start.
        """
        fresh = total - self._seen
        weight = sum(one.count for one in self._samples.values())
        if fresh <= 0 or not weight:
            return  # without samples, the next call counts these values
        done = divided = 0
        for labels, samples in self._samples.items():
            histogram = self.histograms.setdefault(labels, Histogram(self._bounds))
            for bucket, times in enumerate(samples.counts):
                done += times
                share = fresh * done // weight - divided
                divided += share
                histogram.counts[bucket] += share
            histogram.total += samples.total * fresh / weight
        self._samples.clear()
        self._seen = total


Value = float | int | Histogram


@dataclass(slots=True)
class Family:
    """A metric family.

    Attributes:
        name: name as Prometheus shows it; a counter's name ends with `_total`.
        kind: type of the family.
        help: description in one line.
        labels: names of its labels.
        most: maximum number of samples; further ones are omitted and counted.
        samples: values of the labels, and the value.
        left_out: number of samples beyond `most`.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    most: int = 50_000
    samples: list[tuple[tuple[str, ...], Value]] = field(default_factory=list)
    left_out: int = 0

    def add(self, value: Value, *labels: str) -> None:
        """Add a sample, unless the family is full."""
        if len(self.samples) < self.most:
            self.samples.append((labels, value))
        else:
            self.left_out += 1


Steps = Iterator[Family | None]
"""Families one by one, with None between them where the loop may serve other work."""
Source = Callable[[], Steps]
"""Returns the present figures."""


def counter(name: str, help_text: str, value: float, **labels: str) -> Family:
    """Return a family of one counter."""
    return _one(name, Kind.COUNTER, help_text, value, labels)


def gauge(name: str, help_text: str, value: float, **labels: str) -> Family:
    """Return a family of one gauge."""
    return _one(name, Kind.GAUGE, help_text, value, labels)


def gauges(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Family:
    """Return a family of gauges by one label."""
    return Family(name, Kind.GAUGE, help_text, (label,), samples=[((key,), value) for key, value in values.items()])


def counters(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Family:
    """Return a family of counters by one label."""
    return Family(name, Kind.COUNTER, help_text, (label,), samples=[((key,), value) for key, value in values.items()])


def left_out(families: Collection[Family]) -> Family:
    """Return a family with the number of omitted samples of each family that omits some."""
    missing = {one.name: float(one.left_out) for one in families if one.left_out}
    return gauges(
        "tianzhou_metrics_left_out", "Samples that a family lacks because of metricsOtelCardinalityLimit.", "family",
        missing,
    )  # fmt: skip


def _one(name: str, kind: Kind, help_text: str, value: float, labels: Mapping[str, str]) -> Family:
    return Family(name, kind, help_text, tuple(labels), samples=[(tuple(labels.values()), value)])
