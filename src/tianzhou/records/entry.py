"""The frame of a record in a DLedger log: entry header, index unit, end mark of a segment (broker.md §19.5)."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from tianzhou.errors import CorruptRecord
from tianzhou.records.checksum import Octets
from tianzhou.records.layout import RecordField, placed

HEADER_FIELDS: Final = placed(
    (1, "magic", "i"),
    (2, "size", "i"),
    (3, "index", "q"),
    (4, "term", "q"),
    (5, "pos", "q"),
    (6, "channel", "i"),
    (7, "chain_crc", "i"),
    (8, "body_crc", "i"),
    (9, "body_size", "i"),
)
"""The fields in front of an entry's body."""
UNIT_FIELDS: Final = placed((1, "magic", "i"), (2, "pos", "q"), (3, "size", "i"), (4, "index", "q"), (5, "term", "q"))
"""The fields of an index unit."""


def _struct(fields: tuple[RecordField, ...]) -> Struct:
    return Struct(">" + "".join(field.form for field in fields))


HEADER: Final = _struct(HEADER_FIELDS)
"""All fields of an entry header."""
UNIT: Final = _struct(UNIT_FIELDS)
"""All fields of an index unit."""
HEADER_SIZE: Final = HEADER.size
"""Bytes of a header. The body follows it."""
UNIT_SIZE: Final = UNIT.size
"""Bytes of an index unit. The unit of entry n begins at byte `n * UNIT_SIZE`."""
MAGIC: Final = 1
"""Magic number of every entry."""
MAGIC_END: Final = -1
"""Magic number of the mark behind a segment's last entry; see `END`."""
END: Final = Struct(">ii")
"""The mark behind a segment's last entry: magic number, and bytes left in the segment from the mark on."""
END_SIZE: Final = END.size
"""Bytes at the end of a segment that no entry may take, so that the end mark always fits."""


class EntryHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of an entry, in front of its body.

    Attributes:
        index: number of the entry in its log; the first is 0.
        term: term of the leader that appended the entry.
        pos: log offset of the header.
        body_size: bytes of the body.
        size: bytes of header and body together.
        magic: 1.
        channel: 0.
        chain_crc: 0.
        body_crc: 0; the record in the body has its own CRC.
    """

    index: int
    term: int
    pos: int
    body_size: int
    size: int
    magic: int = MAGIC
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    @property
    def end(self) -> int:
        """Log offset of the first byte behind the entry."""
        return self.pos + self.size

    def encode(self) -> bytes:
        """Return the header as stored."""
        return HEADER.pack(
            self.magic, self.size, self.index, self.term, self.pos, self.channel, self.chain_crc, self.body_crc,
            self.body_size,
        )  # fmt: skip

    def unit(self) -> bytes:
        """Return the entry's unit of the index."""
        return UNIT.pack(self.magic, self.pos, self.size, self.index, self.term)


def decode_header(buffer: Octets, offset: int = 0) -> EntryHeader:
    """Decode the header at `offset`, and check only its own fields.

    Args:
        buffer: bytes of a log or of a message between nodes.
        offset: where the entry begins in it.

    Raises:
        CorruptRecord: no entry begins here; see its `reason`.
    """
    left = len(buffer) - offset
    if left < HEADER_SIZE:
        raise CorruptRecord(f"{max(left, 0)} bytes are left, too few for an entry", reason="short")
    magic, size, index, term, pos, channel, chain_crc, body_crc, body_size = HEADER.unpack_from(buffer, offset)
    if magic != MAGIC:
        raise CorruptRecord(f"magic number {magic} is none of an entry", reason="magic")
    if body_size <= 0 or size != HEADER_SIZE + body_size:
        raise CorruptRecord(f"an entry of {size} bytes cannot have a body of {body_size}", reason="length")
    if index < 0 or term < 0 or pos < 0:
        raise CorruptRecord(f"an entry cannot have index {index}, term {term}, position {pos}", reason="length")
    return EntryHeader(index, term, pos, body_size, size, magic, channel, chain_crc, body_crc)
