"""Weighted semaphore: bounds the bytes of large registrations that are decoded at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightedSemaphore:
    """Admits holders in their order while their sizes fit together; one too large for the limit is admitted alone."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquired(self, size: int, most: int) -> AsyncIterator[None]:
        """Wait until `size` fits, and hold it inside the block.

        Args:
            size: units to hold.
            most: units that all holders may hold together.
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
