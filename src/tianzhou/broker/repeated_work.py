"""Periodic work of a broker, each in a task; a failure is noted and the work runs again in the next period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tianzhou.remoting.loop_stall import caught_up, stalled
from tianzhou.store.settings import SHORTEST_INTERVAL_MS
from tianzhou.supervision import Supervisor


def repeat(supervisor: Supervisor, period_ms: Callable[[], int], work: Callable[[], None]) -> None:
    """Start a task that calls a function periodically; the function's name is the task's.

    Args:
        supervisor: owner of the task, which notes failures.
        period_ms: returns the milliseconds between two calls; called before each pause, because settings change at run
            time.
        work: the function to call.
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
