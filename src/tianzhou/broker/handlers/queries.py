"""Queries of single messages by offset id (33) and by key (12) (wire.md §7.5)."""

from __future__ import annotations

from tianzhou.access.requests import AccessDenied
from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError, CorruptRecord
from tianzhou.model import names
from tianzhou.records.codec import decode_record
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.turns import Pace
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply


class QueryHandler(Handler):
    """Handler of queries of messages.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._access = services.access

    @serves(RequestCode.VIEW_MESSAGE_BY_ID)
    async def view(self, connection: Connection, command: Command) -> Reply:
        """Return the record at a commit-log offset, when the peer may read the topic that the record is of."""
        header = read_header(command)
        record = await self._store.find(self._store.lookups.record_steps(header.offset))
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        if self._access is not None:
            self._check_topic(self._access, connection, command, record)
        return command.reply(ResponseCode.SUCCESS, body=bytes(record))

    @staticmethod
    def _check_topic(access: AccessGate, connection: Connection, command: Command, record: memoryview) -> None:
        """Check that the peer may view messages of a record's topic, whatever topic the request names.

        Raises:
            AccessDenied: the peer has no right, or the record is damaged and its topic unknown.
        """
        header = read_header(command)
        try:
            topic = decode_record(record).topic
        except CorruptRecord:
            topic = names.HALF_TOPIC  # the record may be of any topic, so it needs an administrator
        if topic == header.topic:
            return  # access control has checked this topic
        if not access.may_view(connection, command, topic):
            refusal = AccessDenied(
                ResponseCode.NO_PERMISSION, f"the message at offset {header.offset} is of a topic you may not read"
            )
            access.refused(connection, command, refusal, topic)
            raise refusal

    @serves(RequestCode.QUERY_MESSAGE)
    async def query(self, connection: Connection, command: Command) -> Reply:
        """Return records by key; only hashes are compared, and the client checks the keys."""
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
