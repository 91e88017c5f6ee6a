"""The recovery of a log of entries: right units, committed entries, losses (broker.md §19.5)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from tianzhou.records.entry import HEADER_SIZE, EntryHeader
from tianzhou.records.framed import EntryTrail, entry_at, entry_begin
from tianzhou.store.entries.framed_log import FramedLog
from tianzhou.store.entries.member_files import EntryCheckpoint, GroupFile, ImpairedNote, Loss, TermFile
from tianzhou.store.settings import StoreSettings

logger = logging.getLogger(__name__)

_UNKNOWN: Final = 1 << 62


class EntryRecovery:
    """The state of entries that `StoreOpener` needs, and the completion of the log.

    Args:
        log: the log; its segments are loaded.
        settings: settings of the store.

    Attributes:
        committed_end: log offset after the last committed entry, once the walk has passed it; no later record belongs
            into queues. Very large before.
        power_failed: whether the machine lost its power while this broker had the folder; set before `load`.
        loss: known losses of the log, and its entries in doubt.
        identity: the file of the group's identity.
    """

    def __init__(self, log: FramedLog, settings: StoreSettings) -> None:
        folder = settings.entry_folder
        self._log = log
        self._sync_flush = settings.sync_flush
        self._marks = EntryCheckpoint(folder).read()
        self._note = ImpairedNote(folder)
        self._terms = TermFile(folder)
        self._folder = folder
        self._trail = EntryTrail()
        self._rewritten = 0
        self.committed_end = _UNKNOWN
        self.power_failed = False
        self.loss = Loss()
        self.identity = GroupFile(folder, settings.d_leger_group)

    def load(self) -> None:
        """Load the index files and the note of known losses.

        Raises:
            OSError: they cannot be read.
            StoreUnreadable: the folder belongs to another group.
        """
        self.identity.load()
        if self._log.framed:
            self._log.units.load()
        self.loss = self._note.read()
        if self.power_failed and not self._sync_flush and (self._log.framed or self._terms.read()[0]):
            # Entries counted as stored before they were on the disk. Entries after the last sync may be lost or torn. A
            # body has a CRC, but properties and times have none.
            synced = -1 if self._marks.synced_index is None else self._marks.synced_index
            before = self.loss.doubted_from
            self.loss = Loss(
                "its machine lost its power, and with flushDiskType=ASYNC_FLUSH its last entries may be gone",
                synced + 1 if before is None else min(before, synced + 1),
            )

    def _committed(self, index: int) -> int:
        """Return the last committed index that is not in doubt."""
        doubted = self.loss.doubted_from
        return index if doubted is None else min(index, doubted - 1)

    def begin_at(self, begin: int, dispatched: int) -> int:
        """Return the log offset to read from, so that the index lacks no entry.

        Args:
            begin: log offset from which queues and keys need the log.
            dispatched: offset of a record that is committed because it is in a queue; -1 without one.

        Returns:
            The offset, or an earlier one.
        """
        log = self._log
        if not log.framed:
            return begin
        first = log.framed_from
        marks = self._marks = replace(self._marks, committed_index=self._committed(self._marks.committed_index))
        segment = log.files.find(dispatched - HEADER_SIZE) if dispatched - HEADER_SIZE >= first else None
        if segment is not None:
            header = entry_at(segment.view, dispatched - HEADER_SIZE - segment.start, segment.start)
            index = -1 if isinstance(header, str) else self._committed(header.index)
            if index > marks.committed_index:
                self._marks = replace(marks, end_index=max(marks.end_index, index), committed_index=index)
        if self._marks.committed_index < 0:
            self.committed_end = first
        else:
            found = self._found(self._marks.committed_index)
            if found is not None:
                self.committed_end = found.end
        begin = min(begin, self._right_until())
        if begin > first:
            before = self._entry_before(begin)
            if before is None:
                # No entry of the index ends there, but the segment's first entry has its unit.
                segment = log.files.segments[max(log.files.index_of(begin - 1), 0)]
                begin = max(segment.start, first)
                before = self._entry_before(begin) if begin > first else None
                begin = begin if before is not None else first
            if before is not None:
                self._trail = EntryTrail(before.index, before.term)
                self._trail.end = before.end
        if self.committed_end == _UNKNOWN and begin > first and self._trail.index >= self._marks.committed_index:
            begin, self._trail = first, EntryTrail()
        return begin

    def _right_until(self) -> int:
        """Return the log offset before which the first entry of each segment has its unit."""
        log = self._log
        for segment in log.files.segments:
            if segment.start < log.framed_from:
                continue
            header = entry_at(segment.view, 0, segment.start)
            if isinstance(header, str) or log.units.find(header.index) != header:
                number = log.files.index_of(segment.start)
                return max(log.files.segments[max(number - 1, 0)].start, log.framed_from)
        return _UNKNOWN

    def _found(self, index: int) -> EntryHeader | None:
        """Return an entry by its unit, when the log has it there."""
        unit = self._log.units.find(index)
        segment = self._log.files.find(unit.pos) if unit is not None else None
        if unit is None or segment is None or segment.start < self._log.framed_from:
            return None
        header = entry_at(segment.view, unit.pos - segment.start, segment.start)
        return unit if header == unit else None

    def _entry_before(self, offset: int) -> EntryHeader | None:
        """Return the entry that ends at a log offset, or in the segment before the one that begins there."""
        segment = self._log.files.find(offset)
        if segment is not None:
            at = entry_begin(segment.view, offset - segment.start, segment.start)
            header = entry_at(segment.view, at, segment.start)
            if not isinstance(header, str):
                found = self._found(header.index - 1)
                near = found is not None and (found.end == header.pos or header.pos == segment.start)
                return found if near else None
        # The log may end here, and then the index does, too.
        found = self._found(self._marks.end_index)
        return found if found is not None and found.end == offset else None

    def restart(self) -> EntryTrail:
        """Return the trail for a walk from the offset of `begin_at`, and reset the results of an earlier walk."""
        self._rewritten = 0
        if self._trail.end < 0:
            return EntryTrail()
        trail = EntryTrail(self._trail.index, self._trail.term)
        trail.end = self._trail.end
        return trail

    def passed(self, trail: EntryTrail) -> None:
        """Record the entries that the walk has passed.

        Raises:
            OSError: an index file cannot be created, or the disk is full.
        """
        for header in trail.passed():
            if self._log.units.find(header.index) != header:
                self._log.units.put(header.index, header.term, header.pos, header.size)
                self._rewritten += 1
            if header.index == self._marks.committed_index:
                self.committed_end = header.end
            elif header.index > self._marks.committed_index:
                self.committed_end = min(self.committed_end, header.pos)

    def finish(self, trail: EntryTrail, end: int, reason: str) -> list[str]:
        """Continue after the last entry.

        Args:
            trail: trail of the walk.
            end: where the log ends.
            reason: why the log was cut before later entries; empty without any.

        Returns:
            Descriptions of repairs.

        Raises:
            OSError: the disk refused.
        """
        log, marks = self._log, self._marks
        if trail.index >= 0:
            log.next_index, log.end_term = trail.index + 1, trail.term
        log.term = max(log.end_term, 0)
        log.units.opened(log.next_index, 0)
        self.committed_end = min(self.committed_end, end)
        log.committed_index = min(marks.committed_index, log.next_index - 1)
        self.loss = replace(self.loss, lost=self._lost(end, reason) or self.loss.lost)
        if self.loss.lost:
            folder = log.units.files.directories[0]
            logger.error("%s: this member of its group has lost entries: %s", folder, self.loss.lost)
            self._note.write(self.loss)
        if self._rewritten:
            return [f"the units of {self._rewritten} entries were rebuilt from the commit log"]
        return []

    def _lost(self, end: int, reason: str) -> str:
        """Return a description of the entries that the log lacks; empty without known losses.

        Args:
            end: log offset where the log ends.
            reason: why it was cut before later entries; empty without any.
        """
        log, marks = self._log, self._marks
        last, known = log.next_index - 1, max(marks.end_index, marks.committed_index)
        if self.power_failed and marks.synced_index is not None:
            # Unconfirmed entries may be lost or torn. With SYNC_FLUSH they were not acknowledged.
            known = marks.synced_index
            if self._sync_flush and last >= known:
                return ""
        if reason:
            return f"its log is damaged at {end}, behind entry {last}: {reason}"
        return f"its log ends with entry {last}, it had {known}" if known > last else ""
