"""Back-pressure: limits for what a producer has on its way (client.md §5.2)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tianzhou.client.producer.send_request import Layer, SendRequest
from tianzhou.errors import TooManyRequests
from tianzhou.model import SendResult


class Backpressure:
    """Lets senders wait, first come first served, while too much is on its way.

    A message larger than the limit of bytes passes when nothing else is on its way.

    Args:
        messages: most messages.
        size: most bytes of bodies.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._most = messages
        self._most_bytes = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.messages = 0
        """On their way now."""
        self.bytes = 0
        """On their way now."""

    @asynccontextmanager
    async def room(self, size: int, timeout_ms: float) -> AsyncIterator[None]:
        """Inside the block a message of `size` bytes is on its way.

        Raises:
            TooManyRequests: there was no room in time.
        """
        if self._waiting or not self._fits(size):
            await self._wait(size, timeout_ms)
        else:
            self._enter(size)
        try:
            yield
        finally:
            self.messages -= 1
            self.bytes -= size
            self._admit()

    def _fits(self, size: int) -> bool:
        return self.messages < self._most and (not self.messages or self.bytes + size <= self._most_bytes)

    def _enter(self, size: int) -> None:
        self.messages += 1
        self.bytes += size

    def _admit(self) -> None:
        while self._waiting:
            size, waiter = self._waiting[0]
            if not waiter.done():
                if not self._fits(size):
                    return
                self._enter(size)
                waiter.set_result(None)
            self._waiting.popleft()

    async def _wait(self, size: int, timeout_ms: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():  # let in, and cancelled in the same moment
                self.messages -= 1
                self.bytes -= size
            waiter.cancel()
            self._admit()
            if isinstance(error, TimeoutError):
                raise TooManyRequests(
                    f"{self.messages} messages of {self.bytes} bytes are on their way, and no room came within "
                    f"{timeout_ms:.0f} ms (back_pressure_for_async_send_num {self._most}, "
                    f"back_pressure_for_async_send_size {self._most_bytes}); send more slowly or raise the limits"
                ) from None
            raise


def with_backpressure(send: Layer, pressure: Backpressure, monotonic: Callable[[], float]) -> Layer:
    """A layer that waits for room first; the time it takes counts to the limit of the send.

    Args:
        send: the layer below.
        pressure: lets senders wait.
        monotonic: seconds of a clock.
    """

    async def send_when_there_is_room(request: SendRequest) -> SendResult:
        started_s = monotonic()
        async with pressure.room(len(request.prepared.body), request.timeout_ms):
            waited_ms = (monotonic() - started_s) * 1000
            return await send(request._replace(timeout_ms=request.timeout_ms - waited_ms))

    return send_when_there_is_room
