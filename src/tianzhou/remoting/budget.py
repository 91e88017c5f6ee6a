"""How much memory half-received frames may take over all connections of a server.

A frame may have 16 MiB, so a hundred peers that send most of one and then stop would hold 1.6 GiB. Above the limit,
connections whose frame needs more room are not read from until others have finished; one of them may always go on,
so that some frame is finished even when all are waiting.

Pure: connections are values with `hold()` and `release()`.
"""

from __future__ import annotations

from typing import Protocol


class Gatherer(Protocol):
    """A connection that gathers a large frame."""

    def hold(self) -> None:
        """Stop reading."""

    def release(self) -> None:
        """Read on."""


class FrameBudget:
    """Counts the bytes set aside for half-received large frames.

    Args:
        limit: bytes above which connections wait. Each is held after the growth that crossed the limit, and
            buffers grow by doubling, so the most really used is twice the limit, one frame and the first
            kilobytes of every frame.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._sizes: dict[Gatherer, int] = {}
        self._waiting: dict[Gatherer, None] = {}
        self._favoured: Gatherer | None = None

    @property
    def waiting(self) -> int:
        """How many connections are held."""
        return len(self._waiting)

    def resized(self, gatherer: Gatherer, size: int) -> None:
        """A connection now has `size` bytes set aside: more, because its frame grows, or 0, because it is done."""
        before = self._sizes.get(gatherer, 0)
        self.used += size - before
        if size:
            self._sizes[gatherer] = size
            if size > before and self.used > self.limit and gatherer is not self._favoured:
                if self._favoured is None:
                    self._favoured = gatherer
                else:
                    self._waiting[gatherer] = None
                    gatherer.hold()
            return
        self._sizes.pop(gatherer, None)
        self._waiting.pop(gatherer, None)
        if gatherer is self._favoured:
            self._favoured = None
        self._let_go()

    def _let_go(self) -> None:
        while self._waiting and (self.used <= self.limit or self._favoured is None):
            gatherer = next(iter(self._waiting))
            del self._waiting[gatherer]
            if self.used > self.limit:
                self._favoured = gatherer
            gatherer.release()
