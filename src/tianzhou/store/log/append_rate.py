"""The growth rate of a log, which decides how its pages are made."""

from __future__ import annotations

from typing import Final

CALM_BYTES_S: Final = 32_000_000
MEASURED_BYTES: Final = 1 << 20
MEASURED_S: Final = 1.0


class AppendRate:
    """Measures whether a log grows so slowly that its pages can be made one by one.

    Making pages one by one costs three times the processor time, which is little for a calm log. With read-ahead by the
    kernel, pages are made in bursts of 20 ms and more (docs/performance.md). An empty log is calm.

    Args:
        now_s: monotonic time, seconds.
        end: where the log ends.
    """

    def __init__(self, now_s: float, end: int) -> None:
        self._since, self._begin = now_s, end
        self._calm = True

    def calm(self, now_s: float, end: int) -> bool:
        """Whether at most `CALM_BYTES_S` bytes a second were written lately; `end` is the log's present end."""
        passed, grown = now_s - self._since, end - self._begin
        if grown >= MEASURED_BYTES or passed >= MEASURED_S:
            self._calm = grown <= CALM_BYTES_S * passed
            self._since, self._begin = now_s, end
        return self._calm
