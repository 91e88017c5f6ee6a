"""Which records of the log have been found whole since they came from the disk (store.md §3.5).

What this process wrote is as it was written for as long as it stays in memory. Everything else may have changed on the
disk: it is checked when it is read first, and that is remembered until it leaves the memory.
"""

from __future__ import annotations

from typing import Final

from tianzhou._hot.records import BLOCK_BITS, GRAIN_BITS

_BLOCK_BYTES: Final = 1 << BLOCK_BITS - GRAIN_BITS - 3
MOST_BLOCKS: Final = 4096
"""Blocks of 1 MiB whose bits are remembered: 8 MiB of memory for 4 GiB of log."""
_READ_AHEAD: Final = 16 << 20
"""Bytes that the system may read from the disk behind those that were asked for."""


class CheckedRecords:
    """Remembers, by one bit for 64 bytes of log, which records were found whole.

    Attributes:
        trusted_from: records from this log offset on were written by this process, and have been in memory since.
        undisturbed: nothing that this process wrote has come back from the disk.
    """

    __slots__ = ("_blocks", "trusted_from", "undisturbed")

    def __init__(self) -> None:
        self.trusted_from = 0
        self.undisturbed = True
        self._blocks: dict[int, bytearray] = {}

    def opened(self, end: int) -> None:
        """Begin with a log that ends at an offset."""
        self.trusted_from, self.undisturbed = end, True
        self._blocks.clear()

    def bits(self, block: int) -> bytearray:
        """The bits of a block, for `Proof.checked`; the oldest of too many blocks is forgotten."""
        blocks = self._blocks
        found = blocks.get(block)
        if found is None:
            if len(blocks) >= MOST_BLOCKS:
                del blocks[next(iter(blocks))]
            found = blocks[block] = bytearray(_BLOCK_BYTES)
        return found

    def __contains__(self, offset: int) -> bool:
        """Whether the record that begins at a log offset need not be checked again."""
        if offset >= self.trusted_from:
            return True
        bits = self._blocks.get(offset >> BLOCK_BITS)
        number = (offset & (1 << BLOCK_BITS) - 1) >> GRAIN_BITS
        return bits is not None and bool(bits[number >> 3] >> (number & 7) & 1)

    def add(self, offset: int) -> None:
        """Note that the record that begins at a log offset is whole."""
        number = (offset & (1 << BLOCK_BITS) - 1) >> GRAIN_BITS
        self.bits(offset >> BLOCK_BITS)[number >> 3] |= 1 << (number & 7)

    def fetched(self, start: int, end: int, log_end: int, hot: int) -> None:
        """Note that a stretch of the log comes from the disk.

        Args:
            start: where it begins.
            end: where it ends.
            log_end: the log's end.
            hot: bytes before that which nobody takes for having left the memory.
        """
        for block in range(start >> BLOCK_BITS, (end + _READ_AHEAD >> BLOCK_BITS) + 1):
            self._blocks.pop(block, None)
        # What lies between is checked once more, which costs little; old pages are the first to leave.
        upto = max(end, min(end + _READ_AHEAD, log_end - hot))
        if upto > self.trusted_from:
            self.trusted_from, self.undisturbed = upto, False
