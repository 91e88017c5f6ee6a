"""Writes over TLS that stop while the peer does not read, so that what waits for it can be counted.

A TLS transport of asyncio or uvloop encrypts all that is written at once, hands the result to the transport of the
socket, and reports an empty write buffer: 4 MiB for a peer that never reads count as nothing. This transport writes a
large reply slice by slice, stops as soon as TLS holds one back, and goes on when TLS has none left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

SLICE_BYTES: Final = 131_072
HELD_BACK_BYTES, LOW_BYTES = 16_384, 4_096
"""Bytes from which on TLS pauses its protocol, and down to which it resumes. What a handshake leaves behind is less,
and is sent with the next write or read only."""
SOCKET_BYTES: Final = 65_536 + SLICE_BYTES
"""Bytes that the socket's transport may hold and TLS does not report: its mark, and the slice that crossed the mark."""


class PacedTransport:
    """A TLS transport that holds large replies back instead of encrypting them for a peer that does not read.

    Args:
        transport: the TLS transport. Its protocol's `resume_writing` has to call `write_on`.
    """

    __slots__ = ("_closing", "_pieces", "_transport", "_waiting_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._closing = False
        transport.set_write_buffer_limits(high=HELD_BACK_BYTES, low=LOW_BYTES)

    def write(self, data: bytes) -> None:
        """Write bytes, or keep what TLS would hold back."""
        transport = self._transport
        if len(data) <= SLICE_BYTES and not self._pieces and transport.get_write_buffer_size() < HELD_BACK_BYTES:
            transport.write(data)
        else:
            self.writelines([data])

    def writelines(self, pieces: list[bytes]) -> None:
        """Write several pieces as `write` does."""
        waited = bool(self._pieces)
        for piece in filter(len, pieces):
            self._pieces.append(memoryview(piece))
            self._waiting_bytes += len(piece)
        if not waited:
            self.write_on()

    def write_on(self) -> bool:
        """Write until TLS holds a slice back. Return whether everything is written and TLS holds none."""
        transport = self._transport
        while self._pieces and transport.get_write_buffer_size() < HELD_BACK_BYTES:
            transport.write(self._next_slice())
        if not self._pieces and self._closing:
            transport.close()
        return not self._pieces and transport.get_write_buffer_size() < HELD_BACK_BYTES

    def _next_slice(self) -> bytes | memoryview:
        pieces, found, size = self._pieces, [], 0
        while pieces and size < SLICE_BYTES:
            piece = pieces.popleft()
            if size + len(piece) > SLICE_BYTES:
                at = SLICE_BYTES - size
                pieces.appendleft(piece[at:])
                piece = piece[:at]
            found.append(piece)
            size += len(piece)
        self._waiting_bytes -= size
        return found[0] if len(found) == 1 else b"".join(found)

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the peer has not read, as far as they are not in the system's buffers."""
        left = self._transport.get_write_buffer_size()
        return left + self._waiting_bytes + SOCKET_BYTES if self._pieces or left >= HELD_BACK_BYTES else left

    def forget(self) -> None:
        """Drop what waits; the connection is lost."""
        self._pieces.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Close after everything was written."""
        self._closing = True
        if not self._pieces:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self.forget()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the transport is closed, or will be when everything is written."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Pause reading."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the TLS transport says under a name."""
        return self._transport.get_extra_info(name, default)
