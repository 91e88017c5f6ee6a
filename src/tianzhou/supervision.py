"""Supervision of long-lived tasks: a failed one is logged and restarted.

`tianzhou.troubles` decides about failures (log line, pause).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tianzhou.clock import Clock, SystemClock
from tianzhou.troubles import Troubles, steady_s

_log = logging.getLogger(__name__)


class Supervisor:
    """Owns long-lived tasks.

    Args:
        owner: the server's name, for the log and the tasks' names.
        clock: time of failures.
        troubles: notes failures; several supervisors may share one.
    """

    def __init__(self, owner: str, clock: Clock | None = None, troubles: Troubles | None = None) -> None:
        self._owner = owner
        self._clock = clock or SystemClock()
        self.troubles = troubles if troubles is not None else Troubles()
        self._tasks: list[asyncio.Task[None]] = []

    def own(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run work as a task until it returns or `end` is called; restart it after a pause when it fails.

        Args:
            name: the work's name for operators.
            work: called for every start.
        """
        task = asyncio.get_running_loop().create_task(self.keep(name, work), name=f"{self._owner} {name}")
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await self.stop(*self._tasks)

    async def stop(self, *tasks: asyncio.Task[None]) -> None:
        """Cancel some of the tasks and wait until they have ended.

        Args:
            tasks: returned by `own`.
        """
        self._tasks = [task for task in self._tasks if task not in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def trial(self, name: str) -> Iterator[None]:
        """Run work that is tried again anyhow: what it raises is noted and logged, and goes no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the next trial has to come
            self.failed(name, error)
        else:
            self.well(name)

    def failed(self, name: str, error: BaseException, then: str = "it is tried again") -> None:
        """Note a failure of work that is tried again.

        Args:
            name: which work.
            error: how it ended.
            then: what happens next.
        """
        if self.troubles.failed(name, error, self._clock.now_ms(), self._clock.monotonic()):
            times = self.troubles.totals[name]
            _log.error("%s: %s failed (%d in all); %s", self._owner, name, times, then, exc_info=error)

    def note_failure(self, name: str, error: BaseException) -> None:
        """Note a failure of work that is tried again and has logged its failure itself.

        Args:
            name: which work.
            error: how it ended.
        """
        self.troubles.failed(name, error, self._clock.now_ms(), self._clock.monotonic())

    def well(self, name: str) -> None:
        """Note that work runs well."""
        if name in self.troubles and (trouble := self.troubles.over(name)) is not None:
            _log.warning("%s: %s works again, after %d failures", self._owner, name, trouble.count)

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work until it returns or the present task is cancelled; as `own`, in the caller's task."""
        loop = asyncio.get_running_loop()
        steady: asyncio.TimerHandle | None = None
        while True:
            try:
                await work()
            except asyncio.CancelledError as error:
                if _asked_to_end():
                    raise
                # Something it waited for was cancelled, and nobody meant this task.
                failure: BaseException = error
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody else looks after this work
                failure = error
            else:
                self.well(name)
                return
            finally:
                if steady is not None:
                    steady.cancel()
            pause_s = self.troubles.pause_s(name)
            self.failed(name, failure, f"it is begun again in {pause_s:.1f} s")
            del failure  # its traceback would keep all that the work had alive
            await asyncio.sleep(pause_s)
            steady = loop.call_later(steady_s(pause_s), self.well, name)


def _asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
