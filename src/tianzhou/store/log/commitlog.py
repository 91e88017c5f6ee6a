"""The commit log: all records of all topics, in append order (store.md §3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from mmap import mmap
from typing import Final

from tianzhou._hot import LogCursor
from tianzhou._hot.records import put_record
from tianzhou.errors import PageCacheBusy, StoreError
from tianzhou.records.codec import Record, encode_record, fill_property_crc, store_time
from tianzhou.records.framed import NOT_FRAMED
from tianzhou.records.layout import (
    BLANK_SIZE,
    BORN_HOST_V6,
    HOST_BITS,
    HOST_V6_EXTRA,
    MAGIC_BLANK,
    MAGICS,
    OVERHEAD,
    PLACE,
    ROLLBACK,
    SIZE_MAGIC,
    STORE_HOST_V6,
    UP_TO_STORE_TIME,
)
from tianzhou.records.walk import is_whole
from tianzhou.store.files.lookup_steps import Range, Steps, at_once
from tianzhou.store.files.segments import Segment, SegmentQueue
from tianzhou.store.log.checked import CheckedRecords
from tianzhou.store.results import NewRecord
from tianzhou.store.settings import StoreSettings

logger = logging.getLogger(__name__)

FILLER_TOPIC: Final = "-"
"""Topic of records that fill the places of lost records."""
_FILLER_OVERHEAD: Final = OVERHEAD + len(FILLER_TOPIC)
STEP: Final = 1 << 20
_SMALL_STEP: Final = 64 << 10
_LARGE: Final = 64 << 10
"""Bytes from which a stretch of another log is written by a system call instead of through the map."""
AHEAD: Final = 16 << 20
"""Bytes that are prepared beyond the end of a busy log."""
_BUSY: Final = 4 << 20


class CommitLog(LogCursor):
    """The commit log: writes records, and reads them by their physical offset.

    Args:
        settings: sizes and directories.
        store_host: address of the broker, 4 or 16 bytes, stored in every record.
        store_port: port of the broker.

    Attributes:
        files: the segments.
        base: start of the segment that receives records.
        position: position of the next record in it.
        checked: records that need no CRC check before they are returned.
        damaged: start and end of stretches without intact records, in order; readers skip units that point into them.
        awaited: damaged stretches that other nodes were not asked for yet; a read waits for the result.
        next_segment: segment that is prepared and not used yet.
        stalled: returns the ms for which the disk has been working on `next_reservation`.
        stall_limit_ms: maximum of `stalled`; above it, puts that need more disk space are refused.
        on_pressure: called when a busy log should have more prepared by way of `next_reservation`.
        appends_crc: whether every record carries a CRC property; otherwise only records that come with room for it.
        store_host_field: address and port as stored.
        framed_from: log offset where records in entries begin.
    """

    __slots__ = (
        "_busy_from",
        "_limit",
        "_next_reserved",
        "_reserved",
        "_segment",
        "awaited",
        "checked",
        "damaged",
        "files",
        "framed_from",
        "next_segment",
        "on_pressure",
        "stall_limit_ms",
        "stalled",
    )

    def __init__(self, settings: StoreSettings, store_host: bytes, store_port: int) -> None:
        self.files = SegmentQueue(settings.commit_log_directories, settings.mapped_file_size_commit_log)
        self.store_host_field = store_host + store_port.to_bytes(4, "big")
        self.damaged: list[tuple[int, int]] = []
        self.awaited: list[tuple[int, int]] = []
        self.framed_from = NOT_FRAMED
        self.checked = CheckedRecords()
        self.next_segment: Segment | None = None
        self.stalled: Callable[[], float] | None = None
        self.stall_limit_ms = settings.os_page_cache_busy_time_out_mills
        self.on_pressure: Callable[[], None] | None = None
        self.appends_crc = settings.enabled_append_prop_crc
        self._sys_bits = STORE_HOST_V6 if len(store_host) == 16 else 0
        self._overhead = OVERHEAD - 1 + (HOST_V6_EXTRA if len(store_host) == 16 else 0)
        self._segment: Segment | None = None
        self._map = None
        self.base = 0
        self.position = 0
        # End of the writable pages of the segment, position of the next check, and maximum end of records.
        self._reserved = 0
        self._check = 0
        self._limit = 0
        self._next_reserved = 0
        self._busy_from = _BUSY

    @property
    def end(self) -> int:
        """Offset of the next record, unless it does not fit the segment."""
        return self.base + self.position

    @property
    def min_offset(self) -> int:
        """Start of the oldest segment; -1 without segments (store.md §12)."""
        return self.files.segments[0].start if self.files.segments else -1

    def resume(self, end: int) -> None:
        """Continue writing at `end`. Everything after it is dropped (store.md §2.5)."""
        self.files.truncate(end)
        segment = self.files.find(end) or (self.files.segments[-1] if self.files.segments else None)
        if segment is None:
            self._segment = None
            self.base, self.position, self._reserved, self._check, self._limit = end, 0, 0, 0, 0
        else:
            self._enter(segment, end - segment.start)
        self._busy_from = end + _BUSY

    def _enter(self, segment: Segment, position: int, reserved: int = 0) -> None:
        self._segment = segment
        self._map = segment.map
        self.base = segment.start
        self.position = position
        self._reserved = max(position, reserved)
        self._check = position
        self._limit = segment.size - BLANK_SIZE

    def room_for(self, size: int) -> int:
        """Make room for `size` contiguous bytes and return their position in the current segment.

        When they do not fit, end the segment with a blank and begin the next one (store.md §3.4).

        Raises:
            OSError: no segment can be made, or the disk is full.
            PageCacheBusy: the disk is too slow.
            StoreError: they would not fit even an empty segment.
        """
        if self.position + size > self._limit:
            if size + BLANK_SIZE > self.files.size:
                raise StoreError(
                    f"{size} bytes do not fit a commit-log segment of mappedFileSizeCommitLog={self.files.size}; "
                    "send less or configure larger segments"
                )
            self._roll()
        segment = self._segment
        assert segment is not None
        end = self.position + size
        if end > self._reserved:
            # Idle brokers and small logs take little disk space; a busy log reserves a step at a time.
            step = STEP if self.base or self._reserved >= STEP else _SMALL_STEP
            upto = min(segment.size, (end + step - 1) // step * step)
            if self.stalled is not None and (waited := self.stalled()) > self.stall_limit_ms:
                # Reserving on the loop from the same slow disk would stop everyone, not only producers.
                raise PageCacheBusy(
                    f"the disk has not given {STEP >> 10} KiB of the commit log for {waited:.0f} ms, "
                    f"osPageCacheBusyTimeOutMills={self.stall_limit_ms}; send less, or use a faster disk"
                )
            segment.reserve_range(self._reserved, upto)
            self._reserved = upto
        self._check = self._reserved
        if self.on_pressure is not None and self.base + end >= self._busy_from:
            # Check again well before the reserve is used up, but not at every record.
            self._check = max(self._reserved - AHEAD // 2, end + STEP // 4)
            self.on_pressure()
        self._check = min(self._check, self._reserved, self._limit)
        return self.position

    def look_ahead(self, size: int) -> None:
        """Make room for `size` bytes if they fit the current segment. The later append raises the errors."""
        if self._check < self.position + size <= self._limit:
            with suppress(OSError, PageCacheBusy):
                self.room_for(size)

    def next_reservation(self) -> tuple[Segment | None, int, int] | None:
        """Return the range to prepare next for puts: segment (None: create one), start, end.

        None when the next `AHEAD` bytes after the end of the log are prepared.
        """
        segment = self._segment
        if segment is None:
            return None
        wanted = self.position + AHEAD
        if self._reserved < min(wanted, segment.size):
            return segment, self._reserved, min(self._reserved + 4 * STEP, segment.size)
        if wanted <= segment.size:
            return None
        following = self.next_segment
        if following is None:
            return None, segment.end, segment.end
        if self._next_reserved < min(wanted - segment.size, following.size):
            return following, self._next_reserved, min(self._next_reserved + 4 * STEP, following.size)
        return None

    def prepared(self, segment: Segment, start: int, end: int) -> None:
        """Note that a segment's pages from `start` to `end` exist. After a cut, the log needs earlier pages first."""
        if segment is self._segment:
            if start <= self._reserved:
                self._reserved = max(self._reserved, end)
            self._check = min(max(self._check, self._reserved - AHEAD // 2), self._limit)
        elif segment.start == self.base + self.files.size:
            if self.next_segment is None:
                self.next_segment, self._next_reserved = segment, 0
            if start <= self._next_reserved:
                self._next_reserved = max(self._next_reserved, end)
        else:
            segment.close()
            if self.files.find(segment.start) is None:
                # The log was cut meanwhile. If the segment were found, faster puts would have made it themselves.
                segment.delete()

    def _roll(self) -> None:
        segment = self._segment
        if segment is not None:
            room = segment.size - self.position
            if room >= BLANK_SIZE:
                segment.reserve_range(self.position, self.position + BLANK_SIZE)
                self._close_segment(segment.map, self.position, room)
            start = segment.end
        else:
            start = self.base - self.base % self.files.size
        following, self.next_segment = self.next_segment, None
        reserved, self._next_reserved = self._next_reserved, 0
        if following is not None and following.start == start:
            self.files.adopt(following)
        else:
            following, reserved = self.files.create(start), 0
        self._enter(following, 0, reserved)

    def _close_segment(self, memory: mmap, position: int, room: int) -> None:
        """Write a blank after a segment's last record, which points readers to the next segment."""
        SIZE_MAGIC.pack_into(memory, position, room, MAGIC_BLANK)

    def room_for_all(self, sizes: Sequence[int]) -> None:
        """Make room as `room_for`, for records of these sizes, all in one segment."""
        self.room_for(sum(sizes))

    def size_of(self, record: NewRecord, topic_field: bytes) -> int:
        """Return the bytes that a record takes in the log; its properties are as stored.

        Args:
            record: the record.
            topic_field: length and topic as stored.
        """
        size = self._overhead + len(topic_field) + len(record.body) + len(record.properties)
        return size if len(record.born_host) == 4 else size + HOST_V6_EXTRA

    def append(self, record: NewRecord, magic: int, topic_field: bytes, queue_offset: int, store_timestamp: int) -> int:
        """Write one record and return its size. The record ends at `end`.

        Args:
            record: the record; its properties have room for the CRC when records carry one.
            magic: magic number of the record version.
            topic_field: length and topic as stored.
            queue_offset: number in its queue.
            store_timestamp: ms.

        Raises:
            OSError: as `room_for`.
            StoreError: as `room_for`.
        """
        size = self._overhead + len(topic_field) + len(record.body) + len(record.properties)
        # Clients may set any address bits, so derive them from the lengths of the addresses.
        sys_flag = record.sys_flag & ~HOST_BITS | self._sys_bits
        if len(record.born_host) != 4:
            size += HOST_V6_EXTRA
            sys_flag |= BORN_HOST_V6
        position = self.position
        if position + size > self._check:
            position = self.room_for(size)
        memory = self._map
        assert memory is not None
        put_record(
            memory,
            position,
            size,
            self.base + position,
            magic,
            topic_field,
            queue_offset,
            sys_flag,
            store_timestamp,
            self.store_host_field,
            record,
        )
        self.position = position = position + size
        if self.appends_crc or record.properties[-1:] == b"\0":
            fill_property_crc(memoryview(memory)[position - size : position])
        return size

    def copy_in(self, offset: int, data: memoryview) -> None:
        """Write bytes of another log whose segments have the same boundaries.

        Args:
            offset: log offset of the bytes: `end`, or a segment's start when the log is empty.
            data: the bytes, including blanks at the ends of segments.

        Raises:
            OSError: no segment can be made, or the disk is full; bytes written before stay.
            StoreError: the bytes do not belong at `offset`.
        """
        if not self.files.segments and self.end != offset:
            if offset % self.files.size:
                raise StoreError(
                    f"the other log begins at {offset}, where no segment of mappedFileSizeCommitLog={self.files.size} "
                    "can begin; set it as the other one has it"
                )
            self.base, self.position = offset, 0
        if offset != self.end:
            raise StoreError(f"this log ends at {self.end}, the bytes belong to {offset}")
        while data:
            segment = self._segment
            if segment is None or self.position == segment.size:
                start = self.end
                self._enter(self.files.create(start), 0)
                continue
            upto = min(self.position + len(data), segment.size)
            if upto - self.position >= _LARGE:
                segment.put(self.position, data[: upto - self.position])
                self._reserved = max(self._reserved, upto)
                data = data[upto - self.position :]
                self.position = upto
                continue
            if upto > self._reserved:
                reserved = min(segment.size, -(-upto // STEP) * STEP)
                segment.reserve_range(self._reserved, reserved)
                self._reserved = reserved
            size = upto - self.position
            segment.map[self.position : upto] = data[:size]
            self.position = upto
            data = data[size:]

    def read(self, offset: int, size: int) -> memoryview | None:
        """Return `size` bytes at `offset`, or None when they are not (or no longer) in the log."""
        if offset + size > self.base + self.position:
            return None
        segment = self.files.find(offset)
        if segment is None:
            return None
        at = offset - segment.start
        if at + size > segment.size or size < 0:
            return None
        return segment.view[at : at + size]

    def record_at(self, offset: int) -> memoryview | None:
        """Return the record that begins at `offset`, of the size in its head; None without a whole record there."""
        return at_once(self.record_steps(offset))

    def record_steps(self, offset: int) -> Steps[memoryview | None]:
        """Look up a record in steps, as `record_at`."""
        head = self.read(offset, PLACE.size)
        if head is None:
            return None
        yield self._range(offset, PLACE.size)
        size, magic = SIZE_MAGIC.unpack_from(head)
        if self.damaged and not self.intact(head):
            return None
        if magic not in MAGICS or size < OVERHEAD:
            return None
        record = self.read(offset, size)
        if record is None:
            return None
        segment, at, end = self._range(offset, size)
        view = segment.view
        yield segment, at, end
        if offset not in self.checked:
            if not is_whole(view, at, segment.start):
                return None
            self.checked.add(offset)
        return record

    def had_record(self, offset: int) -> bool:
        """Whether a record evidently began at an offset, though it is lost or incomplete now."""
        head = self.read(offset, PLACE.size)
        if head is None:
            return offset < self.min_offset
        return PLACE.unpack_from(head)[2] == offset or any(start <= offset < end for start, end in self.damaged)

    def time_steps(self, offset: int, size: int) -> Steps[int]:
        """Look up the store time (ms) of the record of `size` bytes at `offset`; -1 when it is not there."""
        record = self.read(offset, size)
        if record is None or size < UP_TO_STORE_TIME:
            return -1
        yield self._range(offset, UP_TO_STORE_TIME)
        stated, magic, place = PLACE.unpack_from(record)
        return store_time(record) if (stated, place) == (size, offset) and magic in MAGICS else -1

    def _range(self, offset: int, size: int) -> Range:
        segment = self.files.find(offset)
        assert segment is not None
        return segment, offset - segment.start, offset - segment.start + size

    def fill(self, start: int, stop: int, store_timestamp: int) -> None:
        """Fill a stretch that was being written when the power failed with records that no consumer gets.

        Intact records follow it, which RocketMQ would cut off, and no later scan may mistake torn bytes for a record.
        The fillers are rolled-back half messages (store.md §3.7); their bodies are the former bytes.

        Args:
            start: where the stretch begins.
            stop: where the next intact record begins.
            store_timestamp: store time of that record, ms.
        """
        for segment in self.files.segments:
            begin, end = max(start, segment.start), min(stop, segment.end)
            at, upto = begin - segment.start, end - segment.start
            if end - begin < BLANK_SIZE:
                continue
            segment.reserve_range(at, upto)
            if end == segment.end:
                upto = max(upto - BLANK_SIZE, at)
                if at:
                    upto = at
                SIZE_MAGIC.pack_into(segment.map, upto, segment.size - upto, MAGIC_BLANK)
            body = upto - at - _FILLER_OVERHEAD
            if body < 0:
                continue
            filler = Record(
                FILLER_TOPIC, 0, 0, begin, 0, ROLLBACK, store_timestamp, bytes(4), 0, store_timestamp, bytes(4), 0,
                0, 0, bytes(segment.view[upto - body : upto]), b"",
            )  # fmt: skip
            segment.map[at:upto] = encode_record(filler)

    def intact(self, record: memoryview) -> bool:
        """Whether a record, passed from its first byte on, lies outside the damaged stretches."""
        if len(record) < PLACE.size:
            return False
        _, magic, offset = PLACE.unpack_from(record)
        return magic in MAGICS and not any(start <= offset < end for start, end in self.damaged)

    def close(self) -> None:
        """Close all maps, and delete the segment that was prepared and not used."""
        self.files.close()
        self._map = None
        if self.next_segment is not None:
            self.next_segment.delete()
            self.next_segment = None
