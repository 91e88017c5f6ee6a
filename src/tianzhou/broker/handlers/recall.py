"""Delayed messages taken back (370): the answer of a broker whose `recallMessageEnable` is off (broker.md §7.5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tianzhou.broker.state import Tables
from tianzhou.model import names
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command


class RecallHandler:
    """Refuses, until there is a timer wheel to take messages from.

    Args:
        tables: the broker's settings.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def routes(self) -> dict[int, Callable[[Connection, Command], Reply | Awaitable[Reply]]]:
        """Handlers by request code."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, command: Command) -> Reply:
        """Refuse."""
        fields = {names.MSG_REGION: self._tables.settings.region_id}
        return command.reply(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden", fields)
