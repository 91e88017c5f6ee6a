"""The check whether a unit of a queue points to its record (store.md §3.5, §5, §6)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from tianzhou.records.codec import crc_property_fits
from tianzhou.records.layout import MAGICS, PREPARED, ROLLBACK, TRANSACTION_BITS, fields_at
from tianzhou.records.walk import LogEntry, read_item
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.log.holes import is_hole
from tianzhou.store.queues.batchqueue import BatchQueue, unit_of
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.multi_dispatch import is_light, stored_places

HEAD: Final = fields_at("size", "magic", "queue_id", "queue_offset", "physical_offset")
_NEAR: Final = 100


class Verdict(Enum):
    """The result of the check of a unit."""

    SOUND = auto()
    """The unit points to its record, which is whole."""
    PASSED = auto()
    """The unit is a placeholder, or its record has expired or is known to be broken."""
    STRAY = auto()
    """The unit points to no record that can be returned."""


def whole_record(log: CommitLog, physical: int, size: int | None = None) -> LogEntry | None:
    """Return the record at a log offset when it is whole and has that size; None otherwise."""
    segment = log.files.find(physical)
    if segment is None or physical >= log.end:
        return None
    at = physical - segment.start
    item = read_item(segment.view, at, segment.start)
    if item.entry is None or physical + item.size > log.end or size not in {None, item.size}:
        return None
    return item.entry if crc_property_fits(segment.view[at : at + item.size]) else None


def belongs(entry: LogEntry, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether a record has a queue offset, in its own queue or in a further one that it names (store.md §7)."""
    return offset_of(entry, queue) == queue_offset


def offset_of(entry: LogEntry, queue: ConsumeQueue) -> int | None:
    """Return the queue offset of a record in a queue; None when it is not in that queue."""
    if entry.sys_flag & TRANSACTION_BITS in {PREPARED, ROLLBACK}:
        return None
    if (entry.topic, entry.queue_id) == (queue.topic, queue.queue_id):
        return entry.queue_offset
    places = stored_places(entry.topic, entry.queue_id, entry.properties)
    return next((n for topic, number, n in places if (topic, number) == (queue.topic, queue.queue_id)), None)


def is_known(damaged: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether a log offset is in one of the sorted broken stretches."""
    number = bisect_right(damaged, (offset, 1 << 63))
    return number > 0 and offset < damaged[number - 1][1]


def is_passed(log: CommitLog, offset: int) -> bool:
    """Whether a log offset is in a broken stretch that readers need not wait for any more."""
    return is_known(log.damaged, offset) and not is_known(log.awaited, offset)


def judge(log: CommitLog, queue: ConsumeQueue, number: int) -> Verdict:
    """Return the verdict on the unit of a number, for queues whose units each cover one queue offset."""
    unit = queue.unit(number)
    if unit is None or is_hole(*unit) or is_passed(log, unit[0]):
        return Verdict.PASSED
    physical, size, _ = unit
    if 0 <= physical < log.min_offset and _has_expired(log, queue, number):
        return Verdict.PASSED
    entry = whole_record(log, physical, size)
    return Verdict.SOUND if entry is not None and belongs(entry, queue, number) else Verdict.STRAY


def judge_batch(log: CommitLog, queue: BatchQueue, number: int) -> Verdict:
    """Return the verdict on the unit of a number of a BatchCQ queue."""
    unit = queue.entry(number)
    if is_passed(log, unit.physical_offset) or 0 <= unit.physical_offset < log.min_offset:
        return Verdict.PASSED
    entry = whole_record(log, unit.physical_offset, unit.size) if unit.valid else None
    if entry is None or (entry.topic, entry.queue_id) != (queue.topic, queue.queue_id):
        return Verdict.STRAY
    return Verdict.SOUND if unit_of(entry) == unit else Verdict.STRAY


def _has_expired(log: CommitLog, queue: ConsumeQueue, number: int) -> bool:
    """Whether a unit may point before the log's begin, because log offsets grow along a queue."""
    before = queue.unit(number - 1)
    if before is not None and not is_hole(*before) and before[0] >= log.min_offset:
        return False
    for following in range(number + 1, min(number + _NEAR, queue.max_offset)):
        unit = queue.unit(following)
        if unit is not None and not is_hole(*unit):
            return 0 <= unit[0] < log.min_offset
    return True


def is_like(log: CommitLog, queue: ConsumeQueue, number: int, physical: int, size: int) -> bool:
    """Whether the bytes at a unit's log offset evidently were its record, though it is not whole any more."""
    segment = log.files.find(physical)
    if segment is None or size < HEAD.size or physical + size > min(log.end, segment.end):
        return False
    stated, magic, queue_id, queue_offset, place = HEAD.unpack_from(segment.view, physical - segment.start)
    agree: list[bool] = [stated == size, place == physical, magic in MAGICS, queue_id == queue.queue_id]
    if not queue.batched and not is_light(queue.topic):
        agree.append(queue_offset == number)
    return sum(agree) >= len(agree) - 1
