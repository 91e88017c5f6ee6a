"""A consume queue: one 20-byte unit per message, in queue order (store.md §5)."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from tianzhou._hot import QueueCursor
from tianzhou._hot.records import UNIT
from tianzhou.records.layout import MAGIC_V1, MAGIC_V2
from tianzhou.store.files.lookup_steps import Steps, at_once
from tianzhou.store.files.maps import QueueMaps
from tianzhou.store.files.pages import RANDOM
from tianzhou.store.files.retention import expired_queue_segments
from tianzhou.store.files.retired import RetiredSegment
from tianzhou.store.files.segments import Segment, SegmentQueue
from tianzhou.store.log import holes
from tianzhou.store.queues.unit_search import first_wrong
from tianzhou.watermark import Watermark

logger = logging.getLogger(__name__)

UNIT_SIZE: Final = 20
_PAGE: Final = 4096
_MORE_PAGES: Final = 3
_NO_LIMIT: Final = 1 << 63
_BEFORE: Final = 2
_HOLE_BYTES: Final = 200 * UNIT_SIZE
"""Bytes of units to compare at once during the search for a queue's first record."""


class ConsumeQueue(QueueCursor):
    """One queue: its files, its next offset for puts, and the watermark of its messages.

    A queue without messages has no files.

    Args:
        directory: `consumequeue/<topic>/<queueId>`.
        topic: topic name.
        queue_id: number of the queue.
        segment_size: bytes of a segment file, a multiple of 20.
        version_2: store records of topics above 127 characters as version 2.
        maps: counts the maps of its files, and may unmap some; None without a limit.

    Attributes:
        next_offset: queue offset of the next put (the topic-queue table of store.md §5.6).
        max_offset: next queue offset to dispatch; consumers may read the offsets below.
        min_offset: smallest queue offset whose record may still exist.
        max_physical: end of the last dispatched record in the commit log; -1 without one.
        arrived: follows `max_offset` once a waiter has requested it.
        dirty: has units that may not be on disk yet.
        log_file_size: bytes of a file of the commit log.
        trusted_from: units from this queue offset on were written by this process, and have stayed in memory since.
    """

    unit_size: ClassVar[int] = UNIT_SIZE
    """Bytes of a unit. In every kind of queue, a unit begins with offset, size and tags code of its record."""
    batched: ClassVar[bool] = False
    """Whether a unit may cover several queue offsets (store.md §6)."""
    extended: ClassVar[bool] = False
    """Whether a tags code may be an address in an extension file (store.md §5.5)."""

    _segment: Segment | None

    __slots__ = ("_segment", "files", "flushed", "log_file_size", "min_offset", "queue_id", "trusted_from")

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        segment_size: int,
        *,
        version_2: bool = True,
        maps: QueueMaps | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = SegmentQueue([directory], segment_size, maps)
        self.next_offset = 0
        self.plain = type(self) is ConsumeQueue
        self.arrived: Watermark | None = None
        self.dirty = False
        self.delayed = False
        self.log_file_size = 1 << 30
        encoded = topic.encode()
        if version_2 and len(topic) > 127:
            self.magic = MAGIC_V2
            self.topic_field = len(encoded).to_bytes(2, "big") + encoded
        else:
            self.magic = MAGIC_V1
            self.topic_field = (len(encoded) & 0xFF).to_bytes(1, "big") + encoded
        self._forget()

    @property
    def end(self) -> int:
        """Byte position after the last unit; segments are named by such positions."""
        return self.max_offset * UNIT_SIZE

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int, store_timestamp: int = 0) -> bool:
        """Add the unit of a record; return False when the queue has it already (store.md §5.4).

        Args:
            queue_offset: the record's number in the queue.
            physical_offset: log offset of the record.
            size: bytes of the record.
            tags_code: code of its tag, or the time it is due (store.md §5.3).
            store_timestamp: ms; not every kind of queue stores it.

        Raises:
            OSError: no segment can be created, or the disk is full.
        """
        if queue_offset != self.max_offset or self._position + UNIT_SIZE > self._reserved:
            if physical_offset + size <= self.max_physical or not self._prepare(queue_offset, physical_offset, size):
                return False
        elif physical_offset < self.max_physical:
            return False
        position = self._position
        memory = self._map
        assert memory is not None
        UNIT.pack_into(memory, position, physical_offset, size, tags_code)
        self._position = position + UNIT_SIZE
        self.max_offset = queue_offset + 1
        self.max_physical = physical_offset + size
        return True

    def _prepare(self, queue_offset: int, physical_offset: int, size: int) -> bool:
        """Prepare the write of the unit of `queue_offset`; return False when the unit must be ignored."""
        if queue_offset != self.max_offset or self._segment is None:
            if queue_offset < self.max_offset:
                if queue_offset != 0:
                    logger.warning(
                        "queue %s/%d is at offset %d already; the record at %d that says %d is left out",
                        self.topic,
                        self.queue_id,
                        self.max_offset,
                        physical_offset,
                        queue_offset,
                    )
                    return False
                # The topic was deleted and created again since, so its earlier units are obsolete.
                self.reset()
            if self._segment is None and not self.files.segments:
                self._begin(queue_offset, holes.before(physical_offset, size, self.log_file_size))
            elif queue_offset > self.max_offset:
                logger.warning(
                    "queue %s/%d: records of offsets %d to %d are missing; their places are kept",
                    self.topic,
                    self.queue_id,
                    self.max_offset,
                    queue_offset - 1,
                )
                self._fill(queue_offset, holes.before(physical_offset, size, self.log_file_size))
        self._ensure_unit()
        return True

    def _begin(self, queue_offset: int, hole: bytes) -> None:
        """Create the first segment, filled up to `queue_offset` (store.md §5.2)."""
        target = queue_offset * UNIT_SIZE
        self._enter(self.files.create(target - target % self.files.size), 0)
        self.max_offset = self._start // UNIT_SIZE
        self._fill(queue_offset, hole)
        self.min_offset = queue_offset
        self.flushed = target

    @property
    def _start(self) -> int:
        assert self._segment is not None
        return self._segment.start

    def _fill(self, queue_offset: int, hole: bytes) -> None:
        while self.max_offset < queue_offset:
            self._ensure_unit()
            assert self._map is not None
            self._map[self._position : self._position + UNIT_SIZE] = hole
            self._position += UNIT_SIZE
            self.max_offset += 1

    def _ensure_unit(self) -> None:
        segment = self._segment
        if segment is None or self._position >= segment.size:
            self._enter(self.files.create(self.end), 0)
            segment = self._segment
            assert segment is not None
        end = self._position + self.unit_size
        if end > self._reserved:
            # Reserve one page for a small queue, and a few at a time for one that grows.
            pages = -(-end // _PAGE) + min(self._position // _PAGE, _MORE_PAGES)
            upto = min(segment.size, pages * _PAGE)
            segment.reserve_range(self._reserved, upto)
            self._map = segment.map
            self._reserved = upto

    def _enter(self, segment: Segment, position: int) -> None:
        if self._segment is not None:
            self._segment.writer = None
        self._segment = segment
        self._map = segment.map
        self._position = self._reserved = position
        segment.writer = self

    def unmapped(self) -> None:
        """Note that the current file was unmapped; the next unit maps it again."""
        self._map = None
        self._reserved = self._position

    def recover(self, limit: int = _NO_LIMIT, *, thorough: bool = True, proved: int = 0) -> None:
        """Find the end of the valid units, and drop later ones (store.md §5.8, §5.9).

        Args:
            limit: units that point at or after this commit-log offset are dropped as well.
            thorough: check every unit of the last segments. Otherwise a search finds the end, which relies on a clean
                stop without holes in the files.
            proved: units of smaller queue offsets need no check, because the disk has them.
        """
        segments = self.files.segments
        if proved and thorough and self._recover_behind(proved, limit):
            return
        index = max(0, len(segments) - 3)
        while index > 0 and self._first_physical(segments[index]) >= limit:
            index -= 1
        end = segments[0].start if segments else 0
        self.max_physical = -1
        for segment in segments[index:]:
            if thorough:
                valid, physical = self._walk(segment, limit)
            else:
                # Do not read unwritten pages ahead: each checked page would read 8 MiB of zeros.
                segment.advise(RANDOM)
                valid, physical = self._search(segment, limit)
                segment.advise(mmap.MADV_NORMAL)
            end = segment.start + valid
            if physical >= 0:
                self.max_physical = physical
            if valid < segment.size:
                break
        self._resume(end)

    def _recover_behind(self, proved: int, limit: int) -> bool:
        """Recover from a queue offset on; return False when the unit before it is not as expected."""
        segment = None if self.batched else self.files.find((proved - 1) * UNIT_SIZE)
        if segment is None:
            return False
        end = proved * UNIT_SIZE
        offset, size, _ = UNIT.unpack_from(segment.view, end - UNIT_SIZE - segment.start)
        if offset < 0 or size <= 0 or size == holes.BLANK_SIZE or offset >= limit:
            return False
        self.max_physical = offset + size
        for later in self.files.segments[self.files.index_of(segment.start) :]:
            valid, physical = self._walk(later, limit, max(end - later.start, 0))
            end = later.start + valid
            if physical >= 0:
                self.max_physical = physical
            if valid < later.size:
                break
        self._resume(end)
        return True

    def _walk(self, segment: Segment, limit: int, begin: int = 0) -> tuple[int, int]:
        """Return the bytes of valid units at the begin of a segment, and the end of the last record of them.

        Args:
            segment: the segment.
            limit: as in `recover`.
            begin: a position before which all units are valid.
        """
        valid = begin
        physical = -1
        end = segment.written(begin)
        for offset, size, _ in UNIT.iter_unpack(segment.view[begin : end - (end - begin) % UNIT_SIZE]):
            if offset < 0 or size <= 0 or offset >= limit:
                break
            valid += UNIT_SIZE
            if size != holes.BLANK_SIZE or offset != 0:
                physical = offset + size
        return valid, physical

    def _search(self, segment: Segment, limit: int) -> tuple[int, int]:
        """Return as `_walk`, for a segment without a hole."""
        view = segment.view

        def right(number: int) -> bool:
            offset, size, tags = UNIT.unpack_from(view, number * UNIT_SIZE)
            # An impossible unit that is not all zeros is a damaged one, not an unwritten one.
            return bool(offset < limit and (offset or size or tags))

        count = first_wrong(segment.written() // UNIT_SIZE, right)
        for number in range(count - 1, -1, -1):
            offset, size, _ = UNIT.unpack_from(view, number * UNIT_SIZE)
            if (size != holes.BLANK_SIZE or offset != 0) and offset >= 0 and size > 0:
                return count * UNIT_SIZE, offset + size
        return count * UNIT_SIZE, -1

    def _first_physical(self, segment: Segment) -> int:
        offset, size, _ = UNIT.unpack(segment.read(0, UNIT_SIZE))
        return int(offset) if size > 0 else _NO_LIMIT

    def _resume(self, end: int) -> None:
        self.files.truncate(end)
        segments = self.files.segments
        self.max_offset = self.next_offset = end // UNIT_SIZE
        self.flushed = end
        if segments:
            last = segments[-1]
            self._enter(last, end - last.start)
        else:
            self._segment = self._map = None
            self._position = self._reserved = 0
            self.max_offset = self.next_offset = 0
            self.max_physical = -1
        self.min_offset = segments[0].start // UNIT_SIZE if segments else 0
        self.trusted_from = self.max_offset

    def drop_from(self, queue_offset: int) -> None:
        """Drop the units from a queue offset on."""
        self._resume(queue_offset * UNIT_SIZE)
        self.max_physical = -1
        number = self.max_offset - 1
        while (unit := self.unit(number)) is not None:
            if unit[:2] != (0, holes.BLANK_SIZE):
                self.max_physical = unit[0] + unit[1]
                break
            number -= 1

    def reset(self) -> None:
        """Drop all units and start again at offset 0."""
        self.files.delete()
        self._forget()
        if self.arrived is not None:
            self.arrived.fall_back(0)

    def _forget(self) -> None:
        """Reset to a queue without files and units."""
        self._segment = None
        self._map = None
        # Byte position in the current segment, and the end of its pages that are known to be writable.
        self._position = self._reserved = 0
        self.max_offset = self.min_offset = self.flushed = self.trusted_from = 0
        self.max_physical = -1

    def expire_steps(self, smallest_physical: int) -> Steps[list[RetiredSegment]]:
        """Retire the oldest segments, all of whose records have expired from the log (store.md §2.7).

        The file across the log's beginning stays, so that a start after a crash finds no gap.
        """
        oldest, *further = self.files.segments or (None,)
        firsts = [-1]
        for segment in further:
            view = segment.read(0, self.unit_size)
            yield segment, 0, self.unit_size
            offset, size, _ = UNIT.unpack_from(view)
            firsts.append(offset if size > 0 else _NO_LIMIT)
            if firsts[-1] > smallest_physical:
                break
        if not self.files.segments or self.files.segments[0] is not oldest:
            return []  # restarted meanwhile
        count = expired_queue_segments(firsts, smallest_physical)
        return [self.files.drop_first().retire() for _ in range(count)]

    def retire(self) -> list[RetiredSegment]:
        """Drop all units; the caller removes the files. Waiters for messages continue to wait."""
        retired = self.files.retire()
        self._forget()
        self.next_offset = 0
        return retired

    def correct_min_offset(self, smallest_physical: int) -> None:
        """Move the min offset to the first unit that points at or after `smallest_physical` (store.md §5.7)."""
        at_once(self.correct_steps(smallest_physical))

    def correct_steps(self, smallest_physical: int) -> Steps[None]:
        """Move the min offset in steps; see `correct_min_offset`."""
        segments = self.files.segments
        if not segments or self.min_offset >= self.max_offset:
            return
        end = self.max_offset
        # A queue may begin late. Placeholder units then fill its first file up to its first record.
        low = yield from self._behind_holes_steps(max(self.min_offset, segments[0].start // UNIT_SIZE), end)
        first = yield from self.unit_steps(low)
        if first is not None and (first[0] >= smallest_physical or first[0] < 0):
            self._raise_min_offset(low, end)  # a damaged unit fails at its next read
            return
        first_low, high = low, end
        while low < high:
            middle = (low + high) // 2
            at, unit = yield from self._pointing_steps(middle, high)
            if unit is None or unit[0] >= smallest_physical:
                high = middle
            else:
                low = at + 1
            if low == high and low - first_low >= _BEFORE:
                # Log offsets grow along a queue. A damaged unit may have misled the search, so check an earlier unit.
                _, unit = yield from self._pointing_steps(low - _BEFORE, low - 1)
                if unit is not None and unit[0] >= smallest_physical:
                    low, high = first_low, low - 1
        low = yield from self._behind_holes_steps(low, end)
        self._raise_min_offset(low, end)

    def _raise_min_offset(self, low: int, end: int) -> None:
        """Raise the min offset to `low`, unless the queue ends before `end` because it was restarted meanwhile."""
        if self.max_offset >= end:
            self.min_offset = max(self.min_offset, low)

    def _behind_holes_steps(self, at: int, end: int) -> Steps[int]:
        """Return the first queue offset from `at` to `end` whose unit is no placeholder."""
        while at < end and (segment := self.files.find(at * UNIT_SIZE)) is not None:
            start = at * UNIT_SIZE - segment.start
            stop = min(start + _HOLE_BYTES, segment.size, end * UNIT_SIZE - segment.start)
            view = segment.view[start:stop]
            yield segment, start, stop
            if not (count := holes.leading(view)):
                break
            at += count
        return at

    def doubt(self, physical: int) -> None:
        """Mark units that point at or after a commit-log offset as not flushed."""
        for segment in reversed(self.files.segments):
            if segment.start >= self.flushed:
                continue
            self.flushed = segment.start
            if self._first_physical(segment) < physical:
                break
        self.dirty = True

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return log offset, size and tags code of one unit; None when the files do not contain it."""
        position = queue_offset * UNIT_SIZE
        if not 0 <= queue_offset < self.max_offset:
            return None
        segment = self.files.find(position)
        if segment is None:
            return None
        unit: tuple[int, int, int] = UNIT.unpack_from(segment.view, position - segment.start)
        return unit

    def unit_steps(self, queue_offset: int) -> Steps[tuple[int, int, int] | None]:
        """Return the fields of `unit`, in steps."""
        position = queue_offset * UNIT_SIZE
        if not 0 <= queue_offset < self.max_offset:
            return None
        segment = self.files.find(position)
        if segment is None:
            return None
        at = position - segment.start
        view = segment.view[at : at + UNIT_SIZE]
        yield segment, at, at + UNIT_SIZE
        found: tuple[int, int, int] = UNIT.unpack(view)
        return found

    def _pointing_steps(self, queue_offset: int, end: int) -> Steps[tuple[int, tuple[int, int, int] | None]]:
        """Return the first unit from `queue_offset` to `end` that is no placeholder, after its number."""
        for at in range(queue_offset, end):
            unit = yield from self.unit_steps(at)
            if unit is not None and unit[:2] != (0, holes.BLANK_SIZE):
                return at, unit
        return end, None

    def first_physical(self) -> int | None:
        """Return the log offset in the files' first unit; None without units."""
        segments = self.files.segments
        if not segments or self.end <= segments[0].start:
            return None
        return int(UNIT.unpack_from(segments[0].view, 0)[0])

    def unflushed(self) -> list[tuple[Segment, int, int]]:
        """Return segments with their byte ranges that may not be on the disk yet."""
        end = self.end
        ranges = []
        for segment in reversed(self.files.segments):
            if segment.end <= self.flushed:
                break
            ranges.append((segment, max(self.flushed - segment.start, 0), min(segment.size, end - segment.start)))
        return ranges

    def rewrite(self, number: int, units: Iterable[bytes]) -> None:
        """Overwrite existing units from a number on, which is a queue offset in most queues.

        Raises:
            OSError: a file cannot be mapped.
        """
        position = number * self.unit_size
        self.flushed = min(self.flushed, position)
        for unit in units:
            segment = self.files.find(position)
            if segment is not None and position < self.end:
                at = position - segment.start
                segment.map[at : at + self.unit_size] = unit
            position += self.unit_size

    def close(self) -> None:
        """Unmap all files."""
        self.files.close()
        self._map = None
        self._segment = None
