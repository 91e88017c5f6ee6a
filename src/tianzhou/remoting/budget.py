"""Memory budgets over all connections of a server: half-received frames, and requests being served.

A frame may have 16 MiB, so a hundred peers that send most of one and then stop would hold 1.6 GiB; and ten thousand
that stop after the first read would hold 1.3 GiB. Above the limit, connections whose frame needs more room are not
read from until others have finished; one of them is exempt, so that some frame is finished even when all are
waiting. Meanwhile all reads are small, and a connection that holds no more than such a read does not wait: requests of
a few kilobytes are served on.

`RequestBudget` counts requests whose answers are being worked on: each connection may have some, but not all of them
together any number.

Pure: connections are values with `hold()` and `release()`.
"""

from __future__ import annotations

from typing import Final, Protocol

from tianzhou.remoting.session import READ_SIZE

SMALLEST_READ: Final = 512
LARGEST_SMALL_READ: Final = 4096
FRAMES, REQUESTS, REPLIES, ACKNOWLEDGEMENTS = 8, 16, 32, 64
"""Reasons to hold a connection."""


class Holdable(Protocol):
    """A connection that can be held: not read from until it is released."""

    def hold(self, reason: int = ...) -> None:
        """Stop reading."""

    def release(self, reason: int = ...) -> None:
        """Read on."""


class FrameBudget:
    """Counts every byte reserved for half-received frames.

    Args:
        limit: bytes above which connections wait. Each is held after the growth that crossed the limit, and buffers
            grow by doubling; small reads of all connections together may take the limit once more, unless there are
            more connections than one per 2 KiB of it. So the most really used is three times the limit and one frame.

    Attributes:
        used: bytes reserved now.
        read_size: bytes to read at once from a connection without a buffer of its own.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.read_size = READ_SIZE
        self._small = LARGEST_SMALL_READ
        self._sizes: dict[Holdable, int] = {}
        self._waiting: dict[Holdable, None] = {}
        self._exempt: Holdable | None = None

    @property
    def waiting(self) -> int:
        """Number of held connections."""
        return len(self._waiting)

    def set_connections(self, connections: int) -> None:
        """Set how many connections share the budget."""
        # A frame that two small reads do not complete gets a buffer of twice its size.
        self._small = max(SMALLEST_READ, min(LARGEST_SMALL_READ, self.limit // (4 * max(connections, 1))))
        self._choose_reads()

    def reserve(self, connection: Holdable, size: int, *, finished: bool = False) -> None:
        """Set how many bytes a connection has reserved for a frame that is not whole.

        Args:
            connection: whose frame it is.
            size: bytes, 0 when there is no such frame.
            finished: whether its last frame is whole now, `size` being the next one's.
        """
        before = self._sizes.get(connection, 0)
        self.used += size - before
        if size:
            self._sizes[connection] = size
        else:
            self._sizes.pop(connection, None)
        self._choose_reads()
        done = finished or not size
        if done:
            if connection is self._exempt:
                self._exempt = None
            if connection in self._waiting:
                del self._waiting[connection]
                connection.release()
        if done or size < before:
            self._release_next()
        if self.used > self.limit and size > self._small and (finished or size > before):
            self._wait(connection)

    def _choose_reads(self) -> None:
        self.read_size = self._small if self.used > self.limit else READ_SIZE

    def _wait(self, connection: Holdable) -> None:
        if self._exempt is None:
            self._exempt = connection
        elif connection is not self._exempt and connection not in self._waiting:
            self._waiting[connection] = None
            connection.hold()

    def _release_next(self) -> None:
        while self._waiting and (self.used <= self.limit or self._exempt is None):
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            if self.used > self.limit:
                self._exempt = connection
            connection.release()


class RequestBudget:
    """Counts every byte of requests being served.

    Above the limit, connections that have more than their share are not read from until some of theirs are answered,
    or enough of others'. Who has less is served on.

    Args:
        limit: bytes above which connections wait; what is really used is half as much again, and a read of each.

    Attributes:
        used: bytes now; raised and lowered by the connections.
        connections: how many share the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.connections = 1
        self._waiting: dict[Holdable, None] = {}

    @property
    def waiting(self) -> int:
        """Number of held connections."""
        return len(self._waiting)

    def grew_above_limit(self, connection: Holdable, size: int) -> bool:
        """Hold a connection that grew to `size` bytes above the limit; False when it has less than its share."""
        if connection in self._waiting or size * 2 * self.connections < self.limit:
            return False
        self._waiting[connection] = None
        connection.hold(REQUESTS)
        return True

    def shrank(self, connection: Holdable, size: int) -> None:
        """Release connections after one shrank to `size` bytes."""
        if self.used <= self.limit // 2:
            waiting, self._waiting = self._waiting, {}
            for held in waiting:
                held.release(REQUESTS)
        elif connection in self._waiting and size * 4 * self.connections < self.limit:
            del self._waiting[connection]
            connection.release(REQUESTS)

    def forget(self, connection: Holdable) -> None:
        """Forget a lost connection."""
        self._waiting.pop(connection, None)
