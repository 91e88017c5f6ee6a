"""Requests about limits of senders (31030, 31031), which are Tianzhou's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.admission import refuse_as_slave
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.model.send_limit import decode_limit, split_key
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.json_dialect import dumps_plain

LIMIT: Final = "limit"
"""Header field of `UPDATE_SEND_LIMITS`: the key of the limit."""
DELETE: Final = "delete"
"""Header field of `UPDATE_SEND_LIMITS`: `true` deletes the limit; otherwise fields of `SendLimit.to_json` set it."""


class SendLimitHandler(Handler):
    """Handler that changes and lists limits of senders.

    Args:
        services: the broker's services.
        settled: waits until changed tables are on the disk.
    """

    def __init__(self, services: Services, settled: Callable[[], Awaitable[None]]) -> None:
        super().__init__(services)
        self._settled = settled

    @serves(RequestCode.UPDATE_SEND_LIMITS)
    async def update_limits(self, connection: Connection, command: Command) -> Reply:
        """Set or delete one limit, and answer once the change is on the disk."""
        refuse_as_slave(self._replication, "limits of senders are changed")
        fields, table = command.fields, self._tables.send_limits
        key = fields.get(LIMIT, "")
        try:
            if fields.get(DELETE) == "true":
                scope, name = split_key(key)
                if key not in table.all():
                    raise BrokerError(ResponseCode.QUERY_NOT_FOUND, f"there is no limit of {scope} {name}")
                table.delete([key])
            else:
                table.put([decode_limit(key, fields)])
        except ConfigError as error:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        await self._settled()
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.READ_SEND_LIMITS)
    def read_limits(self, connection: Connection, command: Command) -> Reply:
        """Return all limits, and the number of messages that each has refused since the start."""
        table = self._tables.send_limits
        refused = {
            key: {"count": one.count, "name": one.name, "lastMs": one.last_ms} for key, one in table.refused.items()
        }
        return self._table_reply(command, dumps_plain(table.to_json() | {"refused": refused}))
