"""Tasks with an owner: their exceptions are retrieved, and a failed long-lived task is logged and restarted.

`tianzhou.troubles` decides about log lines and pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

from tianzhou.chained_coroutines import ChainedCoroutine
from tianzhou.clock import Clock, SystemClock
from tianzhou.errors import TianzhouError
from tianzhou.troubles import Troubles, steady_s

T = TypeVar("T")

_log = logging.getLogger(__name__)


def start_awaited(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Start a task that its caller awaits. asyncio never logs "Task exception was never retrieved" about this task.

    The exception reaches each caller that awaits the task. The last caller may be cancelled before the task fails, and
    neither `asyncio.shield` nor `asyncio.wait` retrieves the exception then. `KeyboardInterrupt` and `SystemExit` leave
    the event loop as usual, and the task is cancelled.

    Args:
        work: coroutine that the task runs.
        name: name of the task.
    """
    task = asyncio.get_running_loop().create_task(_around(work, _without_exits), name=name)
    task.add_done_callback(retrieve_exception)
    return task


def start_owned(
    work: Coroutine[Any, Any, T],
    owner: str,
    *,
    name: str | None = None,
    expected: tuple[type[Exception], ...] = (TianzhouError, OSError),
) -> asyncio.Task[T]:
    """Start a task that its caller may not await. See `start_awaited`; a defect is logged as well.

    Args:
        work: coroutine that the task runs.
        owner: the object that starts the task, for the log.
        name: name of the task.
        expected: errors that are not logged. Callers that await the task still get them.
    """
    task = start_awaited(work, name=name)
    task.add_done_callback(partial(_log_defect, owner, expected))
    return task


def run_owned_threadsafe(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> ThreadFuture[T]:
    """Start a task on the loop of another thread, and return a future of its result.

    `asyncio.run_coroutine_threadsafe` does not retrieve the exception of a task whose future was cancelled. This
    function does.

    Args:
        work: coroutine that the task runs.
        loop: the other thread's event loop.
    """
    return asyncio.run_coroutine_threadsafe(_around(work, _retrieving), loop)


def shared_result(task: asyncio.Future[T]) -> asyncio.Future[T]:
    """Return a future of a shared task's result for one caller. Cancelling the future does not cancel the task.

    The caller need not await the future: asyncio does not log its exception.
    """
    future = asyncio.shield(task)
    future.add_done_callback(retrieve_exception)
    return future


def retrieve_exception(done: asyncio.Future[Any]) -> BaseException | None:
    """Return a done future's exception, so that asyncio does not log it. Return None for a cancelled future."""
    return None if done.cancelled() else done.exception()


def _log_defect(owner: str, expected: tuple[type[Exception], ...], task: asyncio.Task[Any]) -> None:
    error = retrieve_exception(task)
    if error is not None and not isinstance(error, expected):
        _log.error("a task of %s failed", owner, exc_info=error)


def _around(
    work: Coroutine[Any, Any, T], wrapper: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]]
) -> ChainedCoroutine[T]:
    wrapped = ChainedCoroutine(wrapper(work), work)
    wrapped.__qualname__ = getattr(work, "__qualname__", wrapped.__qualname__)  # for the text of the task
    return wrapped


async def _without_exits(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        # asyncio would store the exception in the task as well, and stop the loop, which then runs no callback that
        # retrieves it. So a callback raises the exception, and the task has none.
        asyncio.get_running_loop().call_soon(_raise, error)
        raise asyncio.CancelledError from None


def _raise(error: BaseException) -> NoReturn:
    try:
        raise error
    finally:
        del error  # its traceback refers to this frame


async def _retrieving(work: Coroutine[Any, Any, T]) -> T:
    if (task := asyncio.current_task()) is not None:
        task.add_done_callback(retrieve_exception)
    return await work


class Supervisor:
    """Owner of long-lived tasks.

    Args:
        owner: name of the server, for the log and the tasks' names.
        clock: source of time for failures.
        troubles: record of failures; several supervisors may share one.
    """

    def __init__(self, owner: str, clock: Clock | None = None, troubles: Troubles | None = None) -> None:
        self._owner = owner
        self._clock = clock or SystemClock()
        self.troubles = troubles if troubles is not None else Troubles()
        self._tasks: list[asyncio.Task[None]] = []

    def own(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run work as a task until it returns or `end` is called. When it fails, restart it after a pause.

        Args:
            name: name of the work for operators.
            work: function that starts the work.
        """
        task = start_owned(self.keep(name, work), self._owner, name=f"{self._owner} {name}")
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await self.stop(*self._tasks)

    async def stop(self, *tasks: asyncio.Task[None]) -> None:
        """Cancel some of the tasks and wait until they have ended.

        Args:
            tasks: tasks from `own`.
        """
        self._tasks = [task for task in self._tasks if task not in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def trial(self, name: str) -> Iterator[None]:
        """Run work that will be retried. Record and log its exception, and suppress it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - catch any exception, because the work must be retried
            self.failed(name, error)
        else:
            self.well(name)

    def failed(self, name: str, error: BaseException, then: str = "it is tried again") -> None:
        """Record and log a failure of work that will be retried.

        Args:
            name: name of the work.
            error: the exception.
            then: next action, for the log line.
        """
        if self.troubles.failed(name, error, self._clock.now_ms(), self._clock.monotonic()):
            times = self.troubles.totals[name]
            _log.error("%s: %s failed (%d in all); %s", self._owner, name, times, then, exc_info=error)

    def note_failure(self, name: str, error: BaseException) -> None:
        """Record a failure of work that will be retried and has logged the failure itself.

        Args:
            name: name of the work.
            error: the exception.
        """
        self.troubles.failed(name, error, self._clock.now_ms(), self._clock.monotonic())

    def well(self, name: str) -> None:
        """Record a success of the work."""
        if name in self.troubles and (trouble := self.troubles.over(name)) is not None:
            _log.warning("%s: %s works again, after %d failures", self._owner, name, trouble.count)

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in the caller's task, as `own` does, until it returns or the task is cancelled."""
        loop = asyncio.get_running_loop()
        steady: asyncio.TimerHandle | None = None
        while True:
            try:
                await work()
            except asyncio.CancelledError as error:
                if _asked_to_end():
                    raise
                # An awaited object was cancelled, not this task.
                failure: BaseException = error
            except Exception as error:  # noqa: BLE001 - no other code handles a failure of this work
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
