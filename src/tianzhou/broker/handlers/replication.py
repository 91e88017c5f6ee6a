"""Requests among members of a broker group (905 to 908, 1007, 1008), answered by a master without replicas.

The answers are those of Apache's broker that has neither replicas nor a controller (broker.md §17.5).
"""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.wire.bodies.replication import HA_STATUS, HaStatus
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply


class ReplicationHandler(Handler):
    """Answers for a master that has no replica.

    Args:
        services: of the broker.
        ha_address: the address replicas are to use.
    """

    def __init__(self, services: Services, ha_address: str) -> None:
        super().__init__(services)
        self._ha_address = ha_address

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
            master_ha_address=self._ha_address,
            master_flush_offset=self._store.flushed.value,
            master_address=self._address,
        )
        return command.reply(ResponseCode.SUCCESS, None, fields)

    @serves(RequestCode.GET_BROKER_HA_STATUS)
    def status(self, connection: Connection, command: Command) -> Reply:
        """The master's end of its log, and no connections."""
        body = HA_STATUS.dumps(HaStatus(master=True, master_commit_log_max_offset=self._store.end_offset))
        return command.reply(ResponseCode.SUCCESS, body=body)

    @serves(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self, connection: Connection, command: Command) -> Reply:
        """Known with a controller only."""
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
