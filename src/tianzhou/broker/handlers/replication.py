"""Requests among members of a broker group (905 to 908, 1007, 1008, 31010; broker.md §17.5).

Requests of controllers get the answers of an Apache broker without a controller.
"""

from __future__ import annotations

import logging

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.replication.log_repairs import PIECE
from tianzhou.errors import BrokerError, StoreError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.replication import HA_STATUS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

_log = logging.getLogger(__name__)


class ReplicationHandler(Handler):
    """Handler of requests among masters and slaves."""

    @serves(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    def ignore(self, connection: Connection, command: Command) -> Reply:
        """Accept requests that concern only acting masters and controllers."""
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.RESET_MASTER_FLUSH_OFFSET)
    def reset(self, connection: Connection, command: Command) -> Reply:
        """Set the end of the master's log at its start; a master ignores it."""
        if self._replication.is_slave:
            self._replication.master_flush_offset = read_header(command).master_flush_offset
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.EXCHANGE_BROKER_HA_INFO)
    def exchange(self, connection: Connection, command: Command) -> Reply:
        """Return the master's address and the end of its log at its start, unless the request reports a master.

        A halted Tianzhou slave reports its halt with this request.
        """
        header = read_header(command)
        if not self._replication.is_slave:
            line = self._replication.halted_slaves.reported(command.fields, self._clock.monotonic())
            if line:
                _log.error("%s", line)
        if header.master_ha_address:
            self._replication.master_reported(header.master_flush_offset)
        if header.master_ha_address or self._replication.is_slave:
            return command.reply(ResponseCode.SUCCESS)
        fields = write_reply(
            command.code,
            master_ha_address=self._replication.ha_address,
            master_flush_offset=self._store.report.end,
            master_address=self._address,
        )
        return command.reply(ResponseCode.SUCCESS, None, fields)

    @serves(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def request_modes(self, connection: Connection, command: Command) -> Reply:
        """Return an empty table of request modes for slaves of RocketMQ 5, because all groups pull."""
        return command.reply(ResponseCode.SUCCESS, body=b'{"messageRequestModeMap":{}}')

    @serves(RequestCode.GET_BROKER_HA_STATUS)
    def status(self, connection: Connection, command: Command) -> Reply:
        """Return the state of the copies."""
        return command.reply(ResponseCode.SUCCESS, body=HA_STATUS.dumps(self._replication.status()))

    @serves(RequestCode.READ_LOG)
    async def read_log(self, connection: Connection, command: Command) -> Reply:
        """Return raw bytes of the commit log for a broker of this group whose bytes are broken (docs/adr/0016)."""
        header = read_header(command)
        if not 0 < header.size <= PIECE or header.offset < 0:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.size} bytes at {header.offset} of the log: 1 to {PIECE} at a time",
            )
        while True:
            try:
                found = self._store.log_bytes(header.offset, header.size)
            except StoreError as error:
                raise BrokerError(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
            if isinstance(found, memoryview):
                return command.reply(ResponseCode.SUCCESS, body=bytes(found))
            await found

    @serves(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self, connection: Connection, command: Command) -> Reply:
        """Refuse the request, which only a broker with a controller serves."""
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
