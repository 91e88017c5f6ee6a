"""Recall of delayed messages (370): the answer of a broker whose `recallMessageEnable` is off (broker.md §7.5)."""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.model import names
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command


class RecallHandler(Handler):
    """Handler that refuses recalls, because there is no timer wheel."""

    @serves(RequestCode.RECALL_MESSAGE)
    def recall(self, connection: Connection, command: Command) -> Reply:
        """Refuse the recall."""
        fields = {names.MSG_REGION: self._tables.settings.region_id}
        return command.reply(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden", fields)
