"""Finding single messages: by offset id (33) and by key (12) (wire.md §7.5)."""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Pace
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply


class QueryHandler(Handler):
    """Looks messages up."""

    @serves(RequestCode.VIEW_MESSAGE_BY_ID)
    async def view(self, connection: Connection, command: Command) -> Reply:
        """The record at a commit-log offset."""
        header = read_header(command)
        record = await self._store.find(self._store.lookups.record_steps(header.offset))
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return command.reply(ResponseCode.SUCCESS, body=bytes(record))

    @serves(RequestCode.QUERY_MESSAGE)
    async def query(self, connection: Connection, command: Command) -> Reply:
        """Records by key; only hashes are compared, the client looks again."""
        header = read_header(command)
        settings = self._store.settings
        wanted = settings.default_query_max_num if header.unique_key_query else header.max_num
        async with Pace(self._turns) as pace:
            found = await self._store.find(
                self._store.lookups.key_steps(
                    header.topic,
                    header.key,
                    min(wanted, settings.max_msgs_num_batch),
                    header.begin_timestamp,
                    header.end_timestamp,
                ),
                pace.rest,
            )
        fields = write_reply(
            command.code,
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_phyoffset,
        )
        if not found.parts:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return command.reply(ResponseCode.SUCCESS, None, fields, b"".join(found.parts))
