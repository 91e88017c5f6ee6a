"""Work that a broker does again and again, in a task each; what fails is noted and tried at the next time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tianzhou.remoting.loop_stall import caught_up, stalled
from tianzhou.store.settings import SHORTEST_INTERVAL_MS
from tianzhou.supervision import Supervisor


def repeat(supervisor: Supervisor, period_ms: Callable[[], int], work: Callable[[], None]) -> None:
    """Start a task that does a work at intervals, under the name of its function.

    Args:
        supervisor: owns the task, and notes failures.
        period_ms: milliseconds between two times, asked for before each pause: settings change while a broker runs.
        work: does it.
    """
    name = work.__name__.strip("_").replace("_", " ")
    supervisor.own(name, lambda: _every(supervisor, period_ms, work, name))


async def _every(supervisor: Supervisor, period_ms: Callable[[], int], work: Callable[[], None], name: str) -> None:
    while True:
        pause_s = max(period_ms(), SHORTEST_INTERVAL_MS) / 1000
        due_s = asyncio.get_running_loop().time() + pause_s
        await asyncio.sleep(pause_s)
        if stalled(due_s):
            await caught_up()
        with supervisor.trial(name):
            work()
