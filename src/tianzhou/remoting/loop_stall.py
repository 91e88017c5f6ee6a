"""Stalls of the event loop: after a stall, timers that check for silent peers first let the loop read arrived data.

A suspended machine, a paused container or a debugger stops a process for minutes. Afterwards all timers are due at
once, also the sweeps for silent peers, while heartbeats of those peers wait unread in the sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

STALL_S = 1.0
"""Seconds of a timer's delay from which the loop counts as stalled."""
STALL_TURNS = 6
"""Number of loop turns that send all due requests, and read and serve all arrived data."""


def stalled(due_s: float) -> bool:
    """Whether the running loop is more than `STALL_S` late for a timer due at `due_s` (loop time)."""
    return asyncio.get_running_loop().time() - due_s > STALL_S


async def caught_up() -> None:
    """Wait until the running loop has served all data that had arrived by now."""
    for _ in range(STALL_TURNS):
        await asyncio.sleep(0)


class StallAwareTimer:
    """One-shot timer that waits `STALL_TURNS` more turns when the loop calls it late.

    Args:
        loop: the event loop.
        delay_s: seconds to wait.
        work: called when the time is over.
    """

    __slots__ = ("_due_s", "_handle", "_loop", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, work: Callable[[], None]) -> None:
        self._loop = loop
        self._work = work
        self._due_s = loop.time() + delay_s
        self._handle: asyncio.Handle = loop.call_later(delay_s, self._tick)

    def cancel(self) -> None:
        """Cancel the call."""
        self._handle.cancel()

    def _tick(self) -> None:
        if self._loop.time() - self._due_s > STALL_S:
            self._wait(STALL_TURNS)
        else:
            self._work()

    def _wait(self, turns: int) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._wait, turns - 1)
        else:
            self._work()
