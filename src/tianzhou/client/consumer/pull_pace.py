"""Pauses of a pull loop after replies without messages (client.md §12.3). Pure.

A broker holds a pull while there is no message, so an immediate reply without messages is rare. Without pauses, a
consumer would pull from a broken or hostile broker tens of thousands of times a second.
"""

from __future__ import annotations

FREE_ANSWERS = 8
"""Number of empty replies in a row without a pause."""
LEAP = 64
"""Minimum change of the offset in a reply that shows that a filter skipped messages."""
SHORTEST_REST_S = 0.01
LONGEST_REST_S = 1.0
LONGEST_REST_WHERE_IT_MOVES_S = 0.1
"""Maximum pause after replies that change the offset: a message may be near and must not wait long."""
HELD_S = 0.5
"""Minimum seconds of a pull that the broker held to wait for messages."""
_DOUBLINGS = 7


class PullPace:
    """Counter of one queue's consecutive replies without messages."""

    __slots__ = ("fruitless",)

    def __init__(self) -> None:
        self.fruitless = 0

    def rest_s(self, moved: int, took_s: float) -> float:
        """Return the seconds to wait before the next pull.

        Args:
            moved: change of the offset by the empty reply; 0 or less without a change.
            took_s: seconds that the pull took.
        """
        if moved >= LEAP or took_s >= HELD_S:
            self.fruitless = 0
            return 0.0
        self.fruitless += 1
        beyond = self.fruitless - FREE_ANSWERS
        if beyond <= 0:
            return 0.0
        longest_s = LONGEST_REST_WHERE_IT_MOVES_S if moved > 0 else LONGEST_REST_S
        return min(SHORTEST_REST_S * (1 << min(beyond - 1, _DOUBLINGS)), longest_s)
