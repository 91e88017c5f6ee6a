"""Pushed entries that arrived before earlier ones (broker.md §19.6)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.replication.dledger.timings import Timings


@dataclass(frozen=True, slots=True)
class WaitingPush:
    """A request with entries.

    Attributes:
        ticket: of the request.
        first: index of the first entry.
        count: number of entries.
        entries: headers and bodies.
        commit_index: last committed index of the leader.
        until_ms: when the follower reports to the leader that earlier entries are missing.
    """

    ticket: object
    first: int
    count: int
    entries: bytes
    commit_index: int
    until_ms: int


class WaitingPushes:
    """Requests by the index of their first entry, bounded in number and bytes.

    Args:
        timings: the bounds.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._by_first: dict[int, WaitingPush] = {}
        self._bytes = 0

    def __contains__(self, first: int) -> bool:
        return first in self._by_first

    def has_room(self, size: int) -> bool:
        """Whether there is room for one more request of a size."""
        times = self._timings
        return len(self._by_first) < times.waiting_pushes and self._bytes + size <= times.waiting_push_bytes

    def add(self, push: WaitingPush) -> None:
        """Add a request."""
        self._by_first[push.first] = push
        self._bytes += len(push.entries)

    def pop(self, first: int) -> WaitingPush | None:
        """Remove the request that begins with an entry, and return it."""
        push = self._by_first.pop(first, None)
        if push is not None:
            self._bytes -= len(push.entries)
        return push

    def pop_all(self) -> list[WaitingPush]:
        """Remove and return all requests."""
        pushes = list(self._by_first.values())
        self._by_first.clear()
        self._bytes = 0
        return pushes

    def pop_overdue(self, now_ms: int) -> list[WaitingPush]:
        """Remove and return the requests that have waited too long."""
        late = [push.first for push in self._by_first.values() if push.until_ms <= now_ms]
        return [push for first in late if (push := self.pop(first)) is not None]
