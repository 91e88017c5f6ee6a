"""A worker thread for long work that cannot be sliced, one call at a time, and a limit on the memory of such work.

Python runs one thread at a time, so the thread saves no processor time. But the loop regains the interpreter after half
a millisecond instead of at the end of the work. Work in this thread must not use data that other threads use.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

T = TypeVar("T")

SWITCH_S: Final = 0.0005
"""Maximum seconds that the loop waits for the interpreter while the thread works. Python's own 5 ms would delay each
active connection by as much."""


class SideThread:
    """Runs functions in a thread that exists only while calls are queued or running."""

    __slots__ = ("_begun", "_executor", "_former_s")

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._begun = 0
        self._former_s = 0.0

    @property
    def begun(self) -> int:
        """Number of calls that are queued or running."""
        return self._begun

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Run a function in the thread and return its result. Cancelling the caller removes the call from the queue."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "aside")
            self._former_s = sys.getswitchinterval()
            sys.setswitchinterval(min(SWITCH_S, self._former_s))
        self._begun += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
        finally:
            self._begun -= 1
            if not self._begun:
                self._executor.shutdown(wait=False)
                self._executor = None
                sys.setswitchinterval(self._former_s)


ASIDE: Final = SideThread()
"""The side thread of this process. A second one would only compete for the interpreter and double the memory."""


class WeightedSemaphore:
    """Semaphore in units of size, first come, first served. A holder larger than the limit is admitted alone."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquired(self, size: int, most: int) -> AsyncIterator[None]:
        """Wait until `size` fits, and hold it inside the block.

        Args:
            size: units to hold.
            most: maximum units that all holders may hold together.
        """
        await self._enter(size, most)
        try:
            yield
        finally:
            self._used -= size
            self._call_next()

    async def _enter(self, size: int, most: int) -> None:
        called = False
        try:
            while self._used and (self._used + size > most or (self._waiting and not called)):
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.insert(0 if called else len(self._waiting), turn)
                await turn
                called = True
        except asyncio.CancelledError:
            self._call_next()
            raise
        self._used += size
        self._call_next()

    def _call_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
