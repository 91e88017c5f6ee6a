"""Long polls whose queues have grown, until they look again: in the turn of the loop that wrote the units.

A turn more for each, and one more for what they answer, would let other connections' reads come between a message and
who waits for it. A few look in each turn, however many queues have grown, so that the loop serves others in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tianzhou.broker.messages.long_poll import LongPoll
from tianzhou.remoting.connection import Connection
from tianzhou.store.store import MessageStore
from tianzhou.watermark import WAKES_PER_TURN


class WokenPolls:
    """Has them look again, the longest waiting first.

    Args:
        store: whose queues they wait for.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._woken: deque[LongPoll] = deque()
        self._scheduled = False
        store.after_dispatch(self._dispatched)

    def put(self, pull: LongPoll) -> None:
        """Have a pull look again: at the end of the dispatch that goes on, else in the next turn."""
        self._woken.append(pull)
        if not (self._scheduled or self._store.dispatching):
            self._schedule()

    def _dispatched(self) -> None:
        # Who is left over from the turn before comes first, and looks in this one.
        if not self._scheduled:
            self._look()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._look_later)

    def _look_later(self) -> None:
        self._scheduled = False
        self._look()

    def _look(self) -> None:
        """Have some look; what they find leaves in one write for each connection."""
        woken = self._woken
        answered: dict[Connection, None] = {}
        for _ in range(min(len(woken), WAKES_PER_TURN)):
            pull = woken.popleft()
            pull.look_again()
            answered[pull.connection] = None
        for connection in answered:
            connection.send_all([])
        if woken:
            self._schedule()
