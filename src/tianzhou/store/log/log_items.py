"""What stands where in a commit log: whole records, blanks that end segments, and bytes that are neither."""

from __future__ import annotations

from tianzhou.records.layout import BLANK_SIZE, MAGIC_BLANK, MAGIC_START, SIZE_MAGIC
from tianzhou.records.walk import LogEntry, is_whole, read_item
from tianzhou.store.files.segments import Segment
from tianzhou.store.log.commitlog import CommitLog


class LogItems:
    """Reads a log record by record, without trust in any of them.

    Args:
        log: the log; its records do not stand in entries.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    @property
    def end(self) -> int:
        """Where the log ends."""
        return self._log.end

    def room(self, offset: int) -> int:
        """Bytes from a log offset to the end of its segment; 0 behind the log."""
        segment = self._log.files.find(offset)
        return 0 if segment is None else segment.end - offset

    def whole_size(self, offset: int) -> int:
        """Bytes of the whole record, or of the blank that ends a segment, at a log offset; 0 when there is none."""
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
        """Where the next whole record behind a log offset begins; the end of the log when there is none."""
        return self._first_whole(offset + 1, self.end)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Bytes of the log, all of one segment; none when it does not have them."""
        found = self._log.read(offset, size)
        return b"" if found is None else bytes(found)

    def entry_at(self, offset: int) -> LogEntry | None:
        """The fields of the record at a log offset; None when it is not whole."""
        segment = self._log.files.find(offset)
        if segment is None or not self.whole_size(offset):
            return None
        return read_item(segment.view, offset - segment.start, segment.start).entry

    def entries(self, start: int, stop: int) -> list[LogEntry]:
        """The records between two log offsets where items begin, as long as they are whole."""
        found = []
        while start < stop and (size := self.whole_size(start)):
            entry = self.entry_at(start)
            found += [] if entry is None else [entry]
            start += size
        return found

    def begin_of(self, offset: int, first: int, known: int | None) -> int | None:
        """Where the record begins that a log offset lies in.

        Args:
            offset: the log offset.
            first: from where on to look for a whole record, which says where the following ones begin.
            known: where one is known to begin, at or before `offset`; None when that is not known.

        Returns:
            Where it begins; where the bytes begin that are no whole record, when it lies in such ones; None when no
            whole record ends between `first` and there.
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
        """Where the first whole record at or behind an offset begins; `stop` when none does before that."""
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
        """Where the next bytes stand that begin as a record does, at or behind a position; -1 when none do."""
        found = segment.find(MAGIC_START, at + 4)
        return found - 4 if found >= 0 else -1
