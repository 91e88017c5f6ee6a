"""Measurement of the processor's time that a handler takes (docs/howto/planning.md).

A handler in a thread or a process is measured there. The coroutine of an `async def` handler is measured step by step,
because other tasks of the event loop run in between.
"""

from __future__ import annotations

import os
import time
import types
from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import Any, Final, TypeVar

T = TypeVar("T")

_BEGIN: Final = object()


class Spent:
    """Times of one call of a handler.

    Attributes:
        cpu_s: seconds of a processor.
        wall_s: seconds from the begin of the call to its end; None for a coroutine, which its caller times.
    """

    __slots__ = ("cpu_s", "wall_s")

    def __init__(self, cpu_s: float = 0.0, wall_s: float | None = None) -> None:
        self.cpu_s = cpu_s
        self.wall_s = wall_s


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def timed(call: Callable[[], T], spent: Spent) -> T:
    """Call a function, also one that raises, and store the processor's time of this thread and the wall time."""
    began_s, cpu_s = time.monotonic(), time.thread_time()
    try:
        return call()
    finally:
        spent.cpu_s = time.thread_time() - cpu_s
        spent.wall_s = time.monotonic() - began_s


async def _awaited(outcome: Awaitable[Any]) -> Any:
    return await outcome


@types.coroutine
def measured(waiting: Any, spent: Spent, cpu_s: Callable[[], float], wanted: Any = _BEGIN) -> Generator[Any, Any, Any]:
    """Run a handler to its end as `await` does, and add the processor's time of each step to `spent`.

    Args:
        waiting: the handler's coroutine; or the awaitable that it returned, which has not begun.
        spent: where the time is added.
        cpu_s: processor's time of the event loop's thread, seconds.
        wanted: the value that a coroutine which has begun has yielded to its task.
    """
    if not isinstance(waiting, CoroutineType):
        waiting, wanted = _awaited(waiting), _BEGIN
    sent: Any = None
    while True:
        if wanted is not _BEGIN:
            try:
                sent = yield wanted
            except GeneratorExit:
                waiting.close()
                raise
            except BaseException as error:  # noqa: BLE001 - as it is thrown into the task
                began_s = cpu_s()
                try:
                    wanted = waiting.throw(error)
                except StopIteration as end:
                    return end.value
                finally:
                    spent.cpu_s += cpu_s() - began_s
                continue
        began_s = cpu_s()
        try:
            wanted = waiting.send(sent)
        except StopIteration as end:
            return end.value
        finally:
            spent.cpu_s += cpu_s() - began_s
