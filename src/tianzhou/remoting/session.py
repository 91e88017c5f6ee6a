"""Framing of a connection (wire.md §1.1): bytes in, commands out.

It owns no socket, no clock and no task, so a test drives it with plain bytes, and the same code serves TCP, memory
and TLS.

A session holds a half frame between reads in one of two ways, so that it copies no byte more than a few times however
slowly a frame arrives. At first the half frame is a tail that is put in front of the next read. A frame above
`SMALL_FRAME`, or one that the next read does not complete either, gets a buffer of its own. That buffer grows with the
bytes that have arrived, not with the announced size.
"""

from __future__ import annotations

from collections.abc import Callable

from tianzhou._hot import OpaqueCounter as OpaqueCounter
from tianzhou._hot.reads import READ_SIZE as READ_SIZE
from tianzhou.errors import ProtocolError
from tianzhou.limits import FRAME_BYTES
from tianzhou.remoting.foreign import explain
from tianzhou.wire.command import Command, split

MAX_FRAME = FRAME_BYTES.default
"""Maximum bytes of a frame, including its length word (wire.md §1.8)."""

SMALL_FRAME = 65_536
LARGE_READ_SIZE = 262_144
_LARGE_START = 2048
_LENGTH_WORD = 4
_PREFIX_BYTES = 16
"""First bytes that identify a foreign protocol."""


def scratch_buffer() -> bytearray:
    """Return a read buffer that the sessions of one event loop may share; it is unused between reads."""
    return bytearray(SMALL_FRAME + READ_SIZE)


class Session:
    """Splitter of received bytes into commands.

    A transport writes into `writable()` and reports with `received(count)`. Between those two calls no other session
    may use a shared scratch buffer. A frame above `MAX_FRAME` is an error before its memory is allocated.

    Args:
        scratch: a buffer of `scratch_buffer` to share; by default the session has its own.

    Attributes:
        error: why the session can read no more.
        reserved: bytes of memory reserved for a half-received frame; 0 when there is none.
    """

    __slots__ = (
        "_filled",
        "_large",
        "_large_size",
        "_scratch",
        "_tail",
        "_view",
        "error",
        "reserved",
    )

    def __init__(self, scratch: bytearray | None = None) -> None:
        self._scratch = scratch_buffer() if scratch is None else scratch
        self._view = memoryview(self._scratch)
        self._tail = b""
        self._large: bytearray | None = None
        self._large_size = 0
        self._filled = 0
        self.reserved = 0
        self.error: ProtocolError | None = None

    def writable(self, most: int = READ_SIZE) -> memoryview:
        """Return the buffer for the next bytes from the peer; never empty.

        Args:
            most: maximum bytes of one read, at most `READ_SIZE`; a frame's own buffer may take more.
        """
        large = self._large
        if large is not None:
            return memoryview(large)[self._filled : self._filled + LARGE_READ_SIZE]
        tail = self._tail
        if tail:
            size = len(tail)
            self._view[:size] = tail
            return self._view[size : size + most]
        return self._view[:most]

    def received(
        self, count: int, take: Callable[[bytearray, int, int], int] | None = None, first: int = 0
    ) -> list[Command]:
        """Return the commands that `count` bytes just written into `writable()` complete, in order.

        Args:
            count: number of received bytes.
            take: serves frames at the front of a buffer, between two positions, before the rest becomes commands;
                returns the position after the served frames.
            first: position after the frames that were served already, if there was no half frame.

        Bad bytes do not raise here: the commands before them are returned and `error` is set. The session accepts no
        bytes after that.
        """
        if self._large is not None:
            return self._received_large(count, take)
        end = len(self._tail) + count
        if take is not None:
            first = take(self._scratch, 0, end)
        if first == end:
            self._tail = b""
            self.reserved = 0
            return []
        try:
            commands, start = split(self._scratch, first, end, MAX_FRAME)
        except ProtocolError:
            commands, start = self._up_to_error(first, end)
        if start == end:
            self._tail = b""
            self.reserved = 0
        elif self.error is None:
            self._keep(start, end)
        return commands

    def _keep(self, start: int, end: int) -> None:
        have = end - start
        if have >= _LENGTH_WORD:
            size = _LENGTH_WORD + int.from_bytes(self._view[start : start + _LENGTH_WORD], "big")
            if size > SMALL_FRAME or (self._tail and start == 0):
                large = bytearray(min(size, max(_LARGE_START, 2 * have)))
                large[:have] = self._view[start:end]
                self._large, self._large_size, self._filled, self._tail = large, size, have, b""
                self.reserved = len(large)
                return
        self._tail = bytes(self._view[start:end])
        self.reserved = have

    def _received_large(self, count: int, take: Callable[[bytearray, int, int], int] | None) -> list[Command]:
        large, size = self._large, self._large_size
        assert large is not None
        self._filled = filled = self._filled + count
        if filled < size:
            if filled == len(large):
                # The transport may still hold a view of the buffer, so it cannot be resized in place.
                grown = bytearray(min(size, 2 * filled))
                grown[:filled] = large
                self._large = grown
                self.reserved = len(grown)
            return []
        self._large, self._filled, self.reserved = None, 0, 0
        if take is not None and take(large, 0, size) == size:
            return []
        try:
            return split(large, 0, size, MAX_FRAME)[0]
        except ProtocolError as error:
            self.error = error
            return []

    def _up_to_error(self, start: int, end: int) -> tuple[list[Command], int]:
        # The rare case: split one frame at a time, so that the frames before the bad one are still served.
        commands: list[Command] = []
        try:
            while start + _LENGTH_WORD <= end:
                size = _LENGTH_WORD + int.from_bytes(self._view[start : start + _LENGTH_WORD], "big")
                found, after = split(self._scratch, start, min(end, start + size), MAX_FRAME)
                if after == start:
                    break
                commands += found
                start = after
        except ProtocolError as error:
            self.error = explain(error, bytes(self._view[start : min(end, start + _PREFIX_BYTES)]))
        return commands, start
