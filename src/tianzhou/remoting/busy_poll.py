"""Busy polling: the loop stays awake for a peer that sends one request at a time.

Between a reply and the peer's next request the loop is idle for some ten microseconds. Waking a sleeping loop takes
longer than serving the request, and several times longer on a virtual machine. So when a peer's requests came quickly
a few times in a row, the loop polls for a moment before it sleeps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

STREAK = 4
"""Number of consecutive requests within `busy_poll_s` before the loop polls for the next one."""
MAX_POLLS = 256
"""Maximum loop turns spent polling for one request, in case the clock stands still."""


class BusyPoll:
    """Polls for a peer's next request for a while after a reply, if that has paid lately.

    The loop polls for one peer at a time. With several peers there is enough work, or other processes need the
    processor. A peer that lets the time pass once, or has to wait for a reply, must send `STREAK` quick requests again
    before the loop polls.

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
            peer: the peer, compared by identity.
            gap_s: seconds since the last write to the peer; `inf` when the peer has to wait for its reply.
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
            # Let other processes use this core first: the peer may run on it.
            os.sched_yield()
            self._loop.call_soon(self._poll)
        else:
            self._polling = False
