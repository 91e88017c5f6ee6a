"""Requests about offsets: commits (14, 15), a queue's bounds and times (29 to 32), tables (43, 45) (broker.md §14)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.messages.dictated_offsets import DictatedOffsets
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError, HeaderFieldError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.turns import Slices
from tianzhou.store.results import GetResult, GetStatus, ReadRequest
from tianzhou.wire.bodies.offsets import write_consumer_offsets
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply
from tianzhou.wire.json_dialect import dumps


class OffsetHandler(Handler):
    """Handler of queries and commits of offsets."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._dictated = DictatedOffsets(services.tables, services.replication)

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        """Return a group's committed offset; 0 for a new group on a queue that still starts at 0."""
        header = read_header(command)
        place = header.consumer_group, header.topic, header.queue_id
        offset = self._tables.offsets.committed(*place)
        if offset is None and self._dictated.is_remade(*place):
            offset = 0
        if offset is None or offset < 0:
            return self._query_new(command, header)
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, offset=offset))

    async def _query_new(self, command: Command, header: Any) -> Reply:
        if header.set_zero_if_not_found is False or not await self._starts_at_zero(header.topic, header.queue_id):
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, offset=0))

    async def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        # An empty queue starts at 0, because clients that send right after starting a consumer rely on it. A cold
        # offset 0 does not count: a new group would read the complete log from the disk.
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        reading = self._store.read(ReadRequest(topic, queue_id, 0, 1))
        first = reading if isinstance(reading, GetResult) else await reading
        return first.status is not GetStatus.FOUND or not first.suggest_slave

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, connection: Connection, command: Command) -> Reply:
        """Commit an offset, unless a reset waits for the group's next pull."""
        try:
            header = read_header(command)
        except HeaderFieldError as error:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._check_known(group, topic)
        if self._dictated.wait(group, topic, queue_id):
            return command.reply(ResponseCode.SUCCESS, "Offset has been previously reset")
        self._tables.offsets.commit(group, topic, queue_id, header.commit_offset, self._clock.now_ms())
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    async def by_time(self, connection: Connection, command: Command) -> Reply:
        """Return the offset of a store time."""
        header = read_header(command)
        upper = header.boundary_type.upper() == "UPPER"
        offset = await self._store.find(
            self._store.lookups.offset_steps(header.topic, header.queue_id, header.timestamp, upper=upper)
        )
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, offset=offset))

    @serves(RequestCode.GET_MAX_OFFSET)
    def maximum(self, connection: Connection, command: Command) -> Reply:
        """Return the offset of the queue's next message."""
        header = read_header(command)
        offset = max(self._store.max_offset(header.topic, header.queue_id), 0)
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, offset=offset))

    @serves(RequestCode.GET_MIN_OFFSET)
    def minimum(self, connection: Connection, command: Command) -> Reply:
        """Return the queue's first offset."""
        header = read_header(command)
        offset = max(self._store.min_offset(header.topic, header.queue_id), 0)
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, offset=offset))

    @serves(RequestCode.GET_EARLIEST_MSG_STORETIME)
    async def earliest_time(self, connection: Connection, command: Command) -> Reply:
        """Return the store time of the queue's first message."""
        header = read_header(command)
        timestamp = await self._store.find(self._store.lookups.first_time_steps(header.topic, header.queue_id))
        return command.reply(ResponseCode.SUCCESS, None, write_reply(command.code, timestamp=timestamp))

    @serves(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_committed(self, connection: Connection, command: Command) -> Slices[Reply]:
        """Return the complete table of committed offsets."""
        offsets = self._tables.offsets
        body = yield from write_consumer_offsets(offsets.lazily(), offsets.version)
        return self._table_reply(command, body)

    @serves(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_delays(self, connection: Connection, command: Command) -> Reply:
        """Return the positions of the delay levels."""
        delays = self._tables.delays
        # Return flushed positions only: the next leader must not skip messages whose deliveries were cut off the log.
        found = delays.to_file() if self._store.durability.grouped else delays.to_json()
        return self._table_reply(command, dumps(found))
