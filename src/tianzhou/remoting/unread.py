"""How much memory replies may take that peers do not read, over all connections of a server.

A connection is not read from while its write buffer is above a mark, so it holds little more than one reply. But a
reply may have 16 MiB, and there may be ten thousand connections. Above the limit, who holds most and has read nothing
for a while is disconnected; above twice the limit, who holds most. Small readers are left alone as long as there are
larger ones.

Pure: a connection is a value that says how much it has not read, and time is an argument.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

PATIENCE_S: Final = 15.0
PROGRESS_BYTES: Final = 65_536
"""Who reads less than this in the time has read nothing."""
LOOK_S: Final = 1.0
"""How often connections that are behind are looked at."""
HIGH_BYTES, LEAST_HIGH_BYTES = 524_288, 65_536


class Reader(Protocol):
    """A connection whose peer is behind with reading."""

    def unread(self) -> tuple[int, int]:
        """Bytes taken up because the peer does not read, and how many of them it still has to read."""


class Doomed(NamedTuple):
    """A connection that is to be disconnected: what it holds, and for how long it has read nothing."""

    reader: Reader
    size: int
    silent_s: float


class _Mark:
    __slots__ = ("left", "since", "size")

    def __init__(self, since: float) -> None:
        self.size = self.left = 0
        self.since = since


class UnreadReplies:
    """Looks after the connections whose peers are behind.

    Attributes:
        used: bytes taken up, as far as is known.
    """

    def __init__(self) -> None:
        self.used = 0
        self._marks: dict[Reader, _Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def note(self, reader: Reader, now: float) -> None:
        """A connection's peer is behind, or is more so."""
        size, left = reader.unread()
        mark = self._marks.get(reader)
        if mark is None:
            mark = self._marks[reader] = _Mark(now)
        self.used += size - mark.size
        mark.size = size
        if left <= mark.left - PROGRESS_BYTES:
            mark.left, mark.since = left, now
        else:
            mark.left = max(left, mark.left)

    def forget(self, reader: Reader) -> None:
        """A peer has caught up, or is gone."""
        mark = self._marks.pop(reader, None)
        if mark is not None:
            self.used -= mark.size

    def doomed(self, limit: int, now: float) -> list[Doomed]:
        """Look at all of them; who is to be disconnected, the largest first.

        Args:
            limit: bytes that all may hold together.
            now: seconds of the clock that `note` was given.
        """
        for reader in list(self._marks):
            self.note(reader, now)
        if self.used <= limit:
            return []
        left, found = self.used, []
        for reader, mark in sorted(self._marks.items(), key=lambda item: item[1].size, reverse=True):
            if left > 2 * limit or (left > limit and now - mark.since >= PATIENCE_S):
                found.append(Doomed(reader, mark.size, now - mark.since))
                left -= mark.size
        return found


def high_mark(limit: int, connections: int) -> int:
    """Above how many bytes a peer counts as behind, with so many connections."""
    return max(LEAST_HIGH_BYTES, min(HIGH_BYTES, limit // max(connections, 1)))
