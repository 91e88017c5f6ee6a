"""A transport that is nothing but memory: what was written can be looked at, and the peer can stop reading."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport(asyncio.Transport):
    """Stands in for a TCP transport under a `BufferedProtocol`, with asyncio's rules for flow control.

    Args:
        protocol: what it serves; `connection_made` is called by the constructor.
        peer: address the protocol sees.
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

    # What a test does as the peer

    def feed(self, data: bytes) -> int:
        """Hand bytes to the protocol as long as it is willing to read; returns how many it took."""
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
        """Read everything, once."""
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

    # What the protocol does

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's."""
        if high is not None:
            self._high, self._low = high, low if low is not None else high // 4

    def get_write_buffer_size(self) -> int:
        """Bytes the peer has not read."""
        return self.unsent

    def write(self, data: Any) -> None:
        """As asyncio's."""
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
        """As asyncio's."""
        return self.reading

    def pause_reading(self) -> None:
        """As asyncio's."""
        self.reading = False

    def resume_reading(self) -> None:
        """As asyncio's."""
        self.reading = True

    def is_closing(self) -> bool:
        """As asyncio's."""
        return self.closed

    def close(self) -> None:
        """As asyncio's: the connection ends once the peer has read everything, never before."""
        self.closed = True
        if not self.unsent:
            self.abort()

    def abort(self) -> None:
        """As asyncio's."""
        self.closed = True
        self.unsent = 0
        if not self._ended:
            self._ended = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
