"""The number of bytes in the present second and in the last whole one. Pure."""

from __future__ import annotations


class SecondRate:
    """A counter of bytes by the second.

    Args:
        now_s: monotonic time, seconds.

    Attributes:
        began_s: when the present second began, monotonic seconds.
        in_second: bytes in it so far.
    """

    def __init__(self, now_s: float) -> None:
        self.began_s = now_s
        self.in_second = self._last = 0

    def add(self, size: int, now_s: float) -> None:
        """Count bytes.

        Args:
            size: number of bytes.
            now_s: monotonic time, seconds.
        """
        self.turn(now_s)
        self.in_second += size

    def turn(self, now_s: float) -> None:
        """Begin another second when the present one is over."""
        if now_s >= self.began_s + 1:
            self._last = self.in_second if now_s < self.began_s + 2 else 0
            self.began_s, self.in_second = now_s, 0

    def last(self, now_s: float) -> int:
        """Return the bytes of the last whole second."""
        self.turn(now_s)
        return self._last
