"""Long polls: pulls that wait for messages that are not there yet (broker.md §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from tianzhou.broker.messages.message_filter import Selection
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.deferred_reply import DeferredReply
from tianzhou.remoting.turns import Place
from tianzhou.store.results import GetResult
from tianzhou.watermark import Watermark
from tianzhou.wire.command import Command


class Keeper(Protocol):
    """Who holds pulls and reads for them."""

    def look_again(self, pull: HeldPull) -> Reply:
        """The answer now that its queue has grown; None when it is to wait on."""

    def look_last(self, pull: HeldPull) -> Reply:
        """The answer now that it waits no longer."""

    def turn(self, pull: HeldPull) -> asyncio.Future[None] | None:
        """None when it may look again now; else what is done when it is its turn."""

    def let_go(self, pull: HeldPull) -> None:
        """It has ended."""


class HeldPull(DeferredReply):
    """A pull that found nothing and waits for its queue to grow.

    Args:
        keeper: who reads for it.
        connection: whose pull it is.
        command: the request.
        header: its fields.
        group: who pulls.
        topic: of the queue.
        wanted: what is selected.
        found: what was found so far.

    Attributes:
        in_line: its place in line, before it may look again.
    """

    __slots__ = (
        "_arrived", "_connection", "_growth", "_keeper", "_over", "command", "found", "group", "header", "in_line",
        "place", "topic", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        keeper: Keeper,
        connection: Connection,
        command: Command,
        header: Any,
        group: SubscriptionGroupConfig,
        topic: TopicConfig,
        wanted: Selection,
        found: GetResult,
    ) -> None:
        self._keeper = keeper
        self._over = False
        self._connection = connection
        self.command = command
        self.header = header
        self.group = group
        self.topic = topic
        self.wanted = wanted
        self.found = found
        self.in_line: Place | None = None
        self.place = header.consumer_group, header.topic, header.queue_id

    def follow(self, arrived: Watermark) -> None:
        """Have the keeper look again when its queue, whose end `arrived` is, has grown beyond what was found."""
        self._arrived = arrived
        self._growth = arrived.reached(self.found.next_offset + 1)
        self._growth.add_done_callback(self._grown)

    def time_up(self) -> None:
        """End with what was found, if nothing else."""
        self._end(self._keeper.look_last)

    def cancel(self) -> None:
        """Wait no longer, and answer nothing."""
        if not self._over:
            self._over = True
            self._arrived.forget(self._growth)
            self._keeper.let_go(self)

    def _grown(self, _: asyncio.Future[None]) -> None:
        if self._over:
            return
        # Whoever waits here may wake with a thousand others, for a peer that reads slowly.
        room = self._connection.room() or self._keeper.turn(self)
        if room is None:
            self._end(self._look_again)
        else:
            room.add_done_callback(self._grown)

    def _look_again(self, _: HeldPull) -> Reply:
        self._growth.result()
        return self._keeper.look_again(self)

    def _end(self, look: Callable[[HeldPull], Reply]) -> None:
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
