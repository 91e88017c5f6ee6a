"""The commit log: all records of all topics, one behind the other (store.md §3)."""

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
"""Topic of records that fill places where others were lost."""
_FILLER_OVERHEAD: Final = OVERHEAD + len(FILLER_TOPIC)
STEP: Final = 1 << 20
_SMALL_STEP: Final = 64 << 10
_LARGE: Final = 64 << 10
"""Bytes from which on a stretch of another log is written by a call rather than into the map."""
AHEAD: Final = 16 << 20
"""Bytes that are prepared before the end of a busy log."""
_BUSY: Final = 4 << 20


class CommitLog(LogCursor):
    """Where records are written and read by their physical offset.

    Args:
        settings: sizes and directories.
        store_host: address of the broker, 4 or 16 bytes, stored in every record.
        store_port: its port.

    Attributes:
        files: the segments.
        base: start of the segment that is written to.
        position: where in it the next record goes.
        checked: which records need no CRC before they are given to anyone.
        damaged: start and end of stretches without intact records, in order; what points into them is passed over.
        awaited: those of them that other nodes have not been asked for yet; a read waits for the answer.
        next_segment: made ahead, not yet begun.
        stalled: tells for how long, in ms, the disk has been at what `next_reservation` asked for.
        stall_limit_ms: puts that need more of the disk are refused when that takes longer.
        on_pressure: called when a busy log should have more prepared by way of `next_reservation`.
        appends_crc: every record carries a CRC property; otherwise those that come with room for it.
        store_host_field: address and port as stored.
        framed_from: log offset from which on records stand in entries.
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
        # Up to where the segment's pages are known to be writable, where to look again, where records have to end.
        self._reserved = 0
        self._check = 0
        self._limit = 0
        self._next_reserved = 0
        self._busy_from = _BUSY

    @property
    def end(self) -> int:
        """The next offset: where the next record begins, unless it does not fit the segment."""
        return self.base + self.position

    @property
    def min_offset(self) -> int:
        """Start of the oldest segment; -1 without segments (store.md §12)."""
        return self.files.segments[0].start if self.files.segments else -1

    def resume(self, end: int) -> None:
        """Go on writing at `end`; everything behind it is gone (store.md §2.5)."""
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
        """Make room for `size` contiguous bytes and tell the position in the current segment.

        Ends the segment with a blank and begins the next one when they do not fit (store.md §3.4).

        Raises:
            OSError: no segment can be made, or the disk is full.
            PageCacheBusy: the disk is too slow.
            StoreError: it would not even fit an empty segment.
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
            # Idle brokers and small logs take little disk; a busy one asks for a step at a time.
            step = STEP if self.base or self._reserved >= STEP else _SMALL_STEP
            upto = min(segment.size, (end + step - 1) // step * step)
            if self.stalled is not None and (waited := self.stalled()) > self.stall_limit_ms:
                # Asking the same disk once more, on the loop, would stop everyone and not only producers.
                raise PageCacheBusy(
                    f"the disk has not given {STEP >> 10} KiB of the commit log for {waited:.0f} ms, "
                    f"osPageCacheBusyTimeOutMills={self.stall_limit_ms}; send less, or use a faster disk"
                )
            segment.reserve_range(self._reserved, upto)
            self._reserved = upto
        self._check = self._reserved
        if self.on_pressure is not None and self.base + end >= self._busy_from:
            # Come back well before the reserve is used up, but not at every record.
            self._check = max(self._reserved - AHEAD // 2, end + STEP // 4)
            self.on_pressure()
        self._check = min(self._check, self._reserved, self._limit)
        return self.position

    def look_ahead(self, size: int) -> None:
        """Make room for `size` bytes if they fit the current segment; who writes them meets what prevents it."""
        if self._check < self.position + size <= self._limit:
            with suppress(OSError, PageCacheBusy):
                self.room_for(size)

    def next_reservation(self) -> tuple[Segment | None, int, int] | None:
        """What to prepare next so that puts find memory and disk space: segment (None: make one), from, to.

        None when everything up to `AHEAD` bytes before the end of the log is prepared.
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
        """Take note that a segment's pages from `start` to `end` are there; a log cut meanwhile needs others first."""
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
                # The log has been cut meanwhile; otherwise puts were faster and made the segment themselves.
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
        """Say behind a segment's last record that the next one is in the next segment."""
        SIZE_MAGIC.pack_into(memory, position, room, MAGIC_BLANK)

    def room_for_all(self, sizes: Sequence[int]) -> None:
        """As `room_for`, for records of these sizes, all in one segment."""
        self.room_for(sum(sizes))

    def size_of(self, record: NewRecord, topic_field: bytes) -> int:
        """Bytes that a record takes in the log; its properties are as stored.

        Args:
            record: the record.
            topic_field: length and topic as stored.
        """
        size = self._overhead + len(topic_field) + len(record.body) + len(record.properties)
        return size if len(record.born_host) == 4 else size + HOST_V6_EXTRA

    def append(self, record: NewRecord, magic: int, topic_field: bytes, queue_offset: int, store_timestamp: int) -> int:
        """Write one record and tell its size; it ends at `end`.

        Args:
            record: what to write; its properties have room for the CRC when records carry one.
            magic: by record version.
            topic_field: length and topic as stored.
            queue_offset: number in its queue.
            store_timestamp: ms.

        Raises:
            OSError: as `room_for`.
            StoreError: as `room_for`.
        """
        size = self._overhead + len(topic_field) + len(record.body) + len(record.properties)
        # Clients set the address bits as they like; what counts is how long the addresses are.
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
        """Write bytes of another log, whose segments begin and end where this log's do.

        Args:
            offset: where they belong; `end`, or the beginning of a segment when the log is empty.
            data: the bytes, those of blanks at the ends of segments among them.

        Raises:
            OSError: no segment can be made, or the disk is full; what was written before is there.
            StoreError: they do not belong there.
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
        """`size` bytes at `offset`, or None when they are not (or no longer) there."""
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
        """The record that begins at `offset`, by the size it states; None when no whole record begins there."""
        return at_once(self.record_steps(offset))

    def record_steps(self, offset: int) -> Steps[memoryview | None]:
        """As `record_at`."""
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
        """Whether a record evidently began at an offset, though it is gone or not whole any more."""
        head = self.read(offset, PLACE.size)
        if head is None:
            return offset < self.min_offset
        return PLACE.unpack_from(head)[2] == offset or any(start <= offset < end for start, end in self.damaged)

    def time_steps(self, offset: int, size: int) -> Steps[int]:
        """Store time of the record of `size` bytes at `offset`, ms; -1 when it is not (or no longer) there."""
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
        """Put records that nobody is given into a stretch that was on its way to the disk when the power failed.

        Behind it intact records follow, which RocketMQ would cut off; and what is left of a torn record must not be
        taken for one later. The fillers are rolled-back halves (store.md §3.7), their bodies what was there.

        Args:
            start: where the stretch begins.
            stop: where the next intact record begins.
            store_timestamp: of that record, ms.
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
        """Whether a record, given from its first byte on, lies outside the damaged stretches."""
        if len(record) < PLACE.size:
            return False
        _, magic, offset = PLACE.unpack_from(record)
        return magic in MAGICS and not any(start <= offset < end for start, end in self.damaged)

    def close(self) -> None:
        """Let go of all maps, and delete the segment that was prepared but not begun."""
        self.files.close()
        self._map = None
        if self.next_segment is not None:
            self.next_segment.delete()
            self.next_segment = None
