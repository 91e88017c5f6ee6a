"""Long polls: pulls that wait for messages that are not there yet (broker.md §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tianzhou.broker.messages.pull_request import PullRequest
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.turns import Place
from tianzhou.store.results import GetResult
from tianzhou.watermark import Watermark


class LongPollReader(Protocol):
    """Reads for long polls."""

    def look_again(self, pull: LongPoll) -> Reply:
        """Reply after the queue has grown; None to wait on."""

    def look_last(self, pull: LongPoll) -> Reply:
        """Reply when the wait is over."""

    def turn(self, pull: LongPoll) -> asyncio.Future[None] | None:
        """None when the pull may read again now; else a future that is done in its turn."""

    def let_go(self, pull: LongPoll) -> None:
        """Forget a pull that has ended."""


class LongPoll(DeferredReply):
    """A pull that found nothing and waits for its queue to grow.

    Args:
        reader: reads for it.
        connection: the peer's.
        request: the pull.
        found: the last read's result.

    Attributes:
        connection: the peer's.
        place: group, topic and queue.
        in_line: its place in line for the next read.
    """

    __slots__ = ("_arrived", "_growth", "_over", "_reader", "connection", "found", "in_line", "place", "request")

    def __init__(self, reader: LongPollReader, connection: Connection, request: PullRequest, found: GetResult) -> None:
        self._reader = reader
        self._over = False
        self.connection = connection
        self.request = request
        self.found = found
        self.in_line: Place | None = None
        header = request.header
        self.place = header.consumer_group, header.topic, header.queue_id

    def follow(self, arrived: Watermark) -> None:
        """Read again when the queue, whose end `arrived` is, has grown beyond what was found."""
        self._arrived = arrived
        self._growth = arrived.reached(self.found.next_offset + 1)
        self._growth.add_done_callback(self._grown)

    def expire(self) -> None:
        """End the wait: `suspendTimeoutMillis` has passed, or the group's offset was reset."""
        self._end(self._reader.look_last)

    def cancel(self) -> None:
        """End without an answer."""
        if not self._over:
            self._over = True
            self._arrived.forget(self._growth)
            self._reader.let_go(self)

    def _grown(self, _: asyncio.Future[None]) -> None:
        if self._over:
            return
        # A thousand may wake together, for a peer that reads slowly.
        room = self.connection.room() or self._reader.turn(self)
        if room is None:
            self._end(self._look_again)
        else:
            room.add_done_callback(self._grown)

    def _look_again(self, _: LongPoll) -> Reply:
        self._growth.result()
        return self._reader.look_again(self)

    def _end(self, look: Callable[[LongPoll], Reply]) -> None:
        reply: Reply | Exception
        try:
            reply = look(self)
        except Exception as error:  # noqa: BLE001 - every failure of a handler becomes a reply
            reply = error
        if reply is None:
            self.follow(self._arrived)
        else:
            self.cancel()
            self.answer(reply)
