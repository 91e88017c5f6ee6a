"""Staying awake for a peer that asks one thing at a time.

Between a reply and the next request of such a peer there is nothing to do for some ten microseconds. A loop that falls
asleep has to be woken, which takes longer than serving the request, on a virtual machine several times as long. So the
loop of a peer that has asked again at once a few times in a row looks for more for a moment before it sleeps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

LUCK = 4
"""After so many requests in a row that came within the time, it is worth staying awake for the next."""
LOOKS = 256
"""Most turns of the loop for one request, should the clock stand still."""


class Lingering:
    """Keeps a loop awake for a while after a reply, where that has paid lately.

    Only one peer at a time is worth it: with several there is work enough, or others who need the processor. Who lets
    the time pass once, or has to wait for a reply, has to ask quickly `LUCK` times again before the loop stays awake.

    Args:
        loop: the event loop.
        monotonic: seconds of the clock that `gap_s` and `linger_s` are measured by.
        linger_s: how long to stay awake after a reply; 0 never does.
    """

    __slots__ = ("_awake", "_linger_s", "_looks", "_loop", "_luck", "_monotonic", "_peer", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float], linger_s: float) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._linger_s = linger_s
        self._peer: object = None
        self._luck = self._looks = 0
        self._until = 0.0
        self._awake = False

    def asked(self, peer: object, gap_s: float) -> None:
        """A peer has asked.

        Args:
            peer: who, compared by identity.
            gap_s: seconds since something was last written to it before; `inf` when it has to wait for its reply.
        """
        if peer is not self._peer:
            self._peer, self._luck = peer, 0
        elif gap_s > self._linger_s:
            self._luck = 0
        elif self._luck < LUCK:
            self._luck += 1
        else:
            self._until, self._looks = self._monotonic() + self._linger_s, LOOKS
            if not self._awake:
                self._awake = True
                self._loop.call_soon(self._look)

    def left(self, peer: object) -> None:
        """A peer is gone."""
        if peer is self._peer:
            self._peer, self._luck, self._looks = None, 0, 0

    def _look(self) -> None:
        if self._looks > 0 and self._monotonic() < self._until:
            self._looks -= 1
            # Whoever else wants this core goes first: the peer may be on it.
            os.sched_yield()
            self._loop.call_soon(self._look)
        else:
            self._awake = False
