"""Figures over time for charts. An unknown figure is a gap. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

POINTS: Final = 720
"""Maximum number of points of a series: one hour at one point every five seconds."""
MOST_SERIES: Final = 2_000


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """A figure at a time.

    Attributes:
        at_ms: milliseconds since 1970.
        value: the figure; None while the figure is unknown, which interrupts the line of a chart.
    """

    at_ms: int
    value: float | None


class Series:
    """Figures over time by name, bounded in names and points."""

    def __init__(self) -> None:
        self._points: dict[str, deque[SeriesPoint]] = {}

    def add(self, name: str, at_ms: int, value: float) -> None:
        """Add a point. When there are too many series, drop the one without a new point for the longest time.

        Args:
            name: name of the series.
            at_ms: time of the figure, in milliseconds since 1970.
            value: the figure.
        """
        points = self._points.pop(name, None)
        if points is None:
            if len(self._points) >= MOST_SERIES:
                del self._points[next(iter(self._points))]
            points = deque(maxlen=POINTS)
        points.append(SeriesPoint(at_ms, value))
        self._points[name] = points

    def interrupt(self, names: Iterable[str], at_ms: int) -> None:
        """Record that the figures of these series are unknown now. Names without a point are ignored.

        Args:
            names: names of series.
            at_ms: the time now, in milliseconds since 1970.
        """
        for name in names:
            points = self._points.get(name)
            if points and points[-1].value is not None:
                points.append(SeriesPoint(at_ms, None))

    def of(self, name: str) -> list[SeriesPoint]:
        """Return the points of a series, the oldest first."""
        return list(self._points.get(name, ()))
