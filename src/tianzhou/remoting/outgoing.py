"""The sending half of a connection: one joined write per turn of the loop, and the bytes that the peer has not read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from tianzhou._hot.client_sends import FLUSH_BYTES
from tianzhou.errors import ConnectionLost
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.requester import Requester
from tianzhou.remoting.session import READ_SIZE
from tianzhou.remoting.unread import Written
from tianzhou.wire.command import Command, encode

LARGE_PIECE = 4096
WRITE_LOW_BYTES = 131_072
SLICE_BYTES: Final = 131_072
HELD_BACK_BYTES, LOW_BYTES = 16_384, 4_096
"""Unsent bytes at which TLS pauses its protocol, and at which it resumes. The bytes that remain after a handshake are
fewer, and TLS sends them only with the next write or read."""
SOCKET_BYTES: Final = 65_536 + SLICE_BYTES
"""Bytes that the socket's transport may hold and TLS does not report: the transport's high-water mark, and the slice
that exceeds the mark."""


class Outgoing(Requester):
    """Sends frames to the peer of a `Connection`.

    Args:
        group: connections that share one bound on unread replies.
    """

    # _paced: `_transport` of a server's TLS connection. _ready_bytes: bytes of replies that handlers hold until the
    # peer has read more.
    __slots__ = ("_flush_scheduled", "_out_size", "_paced", "_ready_bytes", "_writable", "_write_paused", "_written")

    def __init__(self, group: ConnectionGroup[Any]) -> None:
        super().__init__(group)
        self._flush_scheduled = self._write_paused = False
        self._out_size = self._ready_bytes = 0
        self._paced: PacedTransport | None = None
        self._writable: asyncio.Future[None] | None = None
        self._written = Written()

    def send(self, data: Command | bytes) -> None:
        """Send a command or a complete frame. All frames of one turn of the loop share one write.

        A closed connection drops the frame without an error. Callers that need an error use `invoke` or `on_close`.
        """
        if self.closed:
            return
        self._out.append(frame := data if type(data) is bytes else encode(data))  # type: ignore[arg-type]
        self._out_size += len(frame)
        if self._out_size >= FLUSH_BYTES:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._group.loop.call_soon(self._flush)

    def send_all(self, frames: list[bytes]) -> None:
        """Send complete frames now, in one write with the frames that this turn of the loop has not written yet."""
        if not self.closed:
            self._out += frames
            self._out_size += sum(map(len, frames))
            self._flush()

    async def drain(self, ready_bytes: int = 0) -> None:
        """Wait until the peer has read enough bytes to receive more.

        A handler that has waited calls this method before it builds a large reply. Otherwise many such handlers wake
        together and hold replies for a peer that does not read.

        Args:
            ready_bytes: size in bytes of a reply that the handler already holds; the reply counts as unread while the
                handler waits.

        Raises:
            ConnectionLost: the connection ended first.
        """
        if (room := self.room()) is not None and not self.closed:
            self._ready_bytes += ready_bytes
            if self._group.guarded:
                self._group.peer_is_slow(self)
            try:
                while room is not None:
                    await asyncio.shield(room)
                    room = self.room()
            finally:
                self._ready_bytes -= ready_bytes
        if self.closed:
            raise ConnectionLost(f"connection to {self} is closed")

    def room(self) -> asyncio.Future[None] | None:
        """Return None when the peer can receive more bytes, else a future to wait for before the next call.

        Do not cancel the future: several callers share it.
        """
        if self._out_size >= WRITE_LOW_BYTES:
            self._flush()
        if not self._write_paused or self.closed:
            return None
        if self._writable is None:
            self._writable = self._group.loop.create_future()
        return self._writable

    def _flush(self) -> None:
        self._flush_scheduled = False
        out = self._out
        if out and not self.closed:
            size, self._out, self._out_size = self._out_size, [], 0
            self._lone = len(out) == 1
            self._write(out, size)

    def _write(self, pieces: list[bytes], size: int) -> None:
        group, transport = self._group, self._transport
        self.last_write = group.monotonic()
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif size >= LARGE_PIECE * len(pieces):
            # Joining would copy them once more. From Python 3.12 on asyncio never finishes to write an empty piece.
            transport.writelines([piece for piece in pieces if len(piece)])
        else:
            transport.write(b"".join(pieces))
        if group.guarded and (self._write_paused or (size >= READ_SIZE and transport.get_write_buffer_size())):
            self._written.note(size)
            if self._write_paused:
                group.peer_is_slow(self)
            else:
                # Few bytes are unsent, so the transport does not pause. It may still hold the whole reply in memory.
                group.keeps_some(self, size)


class PacedTransport:
    """A TLS transport that delays large replies instead of encrypting them for a peer that does not read.

    A TLS transport of asyncio or uvloop encrypts all written bytes at once, passes the result to the transport of the
    socket, and reports an empty write buffer. It reports 0 bytes even while 4 MiB wait for a peer that never reads.
    This transport writes a large reply slice by slice. It stops as soon as TLS buffers a slice, and continues when TLS
    has sent the slice.

    Args:
        transport: the TLS transport. The `resume_writing` of its protocol must call `write_on`.
    """

    __slots__ = ("_closing", "_pieces", "_transport", "_waiting_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._closing = False
        transport.set_write_buffer_limits(high=HELD_BACK_BYTES, low=LOW_BYTES)

    def write(self, data: bytes) -> None:
        """Write bytes, or queue the bytes that TLS would buffer."""
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
        """Write queued slices until TLS buffers one. Return whether no slice is queued or buffered."""
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
        """Return the number of unread bytes outside the system's socket buffers."""
        left = self._transport.get_write_buffer_size()
        return left + self._waiting_bytes + SOCKET_BYTES if self._pieces or left >= HELD_BACK_BYTES else left

    def forget(self) -> None:
        """Drop the queued bytes of a lost connection."""
        self._pieces.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Close the transport after all queued bytes are written."""
        self._closing = True
        if not self._pieces:
            self._transport.close()

    def abort(self) -> None:
        """Close the transport at once and drop the queued bytes."""
        self._closing = True
        self.forget()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the transport is closed, or closes when all queued bytes are written."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Pause reading."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return an item of the TLS transport's extra information."""
        return self._transport.get_extra_info(name, default)


class LostTransport:
    """The transport of a TLS connection that is lost: it accepts calls, does nothing and holds no memory."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Drop the bytes."""

    def writelines(self, pieces: list[bytes]) -> None:
        """Drop the pieces."""

    def get_write_buffer_size(self) -> int:
        """Return 0: no bytes wait for the peer."""
        return 0

    def close(self) -> None:
        """Do nothing: the transport is closed."""

    def abort(self) -> None:
        """Do nothing: the transport is closed."""

    def is_closing(self) -> bool:
        """Return True: the transport is closed."""
        return True

    def pause_reading(self) -> None:
        """Do nothing: the peer sends no more."""

    def resume_reading(self) -> None:
        """Do nothing: the peer sends no more."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default: the socket and its addresses are gone."""
        return default


LOST_TRANSPORT: Final = LostTransport()
