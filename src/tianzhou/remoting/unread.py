"""Memory of replies that peers do not read, bounded over all connections of a server.

The server does not read from a connection while its write buffer is above a mark, so a connection holds little more
than one reply. But a reply may have 16 MiB, and there may be ten thousand connections. Above the limit, the server
disconnects the largest holder that has read nothing for a while. Above twice the limit, it disconnects the largest
holder. Smaller readers stay connected as long as there are larger ones.

Pure: a connection is a value that returns its unread bytes, and time is an argument.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

PATIENCE_S: Final = 15.0
PROGRESS_BYTES: Final = 65_536
"""Bytes that a peer has to read within `PATIENCE_S` to count as reading."""
SMALL_WRITES_BYTES: Final = 65_536
"""Maximum total size of consecutive writes that are counted as one write."""
KEPT_PART: Final = 8
"""Divisor of the limit: connections that are not known to be slow may hold an eighth of the limit."""
SWEEP_S: Final = 1.0
"""Seconds between two checks of slow readers."""
HIGH_BYTES, MIN_HIGH_BYTES = 524_288, 65_536


class Reader(Protocol):
    """A connection whose peer reads slowly."""

    def unread(self) -> tuple[int, int]:
        """Return the bytes held because the peer does not read, and the number of them in the transport's buffer."""


class Written:
    """Sizes of the writes that a transport may still hold in memory.

    A transport holds the memory of a whole write until it has sent the last byte (uvloop always, asyncio since Python
    3.12). A reply of 4 MiB with 100 KiB left to send still occupies 4 MiB.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: list[int] = []

    def note(self, size: int) -> None:
        """Note a write.

        Args:
            size: bytes of the write.
        """
        sizes = self._sizes
        if sizes and sizes[-1] + size <= SMALL_WRITES_BYTES:
            sizes[-1] += size
        else:
            sizes.append(size)

    def held(self, left: int) -> int:
        """Return the total size of the noted writes that are not sent completely. Forget the other writes.

        Args:
            left: number of bytes that the transport has not sent; these are the last bytes written.
        """
        held, sizes = 0, self._sizes
        for number in range(len(sizes) - 1, -1, -1):
            if held >= left:
                del sizes[: number + 1]
                break
            held += sizes[number]
        return max(held, left)


class Eviction(NamedTuple):
    """A connection to disconnect, the bytes it holds, and the seconds since it last read."""

    reader: Reader
    size: int
    silent_s: float


class _Mark:
    __slots__ = ("left", "since", "size")

    def __init__(self, since: float) -> None:
        self.size = self.left = 0
        self.since = since


class UnreadReplies:
    """Slow readers and the memory that their replies hold.

    Attributes:
        used: bytes held, as of the last checks.
    """

    def __init__(self) -> None:
        self.used = 0
        self._marks: dict[Reader, _Mark] = {}
        # Connections that may hold parts of writes since the last call of `note`, and the total size of these writes.
        self._keeping: dict[Reader, None] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._marks)

    def note(self, reader: Reader, now: float) -> None:
        """Note a connection with unread replies. Forget the connection when it holds no bytes.

        Args:
            reader: the connection.
            now: monotonic seconds.
        """
        size, left = reader.unread()
        if not size:
            self.forget(reader)
            return
        mark = self._marks.get(reader)
        if mark is None:
            mark = self._marks[reader] = _Mark(now)
        self.used += size - mark.size
        mark.size = size
        if left <= mark.left - PROGRESS_BYTES:
            mark.left, mark.since = left, now
        else:
            mark.left = max(left, mark.left)

    def keeps_some(self, reader: Reader, size: int, limit: int) -> list[Reader]:
        """Return the connections to note after a transport has buffered part of a write without pausing.

        Most peers read the rest within a millisecond. So the result is empty until such connections together may hold
        more than an eighth of the limit.

        Args:
            reader: the connection.
            size: bytes of the write.
            limit: maximum bytes that all connections may hold together.
        """
        self._keeping[reader] = None
        self._kept_bytes += size
        if self._kept_bytes * KEPT_PART <= limit:
            return []
        keeping, self._keeping, self._kept_bytes = list(self._keeping), {}, 0
        return keeping

    def forget(self, reader: Reader) -> None:
        """Forget a connection whose peer has read all replies or disconnected."""
        self._keeping.pop(reader, None)
        mark = self._marks.pop(reader, None)
        if mark is not None:
            self.used -= mark.size

    def evictions(self, limit: int, now: float) -> list[Eviction]:
        """Return the connections to disconnect so that the others stay below the limit, largest first.

        Args:
            limit: maximum bytes that all connections may hold together.
            now: monotonic seconds, as for `note`.
        """
        for reader in list(self._marks):
            self.note(reader, now)
        if self.used <= limit:
            return []
        left, found = self.used, []
        for reader, mark in sorted(self._marks.items(), key=lambda item: item[1].size, reverse=True):
            if left > 2 * limit or (left > limit and now - mark.since >= PATIENCE_S):
                found.append(Eviction(reader, mark.size, now - mark.since))
                left -= mark.size
        return found


def high_mark(limit: int, connections: int) -> int:
    """Return the bytes of unread replies above which a peer counts as a slow reader."""
    return max(MIN_HIGH_BYTES, min(HIGH_BYTES, limit // max(connections, 1)))
