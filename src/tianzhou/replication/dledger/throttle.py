"""The limit of bytes per second for a follower that is far behind (broker.md §19.6)."""

from __future__ import annotations

from tianzhou.replication.dledger.timings import Timings


class Throttle:
    """The bytes sent to one follower in the present second.

    Args:
        timings: the bounds.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._second = -1
        self._bytes = 0

    def allows(self, now_ms: int, behind_bytes: int, behind_entries: int) -> bool:
        """Whether entries may be sent now.

        Args:
            now_ms: the time.
            behind_bytes: bytes of the log not sent to the follower yet.
            behind_entries: entries not sent to it yet.
        """
        times = self._timings
        if behind_entries <= times.throttled_entries or behind_bytes < times.peer_push_throttle_bytes:
            return True
        return now_ms // 1000 != self._second or self._bytes < times.peer_push_quota_bytes

    def sent(self, now_ms: int, size: int) -> None:
        """Count sent bytes."""
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._bytes = 0
        self._bytes += size
