"""How fast a log grows, as far as it matters to whoever makes its pages."""

from __future__ import annotations

from typing import Final

CALM_BYTES_S: Final = 32_000_000
MEASURED_BYTES: Final = 1 << 20
MEASURED_S: Final = 1.0


class AppendRate:
    """Tells whether a log grows so slowly that its pages can be made one by one.

    One by one they cost three times the processor time, which is little of a calm log's; as the kernel reads ahead
    they come in bursts of 20 ms and more (docs/performance.md). A log nobody has written to yet is calm.

    Args:
        now_s: monotonic time, seconds.
        end: where the log ends.
    """

    def __init__(self, now_s: float, end: int) -> None:
        self._since, self._begin = now_s, end
        self._calm = True

    def calm(self, now_s: float, end: int) -> bool:
        """Whether at most `CALM_BYTES_S` bytes a second were written lately, now that the log ends at `end`."""
        passed, grown = now_s - self._since, end - self._begin
        if grown >= MEASURED_BYTES or passed >= MEASURED_S:
            self._calm = grown <= CALM_BYTES_S * passed
            self._since, self._begin = now_s, end
        return self._calm
