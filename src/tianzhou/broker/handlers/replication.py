"""Requests among members of a broker group (905 to 908, 1007, 1008; broker.md §17.5).

Those of controllers are answered as by Apache's broker without one.
"""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.replication import HA_STATUS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply


class ReplicationHandler(Handler):
    """Answers for a master or a slave."""

    @serves(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    )
    def ignore(self, connection: Connection, command: Command) -> Reply:
        """What concerns replicas and controllers only."""
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.EXCHANGE_BROKER_HA_INFO)
    def exchange(self, connection: Connection, command: Command) -> Reply:
        """Where the master is and how far its disk is, for one that does not say so itself."""
        if read_header(command).master_ha_address:
            return command.reply(ResponseCode.SUCCESS)
        fields = write_reply(
            command.code,
            master_ha_address=self._replication.ha_address,
            master_flush_offset=self._store.flushed.value,
            master_address=self._address,
        )
        return command.reply(ResponseCode.SUCCESS, None, fields)

    @serves(RequestCode.GET_BROKER_HA_STATUS)
    def status(self, connection: Connection, command: Command) -> Reply:
        """How far copies are."""
        return command.reply(ResponseCode.SUCCESS, body=HA_STATUS.dumps(self._replication.status()))

    @serves(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self, connection: Connection, command: Command) -> Reply:
        """Known with a controller only."""
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
