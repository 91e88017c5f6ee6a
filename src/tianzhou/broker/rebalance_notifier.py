"""Notifications of consumer groups whose members changed, so that they rebalance (broker.md §15).

Each change concerns every member, so thousands of new members would cause millions of notifications. Small groups are
notified of each change at once. A large group is notified a few members per loop turn. A pause in proportion to its
size follows, and changes in the pause share one notification.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from tianzhou.errors import ConnectionLost
from tianzhou.escaping import shown
from tianzhou.remoting.connection import Connection
from tianzhou.slices import start_in_turns
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header

NOTICES_PER_TURN: Final = 64
"""Maximum members notified per loop turn; groups up to this size are always notified at once."""
PAUSE_S: Final = 0.0001
"""Seconds of pause for each member of a large group; one second for ten thousand members."""

_log = logging.getLogger(__name__)


class RebalanceNotifier:
    """Sender of notifications to the members of groups.

    Args:
        members: returns the connections of a group's members; none for a group without notifications.
    """

    def __init__(self, members: Callable[[str], list[Connection]]) -> None:
        self._members = members
        # Large groups that are being notified or pause afterwards, and whether they changed since.
        self._busy: dict[str, bool] = {}

    def notify(self, group: str) -> None:
        """Notify the members of a group of a change of members, now or after a pause."""
        if group in self._busy:
            self._busy[group] = True
            return
        members = self._members(group)
        if len(members) <= NOTICES_PER_TURN:
            for connection in members:
                _notify(connection, group)
        else:
            self._busy[group] = False
            start_in_turns(self._notify_all(group, members))

    def _notify_all(self, group: str, members: list[Connection]) -> Iterator[None]:
        for number, connection in enumerate(members, 1):
            _notify(connection, group)
            if number % NOTICES_PER_TURN == 0:
                yield
        asyncio.get_running_loop().call_later(len(members) * PAUSE_S, self._pause_over, group)

    def _pause_over(self, group: str) -> None:
        if self._busy.pop(group):
            self.notify(group)


def _notify(connection: Connection, group: str) -> None:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    try:
        connection.invoke_oneway(Command(code, fields=write_header(code, consumer_group=group)))
    except ConnectionLost:
        return
    except Exception:  # noqa: BLE001 - the others of the group have to hear of it, now and later
        _log.exception("%s cannot be notified that group %s changed", connection, shown(group))
