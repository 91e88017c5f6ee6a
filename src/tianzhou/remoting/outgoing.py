"""The sending half of a connection: one joined write in a turn, and how much of it the peer has not read."""

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
"""Bytes from which on TLS pauses its protocol, and down to which it resumes. What a handshake leaves behind is less,
and is sent with the next write or read only."""
SOCKET_BYTES: Final = 65_536 + SLICE_BYTES
"""Bytes that the socket's transport may hold and TLS does not report: its mark, and the slice that crossed the mark."""


class Outgoing(Requester):
    """Sends frames to the peer of a `Connection`.

    Args:
        group: bounds what peers do not read.
    """

    # _paced: `_transport` of a server's connection over TLS. _ready_bytes: bytes of replies that handlers hold until
    # the peer has read more.
    __slots__ = ("_flush_scheduled", "_out_size", "_paced", "_ready_bytes", "_writable", "_write_paused", "_written")

    def __init__(self, group: ConnectionGroup[Any]) -> None:
        super().__init__(group)
        self._flush_scheduled = self._write_paused = False
        self._out_size = self._ready_bytes = 0
        self._paced: PacedTransport | None = None
        self._writable: asyncio.Future[None] | None = None
        self._written = Written()

    def send(self, data: Command | bytes) -> None:
        """Send a command or a complete frame; everything sent in one turn of the loop goes out in one write.

        On a closed connection nothing happens: who needs to know uses `invoke` or `on_close`.
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
        """Send complete frames, with what was sent before them in this turn, in one write now."""
        if not self.closed:
            self._out += frames
            self._out_size += sum(map(len, frames))
            self._flush()

    async def drain(self, ready_bytes: int = 0) -> None:
        """Return once the peer has taken enough of what was sent that more may follow.

        A handler that is about to build a large reply after having waited calls this first; otherwise many
        such handlers that wake together would pile up replies for a peer that does not read.

        Args:
            ready_bytes: size of a reply that the handler already holds; it counts as unread while the handler waits.

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
        """None when more may be sent; else a future that is done when it is time to ask again; never cancel it."""
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
            transport.writelines(pieces)  # joining would copy them once more
        else:
            transport.write(b"".join(pieces))
        if group.guarded and (self._write_paused or (size >= READ_SIZE and transport.get_write_buffer_size())):
            self._written.note(size)
            if self._write_paused:
                group.peer_is_slow(self)
            else:
                # The transport is far from pausing, and may hold all of a reply of which little is left.
                group.keeps_some(self, size)


class PacedTransport:
    """A TLS transport that holds large replies back instead of encrypting them for a peer that does not read.

    A TLS transport of asyncio or uvloop encrypts all that is written at once, hands the result to the transport of the
    socket, and reports an empty write buffer: 4 MiB for a peer that never reads count as nothing. This transport writes
    a large reply slice by slice, stops as soon as TLS holds one back, and goes on when TLS has none left.

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
