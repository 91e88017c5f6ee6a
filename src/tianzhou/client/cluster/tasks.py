"""Tasks of a client, which end together with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tianzhou.supervision import Supervisor, start_owned


class Tasks:
    """The running tasks of an owner. It logs the errors that end tasks, and cancels all tasks at the end.

    Args:
        owner: name of their owner, for the log.
        expected: errors that may end a task without a log line.
    """

    def __init__(self, owner: str, expected: tuple[type[Exception], ...] = ()) -> None:
        self._owner = owner
        self._expected = expected
        self._supervisor = Supervisor(owner)
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task until it ends or `end` cancels it."""
        task = start_owned(work, self._owner, expected=self._expected)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[Any]:
        """Run work for as long as the owner lives: a failure is logged, and the work starts again.

        Args:
            name: name of the work, for the log.
            work: called at every start.
        """
        return self.spawn(self._supervisor.keep(name, work))

    async def end(self) -> None:
        """Cancel all tasks except the calling one, and wait until they have ended."""
        tasks = [task for task in self._running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
