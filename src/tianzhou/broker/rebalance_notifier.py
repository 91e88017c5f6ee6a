"""Telling the members of consumer groups that members came or went (broker.md §15).

Each change concerns every member, so that thousands that come together would mean millions of notices. A group of a few
is told of each change at once. A large one is told a few members in a turn of the loop, and again after a pause in
proportion to its size; what changed meanwhile is told then, all in one.
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

AT_ONCE: Final = 64
"""So many members are told in one turn of the loop; groups of no more are always told at once."""
PAUSE_S: Final = 0.0001
"""For each member of a large group, before it is told again: a second for ten thousand."""

_log = logging.getLogger(__name__)


class MemberNews:
    """Tells members.

    Args:
        members: connections of a group's members, none when they are not to be told.
    """

    def __init__(self, members: Callable[[str], list[Connection]]) -> None:
        self._members = members
        # Large groups that are being told, or were a moment ago; whether there is more to tell by now.
        self._busy: dict[str, bool] = {}

    def tell(self, group: str) -> None:
        """Tell the members of a group, now or soon, that members came or went."""
        if group in self._busy:
            self._busy[group] = True
            return
        members = self._members(group)
        if len(members) <= AT_ONCE:
            for connection in members:
                _tell(connection, group)
        else:
            self._busy[group] = False
            start_in_turns(self._tell_all(group, members))

    def _tell_all(self, group: str, members: list[Connection]) -> Iterator[None]:
        for number, connection in enumerate(members, 1):
            _tell(connection, group)
            if number % AT_ONCE == 0:
                yield
        asyncio.get_running_loop().call_later(len(members) * PAUSE_S, self._rested, group)

    def _rested(self, group: str) -> None:
        if self._busy.pop(group):
            self.tell(group)


def _tell(connection: Connection, group: str) -> None:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    try:
        connection.invoke_oneway(Command(code, fields=write_header(code, consumer_group=group)))
    except ConnectionLost:
        return
    except Exception:  # noqa: BLE001 - the others of the group have to hear of it, now and later
        _log.exception("%s cannot be told that group %s changed", connection, shown(group))
