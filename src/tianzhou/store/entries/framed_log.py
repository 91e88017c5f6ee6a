"""The commit log of a DLedger group's member, with an entry header before each record (broker.md §19.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from mmap import mmap
from typing import Any, Final

from tianzhou._hot import copy_run, put_entries
from tianzhou._hot import put_entry as put_one
from tianzhou._hot.cursors import Pending
from tianzhou._hot.sends import EntryRoom
from tianzhou.errors import CorruptRecord, PageCacheBusy, StoreError
from tianzhou.records.entry import (
    END,
    END_SIZE,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAGIC_END,
    EntryHeader,
    decode_header,
)
from tianzhou.records.framed import NOT_FRAMED
from tianzhou.records.layout import BLANK_SIZE, MAGIC_BLANK, SIZE_MAGIC
from tianzhou.store.entries.entry_index import EntryIndex
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.results import NewRecord
from tianzhou.store.settings import StoreSettings

MOST_UNCOMMITTED: Final = 10_000
"""Maximum number of uncommitted entries before puts are refused (broker.md §19.6)."""
_CHUNK: Final = 1 << 20


class FramedLog(CommitLog):
    """A commit log of entries, after the segments of a plain one if there are any.

    Args:
        settings: sizes and directories.
        store_host: address of the broker, 4 or 16 bytes, stored in every record.
        store_port: its port.

    Attributes:
        units: the index of the entries.
        committed_index: index of the last committed entry; -1 without one.
    """

    __slots__ = ("committed_index", "units")

    def __init__(self, settings: StoreSettings, store_host: bytes, store_port: int) -> None:
        super().__init__(settings, store_host, store_port)
        self.units = EntryIndex(settings.entry_folder / "index")
        self.next_index = 0
        self.term = 0
        self.end_term = -1
        self.committed_index = -1

    def begin_entries(self) -> None:
        """Start entries at the end of a plain log: its last segment is closed, and entries get their own segments.

        Raises:
            OSError: the disk refused.
        """
        if not self.files.segments:
            self.framed_from = self.end
            return
        segment, position = self.files.segments[-1], self.end - self.files.segments[-1].start
        if segment.size - position >= BLANK_SIZE:
            segment.reserve_range(position, position + BLANK_SIZE)
            SIZE_MAGIC.pack_into(segment.map, position, segment.size - position, MAGIC_BLANK)
            segment.sync(position, position + BLANK_SIZE)
        self.resume(segment.end)
        self.framed_from = segment.end

    @property
    def framed(self) -> bool:
        """Whether the begin of entries is known."""
        return self.framed_from != NOT_FRAMED

    def _close_segment(self, memory: mmap, position: int, room: int) -> None:
        END.pack_into(memory, position, MAGIC_END, room)

    def size_of(self, record: NewRecord, topic_field: bytes) -> int:
        """Return the bytes of a record with its header in the log; see `CommitLog`."""
        return super().size_of(record, topic_field) + HEADER_SIZE

    def room_for_all(self, sizes: Sequence[int]) -> None:
        """Ensure room for several entries; an entry is placed in the next segment only when it has to be.

        Other members place entries one by one, and their places must be the same.

        Raises:
            OSError: as `room_for`.
            PageCacheBusy: as `room_for`.
            StoreError: as `room_for`.
        """
        total = sum(sizes)
        self.units.reserve(self.next_index, len(sizes))
        if self.position + total <= self._limit or self._segment is None:
            self.room_for(total)
            return
        if total + END_SIZE > self.files.size:
            raise StoreError(
                f"{total} bytes of a batch do not fit a commit-log segment of mappedFileSizeCommitLog="
                f"{self.files.size}; send less or configure larger segments"
            )
        if self.next_segment is None:
            self.next_segment, self._next_reserved = self.files.make(self._segment.end), 0
        if self._next_reserved < total:
            upto = min(-(-total // _CHUNK) * _CHUNK, self.files.size)
            self.next_segment.reserve_range(0, upto)
            self._next_reserved = upto

    def append(self, record: NewRecord, magic: int, topic_field: bytes, queue_offset: int, store_timestamp: int) -> int:
        """Write one record in an entry, and return its size without the header; see `CommitLog`."""
        self._refuse_more()
        size = self.size_of(record, topic_field)
        if self.next_index >= self.units.reserved:
            self.units.reserve(self.next_index)
        if self.position + size > self._check:
            self.room_for(size)
        start = self.position
        self.position = start + HEADER_SIZE
        try:
            written = super().append(record, magic, topic_field, queue_offset, store_timestamp)
        except BaseException:
            self.position = start
            raise
        frame(self, start)
        return written

    def _refuse_more(self) -> None:
        if self.next_index - self.committed_index > MOST_UNCOMMITTED:
            raise PageCacheBusy(
                f"{MOST_UNCOMMITTED} entries wait for the DLedger group to have them; see to it that a quorum of its "
                "members can be reached, or send less"
            )

    def entry_room(self) -> EntryRoom | None:
        """Return the reserved room for units of further entries; None when a reservation is needed."""
        index, units = self.next_index, self.units
        most = min(self.committed_index + MOST_UNCOMMITTED + 1, units.reserved) - index
        if most <= 0:
            return None
        file, unit_at, room = units.room(index)
        return file, unit_at, min(room, most)

    def append_bodies(self, bodies: Sequence[bytes], term: int) -> None:
        """Write entries of this member that are in no queue; `place_of` returns the place of the next body beforehand.

        Raises:
            OSError: no segment can be created, or the disk is full.
            StoreError: one does not fit a segment.
        """
        self.units.reserve(self.next_index, len(bodies))
        for body in bodies:
            start = self.room_for(HEADER_SIZE + len(body))
            assert self._map is not None
            self._map[start + HEADER_SIZE : start + HEADER_SIZE + len(body)] = body
            self.position = start + HEADER_SIZE + len(body)
            frame(self, start, term)

    def place_of(self, body_size: int) -> int:
        """Return the log offset of the next entry's header, for a body of a size."""
        room = self.position + HEADER_SIZE + body_size <= self._limit
        if room or self._segment is None:
            return self.end
        return self._segment.end

    def copy_entries(self, data: memoryview) -> None:
        """Append whole entries of another member, at the same log offsets.

        Raises:
            StoreError: an entry does not fit this log; the entries before it are in the log.
            OSError: no segment can be created, or the disk is full; the entries before are in the log.
        """
        at = 0
        while at < len(data):
            try:
                header = decode_header(data, at)
            except CorruptRecord as error:
                raise StoreError(f"no entry {self.next_index} came from the leader: {error}") from error
            if header.size > len(data) - at:
                raise StoreError(f"{len(data) - at} bytes of entry {header.index} came, it has {header.size}")
            self._copy_entry(header, data[at : at + header.size])
            at += header.size
            at += self._copy_run(data, at)

    def _copy_run(self, data: memoryview, at: int) -> int:
        """Append the entries that continue the last one, as far as there is room; return their bytes."""
        index, units = self.next_index, self.units
        if len(data) - at < HEADER_SIZE or index >= units.reserved or self._map is None:
            return 0
        if HEADER.unpack_from(data, at)[2:5] != (index, self.end_term, self.end):
            return 0
        file, unit_at, room = units.room(index)
        count, size = copy_run(data, at, self._map, self.position, self._check, file, unit_at, room)
        self.position += size
        self.next_index = units.end = index + count
        return size

    def _copy_entry(self, header: EntryHeader, data: memoryview) -> None:
        if self.end_term < 0 and self.next_index == 0 and not self.files.segments and (header.index or header.pos):
            # The first entries of the group have expired, or plain files precede them.
            if header.pos % self.files.size:
                raise StoreError(
                    f"entry {header.index} is at {header.pos}, where no segment of "
                    f"mappedFileSizeCommitLog={self.files.size} can begin; set it as the other members have it"
                )
            self.base, self.position = header.pos, 0
            self.framed_from = header.pos
            self.next_index = header.index
        if header.index != self.next_index:
            raise StoreError(f"entry {header.index} came, the next one here is {self.next_index}")
        if header.term < self.end_term:
            raise StoreError(f"entry {header.index} is of term {header.term}, the one before it of {self.end_term}")
        place = self.place_of(header.body_size)
        if header.pos != place:
            raise StoreError(
                f"entry {header.index} of the leader is at {header.pos}, here its place is {place}; set "
                f"mappedFileSizeCommitLog={self.files.size} as the other members have it, and if it is the same, empty "
                "this member's store folder"
            )
        if header.index >= self.units.reserved:
            self.units.reserve(header.index)
        start = self.room_for(header.size)
        assert self._map is not None
        # The header is written last, so that a crash in between leaves no entry.
        self._map[start + HEADER_SIZE : start + header.size] = data[HEADER_SIZE:]
        self._map[start : start + HEADER_SIZE] = data[:HEADER_SIZE]
        self.position = start + header.size
        self.units.put(header.index, header.term, header.pos, header.size)
        self.next_index, self.end_term = header.index + 1, header.term

    def copy_in(self, offset: int, data: memoryview) -> None:
        """Refuse a copy of mere bytes: see `copy_entries`."""
        raise StoreError(f"{len(data)} bytes for {offset} are no entries; a DLedger log is copied by entries")

    def header_at(self, index: int) -> EntryHeader:
        """Return the header of an entry.

        Raises:
            StoreError: the log does not have it, or not any more.
        """
        unit = self.units.find(index) if index < self.next_index else None
        found = self.read(unit.pos, unit.size) if unit is not None else None
        if unit is None or found is None:
            raise StoreError(f"entry {index} is not in the log, which ends with {self.next_index - 1}")
        try:
            header = decode_header(found)
        except CorruptRecord as error:
            raise StoreError(f"entry {index} at {unit.pos} of the commit log: {error}") from error
        if (header.index, header.size) != (index, unit.size):
            raise StoreError(f"at {unit.pos} of the commit log is entry {header.index}, its index says {index}")
        return header

    def stretch(self, index: int, most_bytes: int) -> tuple[bytes, int]:
        """Return consecutive entries, without the marks at the ends of segments; see `EntryLog`.

        Raises:
            StoreError: the log does not have the first one, or not any more.
        """
        pieces: list[memoryview] = []
        begin, size, end_index = self.header_at(index), 0, self.next_index - 1
        while True:
            last = self._last_within(begin, most_bytes - size)
            piece = self.read(begin.pos, last.end - begin.pos)
            if piece is None:
                raise StoreError(f"entries {begin.index} to {last.index} are not in the commit log any more")
            pieces.append(piece)
            size += last.end - begin.pos
            if last.index == end_index:
                break
            begin = self._unit(last.index + 1)
            if begin.pos == last.end or size + begin.size > most_bytes:
                break
        return b"".join(pieces), last.index + 1 - index

    def _last_within(self, first: EntryHeader, most_bytes: int) -> EntryHeader:
        """Return the last entry of a segment that ends within a number of bytes from an entry's begin; at least itself.

        Entries of a segment are consecutive, so a binary search finds it.
        """
        segment_size = self.files.size
        bound = min(first.pos + most_bytes, first.pos - first.pos % segment_size + segment_size)
        low, high = first, self._unit(self.next_index - 1)
        if high.end <= bound:
            return high
        while high.index - low.index > 1:
            middle = self._unit((low.index + high.index) // 2)
            low, high = (middle, high) if middle.end <= bound else (low, middle)
        return low

    def _unit(self, index: int) -> EntryHeader:
        unit = self.units.find(index)
        if unit is None:
            raise StoreError(f"entry {index} is not in the log, which ends with {self.next_index - 1}")
        return unit

    def cut_behind(self, index: int, end: int, term: int) -> None:
        """Cut the log after an entry; synced on return.

        Args:
            index: index of the last entry that stays.
            end: log offset after it.
            term: its term.

        Raises:
            OSError: the disk refused.
        """
        if self.next_segment is not None:
            self.next_segment.delete()
            self.next_segment = None
        self.resume(end)
        self.units.cut(index + 1)
        self.next_index, self.end_term = index + 1, term

    def close(self) -> None:
        """Close the log and the index of its entries."""
        super().close()
        self.units.close()


def frame(log: FramedLog, start: int, term: int | None = None) -> None:
    """Write the header of the entry whose body has just been written, and its unit.

    Args:
        log: it ends after the body.
        start: position of the header in its segment.
        term: term of the entry; None for that of puts.
    """
    size, pos, index = log.position - start, log.base + start, log.next_index
    term = log.term if term is None else term
    assert log._map is not None
    HEADER.pack_into(log._map, start, MAGIC, size, index, term, pos, 0, 0, 0, size - HEADER_SIZE)
    log.units.put(index, term, pos, size)
    log.next_index, log.end_term = index + 1, term


def put_entry(
    log: FramedLog, queue: ConsumeQueue, record: NewRecord, stored: int, pending: deque[Pending], done: Any
) -> Any | None:
    """Put a record as `put_plain`, in an entry."""
    index, units = log.next_index, log.units
    if index - log.committed_index > MOST_UNCOMMITTED or index >= units.reserved:
        return None
    file, unit_at, _ = units.room(index)
    result = put_one(log, queue, record, stored, pending, done, file, unit_at, index, log.term)
    if result is not None:
        log.next_index = units.end = index + 1
        log.end_term = log.term
    return result


def put_entry_batch(
    log: FramedLog,
    queue: ConsumeQueue,
    record: NewRecord,
    batch: bytes | memoryview,
    most: int,
    stored: int,
    pending: deque[Pending],
    done: Any,
) -> Any | None:
    """Put a batch as `put_batch`, with each record in an entry."""
    index, units = log.next_index, log.units
    if index - log.committed_index > MOST_UNCOMMITTED or index >= units.reserved:
        return None
    file, unit_at, room = units.room(index)
    result = put_entries(log, queue, record, batch, most, stored, pending, done, file, unit_at, room, index, log.term)
    if result is not None:
        log.next_index = units.end = index + len(result.physical_offsets)
        log.end_term = log.term
    return result
