"""A loop that stood still: whoever looks for silence afterwards first has to hear what arrived meanwhile.

A suspended machine, a paused container or a debugger stops a process for minutes. Then everything is due at once, the
looks for peers that have been silent too long among it, while the signs of life of those peers wait in the sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

STALL_S = 1.0
"""Who comes so late to a look has not listened meanwhile."""
STALL_TURNS = 6
"""So many turns of the loop it takes to send what is due here, and to read and serve what has arrived."""


def stalled(due_s: float) -> bool:
    """Whether the running loop comes too late to what was due at `due_s`, in its own time."""
    return asyncio.get_running_loop().time() - due_s > STALL_S


async def caught_up() -> None:
    """Return when the running loop has served what had arrived by now."""
    for _ in range(STALL_TURNS):
        await asyncio.sleep(0)


class PatientTimer:
    """Calls something after a while; when the loop comes late to it, a few turns later still.

    Args:
        loop: the event loop.
        delay_s: how long to wait.
        work: what to call.
    """

    __slots__ = ("_due_s", "_handle", "_loop", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, work: Callable[[], None]) -> None:
        self._loop = loop
        self._work = work
        self._due_s = loop.time() + delay_s
        self._handle: asyncio.Handle = loop.call_later(delay_s, self._tick)

    def cancel(self) -> None:
        """Do not call it any more."""
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
