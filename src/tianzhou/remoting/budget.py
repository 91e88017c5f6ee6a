"""How much memory half-received frames may take over all connections of a server.

A frame may have 16 MiB, so a hundred peers that send most of one and then stop would hold 1.6 GiB; and ten thousand
that stop after the first read would hold 1.3 GiB. Above the limit, connections whose frame needs more room are not
read from until others have finished; one of them may always go on, so that some frame is finished even when all are
waiting. Meanwhile all reads are small, and who keeps no more than such a read does not wait: requests of a few
kilobytes are served on.

Requests whose answers are being worked on are counted, too (`RequestBudget`): each connection may have some, but not
all of them together any number.

Pure: connections are values with `hold()` and `release()`.
"""

from __future__ import annotations

from typing import Final, Protocol

from tianzhou.remoting.session import READ_SIZE

SMALLEST_READ: Final = 512
LARGEST_SMALL_READ: Final = 4096
FRAMES, REQUESTS, REPLIES = 8, 16, 32
"""Reasons to hold a connection."""


class Gatherer(Protocol):
    """A connection that may keep half a frame, or have requests that are worked on."""

    def hold(self, reason: int = ...) -> None:
        """Stop reading."""

    def release(self, reason: int = ...) -> None:
        """Read on."""


class FrameBudget:
    """Counts every byte that is kept for half-received frames.

    Args:
        limit: bytes above which connections wait. Each is held after the growth that crossed the limit, and buffers
            grow by doubling; small reads of all connections together may take the limit once more, unless there are
            more connections than one per 2 KiB of it. So the most really used is three times the limit and one frame.

    Attributes:
        used: bytes kept now.
        read_size: how much is to be read at once from a connection without a buffer of its own.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.read_size = READ_SIZE
        self._small = LARGEST_SMALL_READ
        self._sizes: dict[Gatherer, int] = {}
        self._waiting: dict[Gatherer, None] = {}
        self._favoured: Gatherer | None = None

    @property
    def waiting(self) -> int:
        """How many connections are held."""
        return len(self._waiting)

    def shared_by(self, connections: int) -> None:
        """There are now so many connections."""
        # What is kept behind two small reads gets a buffer of twice its size.
        self._small = max(SMALLEST_READ, min(LARGEST_SMALL_READ, self.limit // (4 * max(connections, 1))))
        self._choose_reads()

    def keeps(self, gatherer: Gatherer, size: int, *, finished: bool = False) -> None:
        """A connection now has `size` bytes set aside for a frame that is not whole, 0 when there is none.

        Args:
            gatherer: the connection.
            size: bytes.
            finished: whether the frame it gathered before is whole; what it keeps is the next one's.
        """
        before = self._sizes.get(gatherer, 0)
        self.used += size - before
        if size:
            self._sizes[gatherer] = size
        else:
            self._sizes.pop(gatherer, None)
        self._choose_reads()
        done = finished or not size
        if done:
            if gatherer is self._favoured:
                self._favoured = None
            if gatherer in self._waiting:
                del self._waiting[gatherer]
                gatherer.release()
        if done or size < before:
            self._let_go()
        if self.used > self.limit and size > self._small and (finished or size > before):
            self._wait(gatherer)

    def _choose_reads(self) -> None:
        self.read_size = self._small if self.used > self.limit else READ_SIZE

    def _wait(self, gatherer: Gatherer) -> None:
        if self._favoured is None:
            self._favoured = gatherer
        elif gatherer is not self._favoured and gatherer not in self._waiting:
            self._waiting[gatherer] = None
            gatherer.hold()

    def _let_go(self) -> None:
        while self._waiting and (self.used <= self.limit or self._favoured is None):
            gatherer = next(iter(self._waiting))
            del self._waiting[gatherer]
            if self.used > self.limit:
                self._favoured = gatherer
            gatherer.release()


class RequestBudget:
    """Counts every byte of requests whose answers are being worked on.

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
        self._waiting: dict[Gatherer, None] = {}

    @property
    def waiting(self) -> int:
        """How many connections are held."""
        return len(self._waiting)

    def crossed(self, holder: Gatherer, size: int) -> bool:
        """A connection took more, now `size` bytes, and the limit is crossed; whether it was held for that."""
        if holder in self._waiting or size * 2 * self.connections < self.limit:
            return False
        self._waiting[holder] = None
        holder.hold(REQUESTS)
        return True

    def fell(self, holder: Gatherer, size: int) -> None:
        """A connection has fewer, now `size` bytes, while some are held."""
        if self.used <= self.limit // 2:
            waiting, self._waiting = self._waiting, {}
            for one in waiting:
                one.release(REQUESTS)
        elif holder in self._waiting and size * 4 * self.connections < self.limit:
            del self._waiting[holder]
            holder.release(REQUESTS)

    def left(self, holder: Gatherer) -> None:
        """A connection is gone."""
        self._waiting.pop(holder, None)
