"""Busy polling: the loop stays awake for a peer that sends one request at a time.

Between a reply and the next request of such a peer there is nothing to do for some ten microseconds. A loop that falls
asleep has to be woken, which takes longer than serving the request, on a virtual machine several times as long. So the
loop of a peer whose requests came at once a few times in a row polls for more for a moment before it sleeps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

STREAK = 4
"""Requests in a row that came within `busy_poll_s` before the loop stays awake for the next."""
MAX_POLLS = 256
"""Maximum loop turns spent polling for one request, should the clock stand still."""


class BusyPoll:
    """Polls for the next request for a while after a reply, where that has paid lately.

    Only one peer at a time is worth it: with several there is work enough, or others who need the processor. Who lets
    the time pass once, or has to wait for a reply, has to ask quickly `STREAK` times again before the loop polls.

    Args:
        loop: the event loop.
        monotonic: clock of `gap_s` and `busy_poll_s`, seconds.
        busy_poll_s: seconds of polling after a reply; 0 never polls.
    """

    __slots__ = ("_busy_poll_s", "_loop", "_monotonic", "_peer", "_polling", "_polls_left", "_streak", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float], busy_poll_s: float) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._busy_poll_s = busy_poll_s
        self._peer: object = None
        self._streak = self._polls_left = 0
        self._until = 0.0
        self._polling = False

    def requested(self, peer: object, gap_s: float) -> None:
        """Note a request of a peer.

        Args:
            peer: who, compared by identity.
            gap_s: seconds since something was last written to it before; `inf` when it has to wait for its reply.
        """
        if peer is not self._peer:
            self._peer, self._streak = peer, 0
        elif gap_s > self._busy_poll_s:
            self._streak = 0
        elif self._streak < STREAK:
            self._streak += 1
        else:
            self._until, self._polls_left = self._monotonic() + self._busy_poll_s, MAX_POLLS
            if not self._polling:
                self._polling = True
                self._loop.call_soon(self._poll)

    def left(self, peer: object) -> None:
        """Forget a peer that has disconnected."""
        if peer is self._peer:
            self._peer, self._streak, self._polls_left = None, 0, 0

    def _poll(self) -> None:
        if self._polls_left > 0 and self._monotonic() < self._until:
            self._polls_left -= 1
            # Whoever else wants this core goes first: the peer may be on it.
            os.sched_yield()
            self._loop.call_soon(self._poll)
        else:
            self._polling = False
