"""The note beside an outbox file: numbers of the newest written and the newest removed message.

SQLite reads a damaged write-ahead log up to the damage without an error. The note has the numbers that the database
must have, so that a start notices missing messages. It is written after each commit and never synced. A power failure
may leave an older note, which finds fewer missing messages but no false ones.
"""

from __future__ import annotations

import os
import zlib
from typing import Final, NamedTuple

_NUMBERS_BYTES: Final = 42
_NOTE_BYTES: Final = _NUMBERS_BYTES + 9


class WrittenNote(NamedTuple):
    """Positions of an outbox.

    Attributes:
        written: number of the newest message whose commit the disk has; 0 before the first.
        removed: number up to which all messages were sent and removed.
    """

    written: int
    removed: int

    def encode(self) -> bytes:
        """Return the note as a line of fixed length, with its checksum."""
        numbers = b"%020d %020d " % self
        return numbers + b"%08x\n" % zlib.crc32(numbers)


def decode_note(line: bytes) -> WrittenNote | None:
    """Return the note in a line; None when the line is no note, or is damaged."""
    numbers = line[:_NUMBERS_BYTES]
    if len(line) != _NOTE_BYTES or line[_NUMBERS_BYTES:] != b"%08x\n" % zlib.crc32(numbers):
        return None
    written, removed = numbers.split()
    return WrittenNote(int(written), int(removed))


def missing_count(note: WrittenNote, removed: int, found: int) -> int:
    """Return the number of written messages that a database no longer has.

    Args:
        note: the note of the database.
        removed: number up to which the database has removed its messages.
        found: number of messages in the database with numbers above both `removed` and `note.removed`, up to
            `note.written`.
    """
    return max(note.written - max(removed, note.removed) - found, 0)


def read_note(file: int, offset: int) -> WrittenNote | None:
    """Return the note in an open file; None without one.

    Args:
        file: descriptor of the file.
        offset: position of the note in bytes.

    Raises:
        OSError: the file cannot be read.
    """
    return decode_note(os.pread(file, _NOTE_BYTES, offset))
