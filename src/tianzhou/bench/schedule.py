"""The times at which messages are due. Pure."""

from __future__ import annotations

import math


class Tickets:
    """The times at which one process sends, in order.

    With a rate the load is open: the times depend on the rate alone and not on the replies. So a stall of the server
    counts for all messages that it delays (no coordinated omission). Without a rate, each ticket is due immediately.

    Args:
        start_s: the beginning in seconds of a monotonic clock; the same in all processes.
        rate: tickets per second of all processes together, 0 for no limit.
        warm_up_s: seconds before the measurement begins.
        seconds: duration of the measurement in seconds, None for no limit.
        count: number of tickets to measure in all processes together, None for no limit.
        share: number of this process, from 0.
        of: number of processes.
    """

    __slots__ = ("_count", "_end_s", "_measured", "_measured_from_s", "_next", "_of", "_rate", "_start_s", "closed")

    def __init__(
        self,
        start_s: float,
        *,
        rate: float = 0,
        warm_up_s: float = 0,
        seconds: float | None = None,
        count: int | None = None,
        share: int = 0,
        of: int = 1,
    ) -> None:
        self._start_s = start_s
        self._rate = rate
        self._measured_from_s = start_s + warm_up_s
        self._end_s = math.inf if seconds is None else start_s + warm_up_s + seconds
        self._count = math.inf if count is None else count // of + (share < count % of)
        self._measured = 0
        self._next = share
        self._of = of
        self.closed = False

    def next(self, now_s: float) -> float | None:
        """Return the time at which the next message is due, in the past or future; None if all are sent."""
        due_s = self._start_s + self._next / self._rate if self._rate else now_s
        if self.closed or due_s >= self._end_s:
            return None
        if due_s >= self._measured_from_s:
            if self._measured >= self._count:
                return None
            self._measured += 1
        self._next += self._of
        return due_s
