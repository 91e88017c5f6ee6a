"""The items of a commit log: whole records, blanks that end segments, and invalid bytes."""

from __future__ import annotations

from tianzhou.records.layout import BLANK_SIZE, MAGIC_BLANK, MAGIC_START, SIZE_MAGIC
from tianzhou.records.walk import LogEntry, is_whole, read_item
from tianzhou.store.files.segments import Segment
from tianzhou.store.log.commitlog import CommitLog


class LogItems:
    """Reads a log record by record, and trusts none of them.

    Args:
        log: the log; its records are not in entries.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    @property
    def end(self) -> int:
        """Log offset where the log ends."""
        return self._log.end

    def room(self, offset: int) -> int:
        """Return the bytes from a log offset to the end of its segment; 0 after the log."""
        segment = self._log.files.find(offset)
        return 0 if segment is None else segment.end - offset

    def whole_size(self, offset: int) -> int:
        """Return the bytes of the whole record, or of the blank that ends a segment, at a log offset; 0 without one."""
        segment = self._log.files.find(offset)
        if segment is None or segment.end - offset < BLANK_SIZE:
            return 0
        at = offset - segment.start
        size, magic = SIZE_MAGIC.unpack_from(segment.view, at)
        if magic == MAGIC_BLANK:
            room: int = segment.end - offset
            return room if size == room and segment.end <= self.end else 0
        return size if offset + size <= self.end and is_whole(segment.view, at, segment.start) else 0

    def next_whole(self, offset: int) -> int:
        """Return the log offset of the next whole record after an offset; the end of the log without one."""
        return self._first_whole(offset + 1, self.end)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the log, all of one segment; empty when the log does not have them."""
        found = self._log.read(offset, size)
        return b"" if found is None else bytes(found)

    def entry_at(self, offset: int) -> LogEntry | None:
        """Return the fields of the record at a log offset; None when it is not whole."""
        segment = self._log.files.find(offset)
        if segment is None or not self.whole_size(offset):
            return None
        return read_item(segment.view, offset - segment.start, segment.start).entry

    def entries(self, start: int, stop: int) -> list[LogEntry]:
        """Return the records between the offsets of two items, up to the first one that is not whole."""
        found = []
        while start < stop and (size := self.whole_size(start)):
            entry = self.entry_at(start)
            found += [] if entry is None else [entry]
            start += size
        return found

    def begin_of(self, offset: int, first: int, known: int | None) -> int | None:
        """Return the log offset of the record that contains a log offset.

        Args:
            offset: the log offset.
            first: start of the search for a whole record, which gives the offsets of the following ones.
            known: offset of a record at or before `offset`; None without one.

        Returns:
            The record's offset, or the offset of the invalid bytes that contain `offset`. None when no whole record
            ends between `first` and `offset`.
        """
        at = self._first_whole(first, offset) if known is None else known
        if known is None and (at >= offset or at + self.whole_size(at) > offset):
            return None
        while True:
            size = self.whole_size(at)
            behind = at + size if size else self._first_whole(at + 1, offset + 1)
            if behind > offset or (not size and not self.whole_size(behind)):
                return at
            at = behind

    def _first_whole(self, start: int, stop: int) -> int:
        """Return the offset of the first whole record at or after `start`; `stop` when there is none before it."""
        for segment in self._log.files.segments:
            begin, end = max(start, segment.start) - segment.start, min(stop, segment.end) - segment.start
            found = self._magic(segment, begin) if begin < end else -1
            while 0 <= found < end:
                if self.whole_size(segment.start + found):
                    return int(segment.start + found)
                found = self._magic(segment, found + 1)
        return stop

    @staticmethod
    def _magic(segment: Segment, at: int) -> int:
        """Return the position of the next bytes with a record's magic, at or after a position; -1 without any."""
        found = segment.find(MAGIC_START, at + 4)
        return found - 4 if found >= 0 else -1
