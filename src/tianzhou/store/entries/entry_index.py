"""The index of a DLedger log's entries, with one unit of 32 bytes an entry, in its own files (broker.md §19.5)."""

from __future__ import annotations

from mmap import mmap
from pathlib import Path
from typing import Final

from tianzhou.records.entry import HEADER_SIZE, MAGIC, UNIT, UNIT_SIZE, EntryHeader
from tianzhou.store.files.segments import Segment, SegmentQueue, segment_files

FILE_SIZE: Final = UNIT_SIZE * 5 * 1024 * 1024
"""Bytes of an index file."""
_STEP: Final = 64 << 10


class EntryIndex:
    """The units of all entries of the log.

    Args:
        folder: folder of the files.
        file_size: bytes of each.

    Attributes:
        files: the files.
        end: index of the next unit.
        reserved: index before which units can be written without a reservation.
    """

    def __init__(self, folder: Path, file_size: int = FILE_SIZE) -> None:
        self.files = SegmentQueue([folder], file_size)
        self.end = 0
        self.reserved = 0
        self._segment: Segment | None = None
        self._synced = 0

    def load(self) -> None:
        """Load the files; delete one of another length, or after a gap, and all later ones, to be rebuilt.

        Raises:
            OSError: the folder cannot be read.
        """
        size = self.files.size
        expected: int | None = None
        for start, path, length in sorted(segment_files(self.files.directories[0])):
            if length == size and start % size == 0 and expected in {None, start}:
                self.files.adopt(Segment(path, start, size))
                expected = start + size
            else:
                path.unlink()
                expected = -1

    def find(self, index: int) -> EntryHeader | None:
        """Return the unit of an entry; None without one."""
        segment = self.files.find(index * UNIT_SIZE) if index >= 0 else None
        if segment is None:
            return None
        at = index * UNIT_SIZE - segment.start
        magic, pos, size, stated, term = UNIT.unpack(segment.read(at, at + UNIT_SIZE))
        if magic != MAGIC or stated != index or size <= 0 or pos < 0:
            return None
        return EntryHeader(index, term, pos, size - HEADER_SIZE, size)

    def reserve(self, index: int, count: int = 1) -> None:
        """Ensure that the units of some entries can be written.

        Args:
            index: index of the first of them: the next entry, or the first one.
            count: number of units, in one file or two consecutive ones.

        Raises:
            OSError: no file can be created, or the disk is full.
        """
        segment = self._find_or_make(index * UNIT_SIZE)
        at = index * UNIT_SIZE - segment.start
        upto = min(segment.size, max(at + count * UNIT_SIZE, at + _STEP))
        segment.reserve_range(at, upto)
        self._segment = segment
        self.reserved = (segment.start + upto) // UNIT_SIZE
        if self.reserved < index + count:
            self._find_or_make(segment.end).reserve_range(0, _STEP)

    def _find_or_make(self, place: int) -> Segment:
        segment = self.files.find(place)
        if segment is None:
            start = place - place % self.files.size
            if self.files.segments and self.files.segments[-1].end != start:
                self.cut(0)
            segment = self.files.create(start)
        return segment

    def put(self, index: int, term: int, pos: int, size: int) -> None:
        """Write the unit of the next entry, or of the first one.

        Args:
            index: index of the entry.
            term: its term.
            pos: log offset of its header.
            size: bytes of header and body.

        Raises:
            OSError: no file can be created, or the disk is full; never for reserved units.
        """
        segment = self._segment
        if segment is None or not segment.start <= index * UNIT_SIZE < self.reserved * UNIT_SIZE:
            self.reserve(index)
            segment = self._segment
            assert segment is not None
        UNIT.pack_into(segment.map, index * UNIT_SIZE - segment.start, MAGIC, pos, size, index, term)
        self.end = index + 1

    def room(self, index: int) -> tuple[mmap, int, int]:
        """Return the reserved room for units: the file, the first one's place in it, and their number.

        Args:
            index: index of the next entry, below `reserved`.
        """
        segment = self._segment
        assert segment is not None
        return segment.map, index * UNIT_SIZE - segment.start, self.reserved - index

    def cut(self, index: int) -> None:
        """Drop the units from an entry on; synced on return.

        Raises:
            OSError: the disk refused.
        """
        self.files.truncate(index * UNIT_SIZE)
        self._segment = None
        self.reserved = 0
        self.end = index
        self._synced = min(self._synced, index)

    def expired(self, begin: int) -> list[Segment]:
        """Remove and return the files with only entries before an index; the caller deletes them."""
        files = []
        while len(self.files) > 1 and self.files.segments[0].end <= begin * UNIT_SIZE:
            files.append(self.files.drop_first())
        return files

    def unsynced(self) -> list[tuple[Segment, int, int]]:
        """Return the unsynced parts of files, and mark them as synced."""
        start, end = self._synced * UNIT_SIZE, self.end * UNIT_SIZE
        self._synced = self.end
        return [
            (segment, max(start - segment.start, 0), min(end - segment.start, segment.size))
            for segment in self.files
            if segment.end > start and segment.start < end
        ]

    def opened(self, end: int, synced: int) -> None:
        """Continue after the last entry of the log.

        Args:
            end: index of the next entry.
            synced: index before which units are on the disk.

        Raises:
            OSError: the disk refused.
        """
        self.cut(end)
        self._synced = min(synced, end)

    def close(self) -> None:
        """Unmap all files."""
        self._segment = None
        self.files.close()
