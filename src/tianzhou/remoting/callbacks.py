"""Exceptions of a user's callbacks, which must not end the event loop or the task that calls the callback."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tianzhou.errors import CallbackExit


def failure_of(error: BaseException, task: asyncio.Task[Any] | None = None) -> Exception:
    """Return a callback's exception as a failure that does not end the event loop or the task.

    asyncio ends the event loop when `SystemExit` or `KeyboardInterrupt` leaves a task. It ends a task without a log
    line when `CancelledError` leaves the task. A library that calls `sys.exit` in a callback must not have these
    effects.

    Args:
        error: the exception that the callback raised.
        task: the task that awaited the callback. None for a callback that was called without `await`: neither a
            cancellation nor the end of a coroutine can reach such a callback.

    Returns:
        `error`, or a `CallbackExit` with `error` as its cause when `error` is no `Exception`.

    Raises:
        BaseException: `error` itself, when its cause is not the callback: Ctrl-C in the main thread, the cancellation
            of `task`, or the end of the task's coroutine.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    if task is not None:
        if isinstance(error, asyncio.CancelledError) and task.cancelling():
            raise error
        if isinstance(error, GeneratorExit) and asyncio.current_task() is not task:
            raise error
    failure = CallbackExit(f"{type(error).__name__}: {error}".removesuffix(": "))
    failure.__cause__ = error
    return failure


async def call_in_thread(executor: Executor | None, callback: Callable[..., Any], *arguments: Any) -> Any:
    """Call a callback in a thread, with the present context variables, and return its result.

    asyncio cannot transfer every exception of a thread. It never completes the future of a thread that raised
    `StopIteration`, and it handles `concurrent.futures.CancelledError` as a cancellation. So the thread returns the
    exception as a value.

    Args:
        executor: pool that runs the callback; None for the event loop's own pool.
        callback: the user's function.
        arguments: arguments of the function.

    Raises:
        Exception: the callback's exception, see `failure_of`. `StopIteration` becomes a `RuntimeError`.
    """
    run = contextvars.copy_context().run
    result, failure = await asyncio.get_running_loop().run_in_executor(executor, run, _outcome, callback, arguments)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback refers to this frame and the callback's, which would stay in memory
    return result


def _outcome(callback: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return callback(*arguments), None
    except BaseException as error:  # noqa: BLE001 - see `call_in_thread`
        return None, failure_of(error)
