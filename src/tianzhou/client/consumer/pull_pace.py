"""Rests of a pull loop after replies without messages (client.md §12.3). Pure.

A broker holds a pull while there is nothing to be had, so answers that come at once and lead nowhere are rare: a
consumer that pulled again each time would query a broken or hostile broker tens of thousands of times a second.
"""

from __future__ import annotations

FREE_ANSWERS = 8
"""Empty replies in a row that are followed up at once."""
LEAP = 64
"""A reply that moves the offset by this much or more comes of a filter that passes messages over."""
SHORTEST_REST_S = 0.01
LONGEST_REST_S = 1.0
LONGEST_REST_WHERE_IT_MOVES_S = 0.1
"""For replies that move the offset: a message may be near and must not wait for long."""
HELD_S = 0.5
"""A broker that took this long or longer has waited for messages."""
_DOUBLINGS = 7


class PullPace:
    """Counts replies in a row without messages, of one queue."""

    __slots__ = ("fruitless",)

    def __init__(self) -> None:
        self.fruitless = 0

    def rest_s(self, moved: int, took_s: float) -> float:
        """Seconds to wait before the next pull.

        Args:
            moved: by how much the answer, which brought no message, led on; 0 or less when it did not.
            took_s: how long the broker took for it.
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
