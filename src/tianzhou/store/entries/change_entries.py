"""Change entries of a group's log: appended by a leader, and found among the committed entries (docs/adr/0024)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tianzhou.errors import CorruptRecord, StoreError
from tianzhou.records.change import (
    CHANGE_PROPERTIES,
    CHANGE_QUEUE,
    CHANGE_TOPIC,
    HEAD_SIZE,
    is_change,
    may_be_change,
)
from tianzhou.records.codec import Record, decode_record, encode_record
from tianzhou.records.entry import HEADER_SIZE
from tianzhou.records.layout import PREPARED, TRANSACTION_BITS
from tianzhou.records.opening import opening_group_id
from tianzhou.store.dispatch.dispatch import Dispatcher
from tianzhou.store.entries.entry_log import NOT_LEADING, EntryLog
from tianzhou.store.entries.framed_log import FramedLog
from tianzhou.store.log.flush import LogFlusher
from tianzhou.store.log.log_copy import LogCopy
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.settings import StoreSettings

_log = logging.getLogger(__name__)
_ENTRIES_PER_STEP: Final = 500
_MOST_OPENINGS: Final = 100
"""Maximum number of elections before the first serving leader; more of them are not searched."""


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """A committed change entry.

    Attributes:
        index: index of the entry in the log.
        term: term of the leader that appended it.
        body: the changes, as bytes of the tables' own format.
    """

    index: int
    term: int
    body: bytes


class ChangeEntries:
    """Appends change entries at a leader, and finds the committed ones of any leader in the log.

    Args:
        settings: settings of the store.
        log: the log of entries.
        entries: the entries of the log, by index.
        queues: the queues of the store.
        dispatcher: skips the appended entries in the order of the log.
        flusher: receives the store time of the log's end.
        copy: reads the entries of other members.

    Attributes:
        found: offset and size of the records that the copy of the log found and `next` has not returned yet.
        arrived: called when the copy of the log finds a change entry.
    """

    def __init__(
        self,
        settings: StoreSettings,
        log: FramedLog,
        entries: EntryLog,
        queues: OpenQueues,
        dispatcher: Dispatcher,
        flusher: LogFlusher,
        copy: LogCopy,
    ) -> None:
        self._settings = settings
        self._copy = copy
        self._log = log
        self._entries = entries
        self._queues = queues
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._term, self._is_ours = -1, False
        self.found: deque[tuple[int, int]] = deque()
        self.arrived: Callable[[], None] = lambda: None

    def append(self, body: bytes, now_ms: int) -> int:
        """Append a change entry at the end of the leader's log; return the log offset after it.

        Args:
            body: the changes.
            now_ms: wall-clock time.

        Raises:
            StoreError: this member does not lead, or the entry fits no segment.
            OSError: the disk refuses a segment, or is full.
        """
        log = self._log
        if not self._entries.leading or not self._entries.serve():
            raise StoreError(NOT_LEADING)
        host, port = log.store_host_field[:-4], int.from_bytes(log.store_host_field[-4:])

        def record(place: int) -> bytes:
            return encode_record(
                Record(
                    CHANGE_TOPIC, CHANGE_QUEUE, 0, place, 0, PREPARED, now_ms, host, port, now_ms, host, port, 0, 0,
                    body, CHANGE_PROPERTIES,
                )
            )  # fmt: skip

        size = len(record(0))
        place = log.place_of(size)
        log.append_bodies([record(place + HEADER_SIZE)], log.term)
        self._flusher.last_timestamp = now_ms
        # The dispatcher skips prepared halves, but its position must advance past this one.
        queue = self._queues.find_or_make(CHANGE_TOPIC, 0)
        self._dispatcher.pending.append((queue, 0, place + HEADER_SIZE, size, 0, now_ms, PREPARED, "", ""))
        if self._settings.sync_flush:
            self._flusher.request()
        return log.end

    def note(self, offset: int, size: int) -> None:
        """Note a change entry in the copied log; the copy may find one again after a change of role."""
        while self.found and self.found[-1][0] >= offset:
            self.found.pop()
        self.found.append((offset, size))
        self.arrived()

    def next(self) -> ChangeEntry | None:
        """Return the next found entry that is committed; None while there is none."""
        while self.found:
            offset, size = self.found[0]
            if offset + size > self._entries.committed_position:
                return None
            self.found.popleft()
            record = _read(self._log, offset, size)
            # A record that was found uncommitted may have been cut, and replaced by another one.
            if record is not None:
                index = self._entries.index_before(offset + size)
                term = self._entries.term_at(index)
                if self._is_of_our_leader(index, term):
                    return ChangeEntry(index, term, bytes(record.body))
        return None

    def _is_of_our_leader(self, index: int, term: int) -> bool:
        """Whether a leader of ours appended an entry, as far as the log shows.

        A broker of Apache's that leads stores all messages of its clients, also those in the form of a change entry.
        Leaders of ours refuse such messages, and open their term with a record that has the identity of the group.
        """
        if term != self._term:
            entries = self._entries
            low = begin = max(entries.begin_index, 0)
            high = index
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if entries.term_at(middle) >= term else (middle + 1, high)
            # The record that opened the oldest term may have expired.
            known = low > begin or begin == 0
            self._term, self._is_ours = term, not known or bool(opening_group_id(entries.entry(low)))
            if not self._is_ours:
                _log.error("entry %d claims to change tables in term %d, which no leader of ours opened", index, term)
        return self._is_ours

    def taken_upto(self) -> int:
        """Return the index of the last entry whose changes `next` has returned, or that has none; -1 without one."""
        entries = self._entries
        if entries.leading:
            return entries.committed_index
        end = min(self._copy.whole, entries.committed_position)
        if self.found:
            end = min(end, self.found[0][0] - HEADER_SIZE)
        return entries.index_before(end)

    def began_with_tables(self, first_change: int) -> bool:
        """Whether the log has all changes of the tables that its group ever made, because it began with change entries.

        Args:
            first_change: index of the first change entry; larger than all indexes without one.
        """
        entries = self._entries
        first_change = min(first_change, entries.end_index + 1)
        if entries.begin_index != 0 or first_change > _MOST_OPENINGS:
            return False
        for index in range(first_change):
            record = decode_record(entries.entry(index), HEADER_SIZE)
            if record.topic != CHANGE_TOPIC or record.sys_flag & TRANSACTION_BITS != PREPARED:
                return False
        return True

    def scan(self, first: int, last: int) -> Iterator[ChangeEntry | None]:
        """Yield the change entries of a part of the log, and None between steps, so that other tasks can run.

        Args:
            first: index of the first entry.
            last: index of the last entry.

        Raises:
            StoreError: an entry is not in the log any more.
        """
        log, entries = self._log, self._entries
        for index in range(first, last + 1):
            if (index - first) % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
                yield None
            unit = log.units.find(index)
            if unit is None:
                raise StoreError(f"entry {index} is not in the log, which begins with {entries.begin_index}")
            offset, size = unit.pos + HEADER_SIZE, unit.size - HEADER_SIZE
            head = log.read(offset, min(HEAD_SIZE, size))
            if head is None or len(head) < HEAD_SIZE or not may_be_change(head):
                continue
            record = _read(log, offset, size)
            if record is not None and self._is_of_our_leader(index, unit.term):
                yield ChangeEntry(index, unit.term, bytes(record.body))


def _read(log: FramedLog, offset: int, size: int) -> Record | None:
    """Return the record of a change entry; None when another one is there."""
    data = log.read(offset, size)
    try:
        record = None if data is None else decode_record(data, check_crc=True)
    except CorruptRecord:
        return None
    if record is None or record.physical_offset != offset or record.size != size:
        return None
    named = CHANGE_PROPERTIES in record.properties
    return record if named and is_change(record.topic, record.queue_id, record.sys_flag) else None
