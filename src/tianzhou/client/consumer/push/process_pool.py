"""Handlers with long computations, which run in processes of their own (client.md §13.2)."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from typing import TYPE_CHECKING, Any

from tianzhou.client.consumer.push.processor_time import Spent
from tianzhou.client.validation import check_number
from tianzhou.errors import CallbackExit, ClientError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


class ProcessPool:
    """A handler whose function runs in other processes; `in_processes` creates it."""

    def __init__(self, function: Callable[[Any], Any], processes: int) -> None:
        check_number("processes", processes, 1)
        self.__name__ = self.__qualname__ = _check(function)
        self._function = function
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    async def __call__(self, message: Any) -> Any:
        """Let a process consume the message, or the list of messages, and return the function's result.

        Raises:
            Exception: the error that the function raised.
            ClientError: the process died; the next call starts new processes.
        """
        return (await self.timed(message))[0]

    async def timed(self, message: Any) -> tuple[Any, Spent]:
        """Let a process consume the message, and return the function's result and its times in that process.

        Raises:
            Exception: see `__call__`.
        """
        if self._pool is None:
            self._pool = _fresh_pool(self._processes)
        pool = self._pool
        try:
            answer, *times = await asyncio.get_running_loop().run_in_executor(pool, _consume, self._function, message)
        except BrokenExecutor as error:
            if self._pool is pool:
                self.close()
            raise ClientError(
                f"a process that ran the handler {self.__qualname__} died: killed, out of memory, or it cannot import "
                "the function's module (a program needs `if __name__ == '__main__':` around what it runs); the message "
                "is delivered again"
            ) from error
        return answer, Spent(*times)

    def close(self) -> None:
        """Stop the processes after their present calls; the next call starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)


def in_processes(function: Callable[[Any], Any], processes: int | None = None) -> ProcessPool:
    """Return a handler that runs a function in other processes, so that long computations do not block this one.

    Plain functions run in threads otherwise, and Python's threads share one core; processes do not. Pass the returned
    handler to `subscribe`, with `consume_concurrency` at least as large as `processes`. The processes start with the
    first message and end with the consumer.

    Args:
        function: takes the message, or the list of messages, and returns a handler's result; a plain function at the
            top level of a module. It gets a copy of the message and no context. After `consume_timeout_ms` the consumer
            ignores a call, which still runs to its end in its process.
        processes: number of processes; by default one per core.

    Raises:
        ClientError: the function cannot be sent to other processes; the error has the reason and the remedy.
        ConfigError: `processes` is below 1.
    """
    return ProcessPool(function, (os.cpu_count() or 1) if processes is None else processes)


def _check(function: object) -> str:
    name: str = getattr(function, "__qualname__", repr(function))
    if not callable(function):
        raise ClientError(f"in_processes got {function!r}; it needs a function")
    if inspect.iscoroutinefunction(function):
        raise ClientError(f"the handler {name} is async, and other processes have no event loop; give a plain function")
    try:
        pickle.dumps(function)
    except Exception as error:
        raise ClientError(
            f"the handler {name} cannot be given to other processes: {error}; they find it by name, so it has to be "
            "a function at the top level of a module, not a lambda, a function within a function, or one whose name a "
            "decorator has taken"
        ) from error
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ClientError(
            f"the handler {name} cannot run in other processes: {error}; it gets the message alone, a ConsumeContext "
            "stays here"
        ) from None
    except ValueError:  # some builtins have no signature
        pass
    return name


def _fresh_pool(processes: int) -> ProcessPoolExecutor:
    # Imported here, because few programs need it. The processes are spawned and not forked, because a fork would copy
    # the event loop, connections and locks of this process.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(processes, get_context("spawn"), _settle_in)


def _consume(function: Callable[[Any], Any], message: Any) -> tuple[Any, float, float]:
    # A process runs one call at a time, so the time of all its threads, including NumPy's, belongs to the call.
    began_s, cpu_s = time.monotonic(), time.process_time()
    try:
        answer = function(message)
        return answer, time.process_time() - cpu_s, time.monotonic() - began_s
    except BaseException as error:
        # Without this conversion the pool raises `SystemExit` in the event loop of the consumer.
        failure = error if isinstance(error, Exception) else CallbackExit(f"{type(error).__name__}: {error}")
        travels = not isinstance(failure, (StopIteration, CancelledError))  # asyncio cannot transfer these
        try:
            pickle.loads(pickle.dumps(failure))
        except Exception:  # noqa: BLE001 - an error that cannot be pickled would end the processes instead
            travels = False
        if travels:
            raise failure  # noqa: B904 - the pool sends the traceback, with the cause, as text
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _settle_in() -> None:
    # Ctrl-C reaches every process of a terminal. Only the consumer reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A killed consumer cannot end its processes, so each process ends with its parent.
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
