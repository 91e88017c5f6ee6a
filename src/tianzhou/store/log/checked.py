"""The records of the log that were found whole since they were read from the disk (store.md §3.5).

Records that this process wrote are valid while they stay in memory. All others may have changed on the disk: they are
checked at their first read, and the result is remembered until they leave the memory.
"""

from __future__ import annotations

from typing import Final

from tianzhou._hot.records import BLOCK_BITS, GRAIN_BITS

_BLOCK_BYTES: Final = 1 << BLOCK_BITS - GRAIN_BITS - 3
MOST_BLOCKS: Final = 4096
"""Maximum number of 1 MiB blocks whose bits are remembered: 8 MiB of memory for 4 GiB of log."""
_READ_AHEAD: Final = 16 << 20
"""Maximum bytes that the system reads ahead after the requested ones."""


class CheckedRecords:
    """Remembers which records were found whole, with one bit for 64 bytes of log.

    Attributes:
        trusted_from: records from this log offset on were written by this process, and have stayed in memory since.
        undisturbed: whether no record of this process has been read back from the disk.
    """

    __slots__ = ("_blocks", "trusted_from", "undisturbed")

    def __init__(self) -> None:
        self.trusted_from = 0
        self.undisturbed = True
        self._blocks: dict[int, bytearray] = {}

    def opened(self, end: int) -> None:
        """Start with a log that ends at an offset."""
        self.trusted_from, self.undisturbed = end, True
        self._blocks.clear()

    def bits(self, block: int) -> bytearray:
        """Return the bits of a block, for `Proof.checked`; a new block replaces the oldest one above the limit."""
        blocks = self._blocks
        found = blocks.get(block)
        if found is None:
            if len(blocks) >= MOST_BLOCKS:
                del blocks[next(iter(blocks))]
            found = blocks[block] = bytearray(_BLOCK_BYTES)
        return found

    def __contains__(self, offset: int) -> bool:
        """Whether the record at a log offset needs no check."""
        if offset >= self.trusted_from:
            return True
        bits = self._blocks.get(offset >> BLOCK_BITS)
        number = (offset & (1 << BLOCK_BITS) - 1) >> GRAIN_BITS
        return bits is not None and bool(bits[number >> 3] >> (number & 7) & 1)

    def add(self, offset: int) -> None:
        """Note that the record at a log offset is whole."""
        number = (offset & (1 << BLOCK_BITS) - 1) >> GRAIN_BITS
        self.bits(offset >> BLOCK_BITS)[number >> 3] |= 1 << (number & 7)

    def fetched(self, start: int, end: int, log_end: int, hot: int) -> None:
        """Note that a stretch of the log was read from the disk.

        Args:
            start: its first log offset.
            end: the log offset after it.
            log_end: the log's end.
            hot: bytes before the log's end that always count as in memory.
        """
        for block in range(start >> BLOCK_BITS, (end + _READ_AHEAD >> BLOCK_BITS) + 1):
            self._blocks.pop(block, None)
        # Records in between are checked once more, which costs little; old pages leave the memory first.
        upto = max(end, min(end + _READ_AHEAD, log_end - hot))
        if upto > self.trusted_from:
            self.trusted_from, self.undisturbed = upto, False
