"""Memory budgets over all connections of a server: half-received frames, and requests being served.

A frame may have 16 MiB. A hundred peers that send most of one and then stop would hold 1.6 GiB, and ten thousand peers
that stop after the first read would hold 1.3 GiB. Above the limit, the server does not read from connections whose
frame needs more memory until others have finished. One of them is exempt, so that some frame is finished even when all
wait. Meanwhile all reads are small. A connection that holds no more than such a read does not wait, so requests of a
few kilobytes are still served.

`RequestBudget` counts requests in service. Each connection may have some, but all connections together are limited.

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
    """A connection that can be held: the server does not read from it until it is released."""

    def hold(self, reason: int = ...) -> None:
        """Stop reading."""

    def release(self, reason: int = ...) -> None:
        """Resume reading."""


class FrameBudget:
    """Counter of bytes reserved for half-received frames.

    Args:
        limit: bytes above which connections wait. Each is held after the growth that crossed the limit, and buffers
            double when they grow. Small reads of all connections together may take the limit once more, unless there
            are more connections than one per 2 KiB of it. So the maximum use is three times the limit and one frame.

    Attributes:
        used: bytes reserved now.
        read_size: bytes of one read from a connection without a buffer of its own.
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
        """Set the number of connections that share the budget."""
        # A frame that two small reads do not complete gets a buffer of twice its size.
        self._small = max(SMALLEST_READ, min(LARGEST_SMALL_READ, self.limit // (4 * max(connections, 1))))
        self._choose_reads()

    def reserve(self, connection: Holdable, size: int, *, finished: bool = False) -> None:
        """Set the bytes that a connection has reserved for an incomplete frame.

        Args:
            connection: the connection that receives the frame.
            size: bytes; 0 without an incomplete frame.
            finished: whether its last frame is complete now, and `size` belongs to the next one.
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
    """Counter of bytes of requests in service.

    Above the limit, the server does not read from connections that use more than their share, until enough requests
    are answered. Connections below their share are still served.

    Args:
        limit: bytes above which connections wait; the maximum use is 1.5 times the limit and one read of each.

    Attributes:
        used: bytes now; the connections raise and lower it.
        connections: number of connections that share the limit.
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
        """Hold a connection that grew to `size` bytes above the limit. Return False when it is below its share."""
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
