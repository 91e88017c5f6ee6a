"""Queues of type BatchCQ, with a 46-byte unit per record, which may hold several messages (store.md §6)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, NamedTuple

from tianzhou.model import names
from tianzhou.records.walk import LogEntry
from tianzhou.store.files.lookup_steps import Range, Steps, at_once
from tianzhou.store.files.segments import Segment
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.unit_search import first_wrong
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import get_property

logger = logging.getLogger(__name__)

BATCH_UNIT: Final = struct.Struct(">qiqqqhi4x")
"""Commit-log offset, size, tags code, store time, first queue offset, messages, compacted offset (-1)."""
BATCH_UNIT_SIZE: Final = BATCH_UNIT.size
MAX_BATCH: Final = 32_767
NOT_COMPACTED: Final = -1
_BEFORE: Final = 2
_NEXT: Final = 8


class BatchUnit(NamedTuple):
    """One unit.

    Attributes:
        physical_offset: log offset of the record.
        size: bytes of the record.
        tags_code: code of the record's tag; 0 without one, as for inner batches.
        store_timestamp: ms.
        base: queue offset of its first message.
        messages: number of messages in the record.
    """

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    messages: int

    @property
    def end(self) -> int:
        """Queue offset after its last message."""
        return self.base + self.messages

    @property
    def valid(self) -> bool:
        """Whether this is a written unit (store.md §6)."""
        return self.physical_offset >= 0 and self.size > 0 and self.base >= 0 and self.messages > 0


def unit_of(entry: LogEntry) -> BatchUnit:
    """Return the unit of a record, by its properties; not a `valid` one when a damaged property is no number."""
    base = _number(get_property(entry.properties, names.INNER_BASE), entry.queue_offset, (1 << 63) - 1)
    count = _number(get_property(entry.properties, names.INNER_NUM), 1, (1 << 15) - 1)
    tags = tags_code(get_property(entry.properties, names.TAGS))
    return BatchUnit(entry.offset, entry.size, tags, entry.store_timestamp, base, count)


def _number(text: str | None, missing: int, most: int) -> int:
    if not text:
        return missing
    digits = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if digits and int(text) <= most else -1


def unit_at(view: memoryview, position: int) -> BatchUnit:
    """Return the unit at a position of a segment."""
    return BatchUnit._make(BATCH_UNIT.unpack_from(view, position)[:6])


class BatchQueue(ConsumeQueue):
    """A queue whose units contain the queue offsets that they cover.

    Its folder is `batchconsumequeue/<topic>/<queueId>`, and the size of its segments is a multiple of 46 bytes.
    """

    unit_size: ClassVar[int] = BATCH_UNIT_SIZE
    batched: ClassVar[bool] = True

    __slots__ = ("_counts", "_end")

    @property
    def end(self) -> int:
        """Byte position after the last unit."""
        return self._end

    def expect(self, queue_offset: int, count: int) -> None:
        """Set the number of messages of the next record, put at `queue_offset`; the default is one."""
        self._counts[queue_offset] = count

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int, store_timestamp: int = 0) -> bool:
        """Add the unit of a record, whose first message has the queue offset; see `ConsumeQueue.put`.

        Raises:
            OSError: no segment can be created, or the disk is full.
        """
        count = self._counts.get(queue_offset, 1)
        if physical_offset + size <= self.max_physical:
            self._counts.pop(queue_offset, None)
            return False
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
                self._counts.pop(queue_offset, None)
                return False
            # The topic was deleted and created again since.
            self.reset()
        if not self.files.segments:
            self.min_offset = queue_offset
        self._ensure_unit()
        assert self._map is not None
        unit = (physical_offset, size, tags_code, store_timestamp, queue_offset, count, NOT_COMPACTED)
        BATCH_UNIT.pack_into(self._map, self._position, *unit)
        self._position += BATCH_UNIT_SIZE
        self._end += BATCH_UNIT_SIZE
        self.max_offset = queue_offset + count
        self.max_physical = physical_offset + size
        self._counts.pop(queue_offset, None)
        return True

    def _walk(self, segment: Segment, limit: int, begin: int = 0) -> tuple[int, int]:
        valid, physical = begin, -1
        end = segment.written(begin)
        while valid + BATCH_UNIT_SIZE <= end:
            unit = unit_at(segment.view, valid)
            if not unit.valid or unit.physical_offset >= limit:
                break
            physical = unit.physical_offset + unit.size
            valid += BATCH_UNIT_SIZE
        return valid, physical

    def _search(self, segment: Segment, limit: int) -> tuple[int, int]:
        def right(number: int) -> bool:
            unit = unit_at(segment.view, number * BATCH_UNIT_SIZE)
            # An impossible unit that is not all zeros is a damaged one, not an unwritten one.
            return unit.physical_offset < limit and any(unit)

        count = first_wrong(segment.written() // BATCH_UNIT_SIZE, right)
        if count == 0:
            return 0, -1
        last = unit_at(segment.view, (count - 1) * BATCH_UNIT_SIZE)
        return count * BATCH_UNIT_SIZE, last.physical_offset + last.size

    def _resume(self, end: int) -> None:
        super()._resume(end)
        segments = self.files.segments
        self._end = end if segments else 0
        self._counts.clear()
        first = segments[0].start if segments else 0
        if self._end <= first:
            self.min_offset = self.max_offset = self.next_offset = 0
            return
        self.min_offset = self._base_at(first // BATCH_UNIT_SIZE)
        self.max_offset = self.next_offset = self.trusted_from = self.entry(self._end // BATCH_UNIT_SIZE - 1).end

    def _forget(self) -> None:
        super()._forget()
        self._end = 0
        # Message counts, by queue offset, of stored batches that are not dispatched yet.
        self._counts: dict[int, int] = {}

    def correct_steps(self, smallest_physical: int) -> Steps[None]:
        """Move the min offset in steps; see `correct_min_offset`."""
        low, high = self.numbers()
        if low == high:
            return
        end = self.max_offset
        number = yield from self._first_there_steps(low, high, smallest_physical)
        unit = None if number == high else (yield from self.entry_steps(number))
        if self.max_offset >= end:  # not restarted meanwhile
            self.min_offset = end if unit is None else self._base_at(number)

    def _first_there_steps(self, low: int, high: int, smallest_physical: int) -> Steps[int]:
        """Return the number of the first unit that points at or after a log offset; see `_first_steps`."""

        def is_there(unit: BatchUnit) -> bool:
            return unit.physical_offset >= smallest_physical

        first = yield from self.entry_steps(low)
        if first is not None and (is_there(first) or first.physical_offset < 0):
            return low  # A damaged unit counts too; a read of it will detect the damage.
        number = yield from self._first_steps(low, high, is_there)
        while number - low >= _BEFORE:
            # Log offsets grow along a queue. A damaged unit may have misled the search, so check an earlier unit.
            unit = yield from self.entry_steps(number - _BEFORE)
            if unit is None or not is_there(unit):
                break
            number = yield from self._first_steps(low, number - 1, is_there)
        return number

    def _base_at(self, number: int) -> int:
        """Return the first queue offset of a unit; a safe lower one when the unit, or one of the next, is damaged."""
        unit = self.entry(number)
        end = min(number + 1 + _NEXT, self._end // BATCH_UNIT_SIZE)
        bases = [self.entry(behind).base for behind in range(number + 1, end)]
        if not bases or (unit.valid and unit.end <= min(bases)):
            return unit.base
        return max(0, min(unit.base, min(bases) - _NEXT * MAX_BATCH))

    # look-ups

    def numbers(self) -> tuple[int, int]:
        """Return the numbers of the first unit in the files and of the one after the last."""
        segments = self.files.segments
        if not segments:
            return 0, 0
        return segments[0].start // BATCH_UNIT_SIZE, self._end // BATCH_UNIT_SIZE

    def entry(self, number: int) -> BatchUnit:
        """Return the unit of a number that the files contain."""
        position = number * BATCH_UNIT_SIZE
        segment = self.files.find(position)
        assert segment is not None
        return unit_at(segment.view, position - segment.start)

    def entry_steps(self, number: int) -> Steps[BatchUnit | None]:
        """Return the unit of a number; None when its file is gone."""
        position = number * BATCH_UNIT_SIZE
        segment = self.files.find(position)
        if segment is None or position >= self._end:
            return None
        at = position - segment.start
        view = segment.view[at : at + BATCH_UNIT_SIZE]
        yield segment, at, at + BATCH_UNIT_SIZE
        return unit_at(view, 0)

    def _first_steps(self, low: int, high: int, holds: Callable[[BatchUnit], bool]) -> Steps[int]:
        """Return the first unit number from `low` to `high` for which a monotonic condition holds; else `high`.

        The condition must hold for all units after the first one for which it holds.
        """
        while low < high:
            middle = (low + high) // 2
            unit = yield from self.entry_steps(middle)
            # A unit whose file has expired meanwhile lies before all remaining ones.
            if unit is not None and holds(unit):
                high = middle
            else:
                low = middle + 1
        return low

    def find(self, queue_offset: int) -> int:
        """Return the number of the unit that contains `queue_offset`, or of the next one; see `spans`."""
        return at_once(self.find_steps(queue_offset))

    def find_steps(self, queue_offset: int) -> Steps[int]:
        """Find a unit in steps; see `find`."""
        low, high = self.numbers()
        # Every unit covers at least one offset, so a recent offset is among the last units.
        low = max(low, high - max(self.max_offset - queue_offset, 0))
        return (yield from self._first_steps(low, high, lambda unit: unit.end > queue_offset))

    def spans(self, number: int) -> Iterator[Range]:
        """Yield the byte ranges of the units from a number on, file by file."""
        while True:
            position = number * BATCH_UNIT_SIZE
            segment = self.files.find(position)
            if segment is None or position >= self._end:
                return
            yield segment, position - segment.start, min(segment.size, self._end - segment.start)
            number = segment.end // BATCH_UNIT_SIZE

    def unit_steps(self, queue_offset: int) -> Steps[tuple[int, int, int] | None]:
        """Return the fields of `unit`, in steps."""
        if not 0 <= queue_offset < self.max_offset:
            return None
        number = yield from self.find_steps(queue_offset)
        unit = yield from self.entry_steps(number)
        return None if unit is None or unit.base > queue_offset else unit[:3]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return log offset, size and tags code of the record that contains a queue offset; None without one."""
        return at_once(self.unit_steps(queue_offset))

    def time_steps(self, timestamp: int, *, upper: bool) -> Steps[int]:
        """Return the first queue offset of the record for a store time (store.md §14.2).

        Args:
            timestamp: ms.
            upper: whether to find the last record stored at or before the time; otherwise the first at or after it.

        Returns:
            Between the queue's min and max. A time after all records gives the last one, as RocketMQ does for queues of
            this type.
        """
        low, high = self.numbers()
        low = yield from self._first_steps(low, high, lambda unit: unit.base >= self.min_offset)
        if low == high:
            return self.max_offset
        if upper:
            number = (yield from self._first_steps(low, high, lambda unit: unit.store_timestamp > timestamp)) - 1
        else:
            number = yield from self._first_steps(low, high, lambda unit: unit.store_timestamp >= timestamp)
        unit = yield from self.entry_steps(min(max(number, low), high - 1))
        return self.min_offset if unit is None else unit.base
