"""Replies to pulls, split without copies: their records are views of the receive buffer. Pure.

A `Session` copies each body out of its frame, because the next read overwrites the frame. Here each read is stored
behind the one before, in a block of memory that is reused only when no view of it is left.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tianzhou.errors import ProtocolError
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.wire.command import Command, split

BLOCK_BYTES: Final = 5 << 20
"""Bytes of a block: one batch of pulls (`span_reader.BATCH_BYTES`), and its last reply."""
MOST_SPARE: Final = 4
"""Maximum number of blocks that are reused. Further blocks are freed when no view of them is left."""

_WORDS: Final = Struct(">iI")
_HEADER_SIZE: Final = 0xFFFFFF
_SMALL_REST: Final = 256 << 10
"""Minimum bytes left in a block for another read."""


class PullReply(NamedTuple):
    """A received frame.

    Attributes:
        command: its header, without a body.
        body: the bytes behind the header, as a view that holds their memory.
    """

    command: Command
    body: memoryview


class PullReplies:
    """Splitter of received bytes into frames.

    A transport writes into `writable()` and reports with `received(count)`. A frame above `MAX_FRAME` is an error
    before memory for it is allocated.

    Args:
        block_bytes: bytes of a block.
    """

    __slots__ = ("_begin", "_block", "_block_bytes", "_blocks", "_end", "_view")

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._block = bytearray(block_bytes)
        self._blocks = [self._block]
        self._view = memoryview(self._block)
        self._begin = self._end = 0

    def begin(self) -> None:
        """Reuse the block from its beginning, if no view of it is left; call it before the next pulls are sent."""
        if self._begin == self._end:
            self._view.release()
            if _is_free(self._block):
                self._begin = self._end = 0
            self._view = memoryview(self._block)

    def writable(self) -> memoryview:
        """Return the memory for the next bytes from the server; never empty."""
        if self._begin == self._end and len(self._block) - self._end < _SMALL_REST:
            self._move(0)
        return self._view[self._end :]

    def received(self, count: int) -> list[PullReply]:
        """Return the frames that the `count` bytes just written into `writable()` complete, in order.

        Raises:
            ProtocolError: the bytes are no frames; this object must not be used after that.
        """
        self._end += count
        found = []
        view = self._view
        while self._end - self._begin >= _WORDS.size:
            length, word = _WORDS.unpack_from(view, self._begin)
            body, stop = self._begin + _WORDS.size + (word & _HEADER_SIZE), self._begin + 4 + length
            if body > stop or length + 4 > MAX_FRAME:
                raise ProtocolError(f"a frame of {length} bytes with a header of {word & _HEADER_SIZE}")
            if stop > self._end:
                if stop > len(self._block):
                    self._move(stop - self._begin)
                break
            head = _WORDS.pack(body - self._begin - 4, word) + view[self._begin + _WORDS.size : body]
            (command,), _ = split(head, 0, len(head), MAX_FRAME)
            found.append(PullReply(command, view[body:stop]))
            self._begin = stop
        return found

    def _move(self, size: int) -> None:
        """Continue in a block with room for a frame of `size` bytes (0: any size), and copy the incomplete frame."""
        pending = bytes(self._view[self._begin : self._end])
        self._view.release()
        self._block = self._spare(max(size, self._block_bytes))
        self._view = memoryview(self._block)
        self._begin, self._end = 0, len(pending)
        self._view[: self._end] = pending

    def _spare(self, size: int) -> bytearray:
        for block in self._blocks:
            if len(block) >= size and _is_free(block):
                return block
        made = bytearray(size)
        if size == self._block_bytes and len(self._blocks) < MOST_SPARE:
            self._blocks.append(made)
        return made


def _is_free(block: bytearray) -> bool:
    """Whether no view of a block is left."""
    try:
        block.append(block.pop())  # fails while there are views, and changes nothing otherwise
    except BufferError:
        return False
    return True
