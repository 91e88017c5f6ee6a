"""Back-pressure: limits for a producer's sends in flight (client.md §5.2)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tianzhou.client.producer.send_request import Layer, SendRequest
from tianzhou.errors import TooManyRequests
from tianzhou.model import SendResult


class Backpressure:
    """Waiting line of senders, first come first served, while too many messages or bytes are in flight.

    A message larger than the limit of bytes passes when no other message is in flight.

    Args:
        messages: maximum number of messages.
        size: maximum bytes of bodies.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._most = messages
        self._most_bytes = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.messages = 0
        """Number of messages in flight."""
        self.bytes = 0
        """Bytes of their bodies."""

    @asynccontextmanager
    async def room(self, size: int, timeout_ms: float) -> AsyncIterator[None]:
        """Reserve room for a message of `size` bytes during the block.

        Raises:
            TooManyRequests: no room was free in time.
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
            if waiter.done() and not waiter.cancelled():  # admitted and cancelled at the same moment
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
    """Return a layer that waits for room before the send; the wait counts to the timeout of the send.

    Args:
        send: the layer below.
        pressure: the limits.
        monotonic: returns the seconds of a clock.
    """

    async def send_when_there_is_room(request: SendRequest) -> SendResult:
        started_s = monotonic()
        async with pressure.room(len(request.prepared.body), request.timeout_ms):
            waited_ms = (monotonic() - started_s) * 1000
            return await send(request._replace(timeout_ms=request.timeout_ms - waited_ms))

    return send_when_there_is_room
