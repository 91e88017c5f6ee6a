"""The policy for restarts of broker processes that have ended. Pure."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 10.0
STEADY_S: Final = 60.0
"""Seconds of service after which a broker counts as recovered: its next end is the first of a new series."""
MOST_IN_A_ROW: Final = 10
"""Maximum restarts of a broker that ended each time before it had served for `STEADY_S`."""


class Restarts:
    """Restarts of one broker.

    Attributes:
        count: number of all restarts.
        row: number of ends since the broker last served for `STEADY_S`.
    """

    def __init__(self) -> None:
        self.count = 0
        self.row = 0

    def ended(self, served_s: float) -> float | None:
        """Record that the broker's process has ended.

        Args:
            served_s: seconds for which it had served; 0 if it never served.

        Returns:
            Seconds until the next restart; None after too many restarts.
        """
        if served_s >= STEADY_S:
            self.row = 0
        self.row += 1
        if self.row > MOST_IN_A_ROW:
            return None
        self.count += 1
        return min(FIRST_PAUSE_S * 2.0 ** (self.row - 1), LONGEST_PAUSE_S)
