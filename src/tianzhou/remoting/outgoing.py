"""The sending half of a connection: one joined write in a turn, and how much of it the peer has not read."""

from __future__ import annotations

import asyncio
from typing import Any

from tianzhou._hot.client_sends import FLUSH_BYTES
from tianzhou.errors import ConnectionLost
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.paced_writes import PacedTransport
from tianzhou.remoting.requester import Requester
from tianzhou.remoting.session import READ_SIZE
from tianzhou.remoting.unread import Written
from tianzhou.wire.command import Command, encode

LARGE_PIECE = 4096
WRITE_LOW_BYTES = 131_072


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
