"""Connections in the process's memory, between clients and servers of one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Self

from tianzhou.slices import NextTurn

HOST = "127.0.0.1"
FIRST_PORT = 49_152
LAST_PORT = 65_535
HIGH_BYTES = 65_536


class PipeEnd(asyncio.Transport):
    """One end of a connection; bytes written here are read at the other end in a later turn of the loop.

    It follows asyncio's rules for transports: bytes arrive in order, none while the peer pauses reading,
    `pause_writing` is called above the limit, and `connection_lost` at both ends, at the other one after the last byte.

    Args:
        loop: the event loop of both ends.
        protocol: the protocol of this end.
        peer: the address that the protocol sees.
    """

    _other: PipeEnd

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BufferedProtocol, peer: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer})
        self._loop = loop
        self._protocol = protocol
        self._inbox: deque[bytes] = deque()
        self._unread = 0
        self._reading = True
        self._delivery = NextTurn(self._deliver)
        self._closing = self._at_end = self._lost = False
        self._writing_paused = False
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4

    @classmethod
    def pair(
        cls,
        loop: asyncio.AbstractEventLoop,
        client: asyncio.BufferedProtocol,
        server: asyncio.BufferedProtocol,
        ports: tuple[int, int],
    ) -> tuple[Self, Self]:
        """Return two connected ends, after `connection_made` of both protocols.

        Args:
            loop: their event loop.
            client: protocol of the client.
            server: protocol of the server.
            ports: of the client and of the server.
        """
        near, far = cls(loop, client, (HOST, ports[1])), cls(loop, server, (HOST, ports[0]))
        near._other, far._other = far, near
        server.connection_made(far)
        client.connection_made(near)
        return near, far

    # writing

    def write(self, data: Any) -> None:
        """Write as asyncio does."""
        if self._closing or not data:
            return
        other = self._other
        if other._lost:
            return
        other._inbox.append(bytes(data))
        other._unread += len(data)
        other._schedule()
        if other._unread > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the peer has not read, as in asyncio."""
        return self._other._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits as asyncio does."""
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    # reading

    def is_reading(self) -> bool:
        """Whether this end reads, as in asyncio."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Pause reading as asyncio does."""
        self._reading = False

    def resume_reading(self) -> None:
        """Resume reading as asyncio does."""
        self._reading = True
        self._schedule()

    def _schedule(self) -> None:
        if self._reading and not self._lost and (self._inbox or self._at_end):
            self._delivery.ask()

    def _deliver(self) -> None:
        inbox, protocol = self._inbox, self._protocol
        while inbox and self._reading and not self._closing:
            data = memoryview(inbox.popleft())
            while data:
                target = memoryview(protocol.get_buffer(-1))
                count = min(len(target), len(data))
                target[:count] = data[:count]
                data = data[count:]
                self._unread -= count
                protocol.buffer_updated(count)
                if data and not self.is_reading():
                    inbox.appendleft(bytes(data))
                    break
        self._other._drained()
        if self._at_end and not inbox and self._reading and not self._closing:
            protocol.eof_received()
            self.close()

    def _drained(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    # ending

    def is_closing(self) -> bool:
        """Whether the transport is closing, as in asyncio."""
        return self._closing

    def close(self) -> None:
        """Close as asyncio does; the other end reads all written bytes first."""
        if not self._closing:
            self._closing = True
            self._inbox.clear()
            self._unread = 0
            self._loop.call_soon(self._end)

    def abort(self) -> None:
        """Abort as asyncio does; written bytes have left, as they would over a network."""
        self.close()

    def _end(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._protocol.connection_lost(None)
        other = self._other
        other._at_end = True
        other._schedule()
