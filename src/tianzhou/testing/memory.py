"""A transport in memory, whose written bytes a test can read, and whose peer can stop reading."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """A replacement of a TCP transport under a `BufferedProtocol`, with asyncio's rules for flow control.

    Args:
        protocol: the protocol; the constructor calls `connection_made`.
        peer: address that the protocol sees.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, peer: tuple[str, int] = ("127.0.0.1", 5)) -> None:
        super().__init__({"peername": peer})
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = self._ended = False
        self.stalled = False
        self.unsent = self._system_bytes = 0
        self._high, self._low = 65_536, 16_384
        self._paused = False
        self._protocol = protocol
        protocol.connection_made(self)

    # calls of a test, as the peer

    def feed(self, data: bytes) -> int:
        """Pass bytes to the protocol while it reads; return how many it accepted."""
        taken = 0
        while taken < len(data) and self.reading and not self.closed:
            target = memoryview(self._protocol.get_buffer(-1))
            part = data[taken : taken + len(target)]
            target[: len(part)] = part
            self._protocol.buffer_updated(len(part))
            taken += len(part)
        return taken

    def stall(self, system_bytes: int = 0) -> None:
        """Stop reading, so that later writes stay in the write buffer.

        Args:
            system_bytes: number of bytes that the system's socket buffers accept before that.
        """
        self.stalled = True
        self._system_bytes = system_bytes

    def catch_up(self) -> None:
        """Read all bytes, once."""
        self.unsent = 0
        if self.closed:
            self.abort()
        elif self._paused:
            self._paused = False
            self._protocol.resume_writing()

    def lose(self, error: Exception | None = None) -> None:
        """Break the connection."""
        if not self._ended:
            self.closed = self._ended = True
            self._protocol.connection_lost(error)

    # calls of the protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits as asyncio does."""
        if high is not None:
            self._high, self._low = high, low if low is not None else high // 4

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the peer has not read."""
        return self.unsent

    def write(self, data: Any) -> None:
        """Write as asyncio does."""
        self.writes += 1
        self.written += data
        if self.stalled:
            taken = min(self._system_bytes, len(data))
            self._system_bytes -= taken
            self.unsent += len(data) - taken
            if self.unsent > self._high and not self._paused:
                self._paused = True
                self._protocol.pause_writing()

    def is_reading(self) -> bool:
        """Whether the protocol reads, as in asyncio."""
        return self.reading

    def pause_reading(self) -> None:
        """Pause reading as asyncio does."""
        self.reading = False

    def resume_reading(self) -> None:
        """Resume reading as asyncio does."""
        self.reading = True

    def is_closing(self) -> bool:
        """Whether the transport is closing, as in asyncio."""
        return self.closed

    def close(self) -> None:
        """Close as asyncio does: the connection ends once the peer has read all bytes, never before."""
        self.closed = True
        if not self.unsent:
            self.abort()

    def abort(self) -> None:
        """Abort as asyncio does."""
        self.closed = True
        self.unsent = 0
        if not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
