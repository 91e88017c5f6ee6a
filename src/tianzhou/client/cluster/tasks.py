"""The tasks that belong to a client, and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tianzhou.supervision import Supervisor, start_owned


class Tasks:
    """Keeps tasks from being forgotten, logs what ends one, and ends them all.

    Args:
        owner: whose they are, for the log.
        expected: errors that may end a task without a word.
    """

    def __init__(self, owner: str, expected: tuple[type[Exception], ...] = ()) -> None:
        self._owner = owner
        self._expected = expected
        self._supervisor = Supervisor(owner)
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something until it ends or all are ended."""
        task = start_owned(work, self._owner, expected=self._expected)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[Any]:
        """Run work that lasts as long as the owner does: when it fails, that is logged, and it is begun again.

        Args:
            name: what it is, for the log.
            work: called for every beginning.
        """
        return self.spawn(self._supervisor.keep(name, work))

    async def end(self) -> None:
        """Cancel them, but for the calling one, and wait until they have ended."""
        tasks = [task for task in self._running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
