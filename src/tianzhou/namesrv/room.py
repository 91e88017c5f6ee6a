"""Room for large things that are worked on at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Lets as much in at the same time as fits, in the order they came; something too large for it goes alone."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def taken(self, size: int, most: int) -> AsyncIterator[None]:
        """Wait for room and have it inside the block.

        Args:
            size: how much is wanted.
            most: how much there is altogether.
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
