"""A variable number of tasks that do the same work concurrently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tianzhou.remoting.callbacks import failure_of

PAUSE_S: Final = 1.0
"""Seconds before a failed worker is replaced by another."""

_log = logging.getLogger(__name__)


class Slot:
    """One worker.

    Attributes:
        task: its task.
        since_s: time at which its handler call began; None without a call.
        expired: whether that handler call was cancelled because it took too long.
        idle: whether it waits for work, so that it may be cancelled.
        retiring: whether it ends after its present work.
    """

    __slots__ = ("expired", "idle", "retiring", "since_s", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.since_s: float | None = None
        self.expired = False
        self.idle = False
        self.retiring = False


class Workers:
    """The workers of a consumer.

    Args:
        work: work of each worker; it returns when its slot is retiring or the consumer stops.
        spawn: runs a coroutine as a task of the consumer.
    """

    def __init__(
        self,
        work: Callable[[Slot], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._work = work
        self._spawn = spawn
        self.slots: list[Slot] = []

    def resize(self, count: int) -> None:
        """Change the number of workers; surplus workers end when they have finished their present work."""
        while len(self.slots) < count:
            slot = Slot()
            slot.task = self._spawn(self._serve(slot))
            self.slots.append(slot)
        for slot in self.slots[count:]:
            slot.retiring = True
            if slot.idle and slot.task is not None:
                slot.task.cancel()
        del self.slots[count:]

    async def _serve(self, slot: Slot) -> None:
        while True:
            try:
                await self._work(slot)
            except BaseException as error:  # noqa: BLE001 - no handler raised it; the worker must be replaced
                failure = failure_of(error, slot.task)
                _log.error("a worker failed; another takes its place", exc_info=failure)
                del failure  # its traceback refers to the worker's values, which would stay in memory
                slot.since_s, slot.idle = None, False
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def drain(self, timeout_s: float) -> None:
        """Wait for all workers to end, up to `timeout_s` seconds; call it when there is no more work."""
        tasks = [slot.task for slot in self.slots if slot.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
