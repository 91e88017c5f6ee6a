"""Latency of puts: samples, and the figures of the last complete minute (broker.md §20.2).

Timing every put would cost more than the put itself, and a hundred samples a second give the same figures.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

PERIOD_MS = 60_000
_BOUNDS_MS: Final = (0, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
NOTHING_YET = "null"
"""Value of `classes` in the first minute, as in Apache's broker."""


class PutLatency:
    """Latencies of puts.

    Attributes:
        longest_ms: maximum ms since the start.
        classes: histogram of the last complete minute as text, estimated from the samples.
        listener: callback with each sample, also of puts that these figures exclude; None for none.
    """

    __slots__ = ("_began_ms", "_last", "_puts", "_samples", "classes", "listener", "longest_ms")

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._puts = 0
        self._samples: list[float] = []
        self._last: list[float] = []
        self.longest_ms = 0.0
        self.classes = NOTHING_YET
        self.listener: Callable[[float], None] | None = None

    def note(self, ms: float) -> None:
        """Add a sample of a put's duration, ms."""
        self._samples.append(ms)
        if ms > self.longest_ms:
            self.longest_ms = ms
        if self.listener is not None:
            self.listener(ms)

    def tick(self, now_ms: int, puts: int) -> None:
        """Roll over to the next one-minute window.

        Args:
            now_ms: the time.
            puts: messages put since the start.
        """
        if now_ms - self._began_ms < PERIOD_MS:
            return
        self._last = sorted(self._samples)
        self._samples = []
        self.classes = _classes(self._last, puts - self._puts)
        self._began_ms, self._puts = now_ms, puts

    def percentile(self, share: float) -> float:
        """Return a percentile of the last complete minute in milliseconds; `share` is 0 to 1."""
        last = self._last
        return last[min(int(len(last) * share), len(last) - 1)] if last else 0.0


def _classes(samples: list[float], puts: int) -> str:
    counts = [0] * len(_NAMES)
    for ms in samples:
        # Count whole milliseconds, as Apache's broker does; a put below one millisecond is in the first class.
        counts[bisect_left(_BOUNDS_MS, int(ms))] += 1
    weight = puts / len(samples) if samples else 0.0
    return "".join(f"{name}:{round(count * weight)} " for name, count in zip(_NAMES, counts, strict=True))
