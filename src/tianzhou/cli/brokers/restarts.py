"""When a broker process that has ended is started again. Pure."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
STEADY_S: Final = 60.0
"""Who has served for so long has come back for good: the next end is the first of a new row."""
MOST_IN_A_ROW: Final = 10
"""Maximum restarts of a broker that ended each time before it had served for `STEADY_S`."""


class Restarts:
    """One broker's.

    Attributes:
        count: how often it was started again since the beginning.
        row: how many ends there were since it last served for `STEADY_S`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.row = 0

    def ended(self, served_s: float) -> float | None:
        """Its process is gone.

        Args:
            served_s: for how long it had served; 0 when it never came so far.

        Returns:
            Seconds until it is to be started again; None when that has been tried often enough.
        """
        if served_s >= STEADY_S:
            self.row = 0
        self.row += 1
        if self.row > MOST_IN_A_ROW:
            return None
        self.count += 1
        return min(FIRST_PAUSE_S * 2.0 ** (self.row - 1), LONGEST_PAUSE_S)
