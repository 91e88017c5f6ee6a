"""Limits of cold reads of groups (2001 to 2003), and read-ahead of the log (2004).

The broker stores and shows the limits like RocketMQ with `coldDataFlowControlEnable` off. It does not enforce them,
because reads of cold messages do not block other requests.
"""

from __future__ import annotations

from tianzhou.broker.handlers.handler import Handler, serves
from tianzhou.broker.services import Services
from tianzhou.errors import BrokerError, ConfigError
from tianzhou.limits import COLD_READ_GROUPS
from tianzhou.model.name_rules import GROUP
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.setting_updates import read_update
from tianzhou.wire.bodies.replication import COLD_READ_LIMITS, ColdReadLimits
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header

MOST_DIGITS = 19
"""Maximum digits of a number of bytes."""
READ_AHEAD, READ_AT_RANDOM = "0", "1"
"""Values of READ_AHEAD_MODE."""


class ColdReadHandler(Handler):
    """Handler of cold-read limits."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._limits: dict[str, int] = {}

    @serves(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
    def update(self, connection: Connection, command: Command) -> Reply:
        """Set the limits of groups; ignore lines that are not `group=bytes`."""
        try:
            values = read_update(bytes(command.body), self._tables.refusals)
        except ConfigError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the limits cannot be read: {error}") from None
        for group in values:
            GROUP.check(group)
        limits = self._limits | {
            group: int(text) for group, text in values.items() if text.isdecimal() and len(text) <= MOST_DIGITS
        }
        if len(limits) > len(self._limits):
            self._tables.bounds.check(COLD_READ_GROUPS, len(limits))
        self._limits = limits
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG)
    def remove(self, connection: Connection, command: Command) -> Reply:
        """Remove a group's limit."""
        self._limits.pop(bytes(command.body).decode("utf-8", "replace").strip(), None)
        return command.reply(ResponseCode.SUCCESS)

    @serves(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    def show(self, connection: Connection, command: Command) -> Reply:
        """Return all limits."""
        settings = self._tables.settings
        limits = ColdReadLimits(self._limits, settings.cg_cold_read_threshold, settings.global_cold_read_threshold)
        return command.reply(ResponseCode.SUCCESS, body=COLD_READ_LIMITS.dumps(limits))

    @serves(RequestCode.SET_COMMITLOG_READ_MODE)
    def read_mode(self, connection: Connection, command: Command) -> Reply:
        """Advise the operating system whether the log is read in order or at random; the remark names the mode."""
        mode = read_header(command).read_ahead_mode
        if mode is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if mode not in (READ_AHEAD, READ_AT_RANDOM):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        self._store.read_ahead(mode == READ_AHEAD)
        return command.reply(ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}")
