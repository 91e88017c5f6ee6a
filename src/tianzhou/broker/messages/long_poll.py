"""Long polls: pulls that wait for messages that are not there yet (broker.md §10).

Each message that a consumer waits for ends one, so a pull waits without a task and a future, and looks again in the
turn of the loop that wrote the unit (`tianzhou.broker.messages.woken_polls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tianzhou.broker.messages.pull_request import PullRequest
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.turns import Place
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.watermark import Watermark


class LongPollReader(Protocol):
    """Reads for long polls."""

    def look_again(self, pull: LongPoll) -> Reply:
        """Reply after the queue has grown; None to wait on."""

    def look_last(self, pull: LongPoll) -> Reply:
        """Reply when the wait is over."""

    def turn(self, pull: LongPoll) -> asyncio.Future[None] | None:
        """None when the pull may read again now; else a future that is done in its turn."""

    def woken(self, pull: LongPoll) -> None:
        """The queue of a pull has grown: have it `look_again` soon."""

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

    __slots__ = (
        "_arrived", "_error", "_over", "_reader", "_waits", "connection", "found", "in_line", "place", "request",
    )  # fmt: skip

    def __init__(self, reader: LongPollReader, connection: Connection, request: PullRequest, found: GetResult) -> None:
        self._reader = reader
        self._over = self._waits = False
        self._error: BaseException | None = None
        self.connection = connection
        self.request = request
        self.found = found
        self.in_line: Place | None = None
        header = request.header
        self.place = header.consumer_group, header.topic, header.queue_id

    def follow(self, arrived: Watermark) -> None:
        """Read again when the queue, whose end `arrived` is, has grown beyond what was found."""
        self._arrived = arrived
        self._waits = True
        found = self.found
        # A pull before the queue's first message waits for its time, and is woken by new messages only.
        before = found.status is GetStatus.OFFSET_TOO_SMALL
        arrived.wait((found.max_offset if before else found.next_offset) + 1, self)

    def done(self) -> bool:
        """Whether it does not wait for its queue any more; see `tianzhou.watermark.Waiter`."""
        return not self._waits

    def set_result(self, _: None) -> None:
        """The queue has grown."""
        self._waits = False
        self._reader.woken(self)

    def set_exception(self, error: BaseException) -> None:
        """The queue will not grow."""
        self._error = error
        self.set_result(None)

    def expire(self) -> None:
        """End the wait: `suspendTimeoutMillis` has passed, or the group's offset was reset."""
        self._end(self._reader.look_last)

    def cancel(self) -> None:
        """End without an answer."""
        if not self._over:
            self._over = True
            if self._waits:
                self._waits = False
                self._arrived.left()
            self._reader.let_go(self)

    def look_again(self, _: object = None) -> None:
        """Read, and answer or wait on; when the peer has taken what it was sent, and it is its turn."""
        if self._over:
            return
        # A thousand may wake together, for a peer that reads slowly.
        room = self.connection.room() or self._reader.turn(self)
        if room is None:
            self._end(self._read)
        else:
            room.add_done_callback(self.look_again)

    def _read(self, _: LongPoll) -> Reply:
        if self._error is not None:
            raise self._error
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
