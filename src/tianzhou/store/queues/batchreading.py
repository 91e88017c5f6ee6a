"""Reads of queues of type BatchCQ, as in `reading`, with units of several messages (store.md §14.1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tianzhou._hot.records import GatherLimits
from tianzhou.records.codec import crc_property_fits
from tianzhou.records.layout import AT, INNER_BATCH, NUMBER, PLACE
from tianzhou.records.walk import read_item
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BATCH_UNIT_SIZE, BatchQueue, BatchUnit, unit_at, unit_of
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.queues.judging import Verdict, judge_batch
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.reading import outside_queue
from tianzhou.store.queues.strays import StrayUnit, StrayUnits
from tianzhou.store.results import GetResult, GetStatus, ReadRequest


def read_batch_queue(  # noqa: C901 - one unit after the other, each with its own reasons to skip it
    log: CommitLog, queue: BatchQueue, limits: ReadLimits, request: ReadRequest, strays: StrayUnits | None = None
) -> GetResult:
    """Return records from a queue offset on. The first one may begin before the offset, and ignores the limits.

    Args:
        log: the commit log.
        queue: the queue of the request.
        limits: limits of one read.
        request: the request.
        strays: as of `read_queue`.

    Raises:
        StrayUnit: as `read_queue`.
    """
    offset, max_messages = request.offset, request.max_messages
    tag_codes, accept = request.tag_codes, request.accept
    low, high = queue.min_offset, queue.max_offset
    if not low <= offset < high:
        return outside_queue(offset, low, high)
    scan_bytes = max(limits.units * UNIT_SIZE, max_messages * BATCH_UNIT_SIZE)
    most = limits.of(max_messages, request.max_bytes)
    parts: list[memoryview] = []
    count = total = last = 0
    gone = ended = False
    position = offset
    first = queue.find(offset)
    proved = offset < queue.trusted_from or not log.checked.undisturbed
    if proved:
        _refuse_stray_before(log, queue, first, offset, strays)
    for number, unit in _units(queue, first, limits.segments):
        if unit is None:
            if parts:
                break
            continue
        is_next = unit.valid and position < unit.end <= high
        record = _proved_record(log, queue, unit) if proved else None
        if not is_next or (proved and record is None):
            if parts:
                break
            _refuse(log, queue, number, strays)
            gone = True
            position = unit.end if is_next else position
            continue
        if (unit.base - offset) * BATCH_UNIT_SIZE >= scan_bytes:
            break
        near = log.end - unit.physical_offset <= limits.memory_bound
        if parts and (count + unit.messages > max_messages or _is_full(most, count, total + unit.size, near)):
            break
        former, position = position, unit.end
        if _is_of_other_tags(unit, tag_codes):
            continue
        record = record or _record_of(log, unit)
        if record is None:
            if not parts:
                _refuse(log, queue, number, strays)
                gone = True
            continue
        verdict = _wanted(record, unit, tag_codes) and (accept is None or accept(record))
        if verdict is None:
            position, ended = former, True
            break
        if not verdict:
            continue
        parts.append(record)
        count += unit.messages
        total += unit.size
        last = unit.physical_offset
    if parts:
        behind = log.end - last > limits.memory_bound
        return GetResult(GetStatus.FOUND, position, low, high, b"".join(parts), count, behind)
    if position == offset and not ended:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, high, low, high)
    return GetResult(GetStatus.MESSAGE_WAS_REMOVING if gone else GetStatus.NO_MATCHED_MESSAGE, position, low, high)


def _is_full(most: GatherLimits, count: int, size: int, near: bool) -> bool:
    """Whether the result is full: it has `count` messages, and would have `size` bytes with the next one."""
    most_count, most_bytes = (
        (most.count_in_memory, most.bytes_in_memory) if near else (most.count_on_disk, most.bytes_on_disk)
    )
    return count >= most_count or size > most_bytes


def _refuse(log: CommitLog, queue: BatchQueue, number: int, strays: StrayUnits | None) -> None:
    """Check a unit that seems to point to a wrong record.

    Raises:
        StrayUnit: it points to a wrong record and was not reported yet.
    """
    if strays is not None and not strays.is_passed(queue, number) and judge_batch(log, queue, number) is Verdict.STRAY:
        raise StrayUnit(number)


def _refuse_stray_before(
    log: CommitLog, queue: BatchQueue, number: int, offset: int, strays: StrayUnits | None
) -> None:
    """Check the unit before the first one of a read, which the search by offsets may have skipped by mistake.

    Raises:
        StrayUnit: it points to a wrong record.
    """
    first, end = queue.numbers()
    if number > first and (number >= end or queue.entry(number).base > offset or not queue.entry(number).valid):
        _refuse(log, queue, number - 1, strays)


def _is_of_other_tags(unit: BatchUnit, tag_codes: frozenset[int] | None) -> bool:
    return tag_codes is not None and unit.tags_code not in tag_codes and bool(unit.tags_code)


def _record_of(log: CommitLog, unit: BatchUnit) -> memoryview | None:
    """Return the record of a unit; None when it is deleted or damaged, or when the unit points elsewhere."""
    if unit.physical_offset < log.min_offset:
        return None
    record = log.read(unit.physical_offset, unit.size)
    if record is not None and _is_record(record, unit) and not (log.damaged and not log.intact(record)):
        return record
    return None


def _proved_record(log: CommitLog, queue: BatchQueue, unit: BatchUnit) -> memoryview | None:
    """Return the record as `_record_of`, when the unit matches the record and the record is whole."""
    record = _record_of(log, unit) if unit.valid else None
    segment = log.files.find(unit.physical_offset)
    if record is None or segment is None:
        return None
    at, is_checked = unit.physical_offset - segment.start, unit.physical_offset in log.checked
    entry = read_item(segment.view, at, segment.start, check_crc=not is_checked).entry
    if entry is None or (entry.topic, entry.queue_id) != (queue.topic, queue.queue_id) or unit_of(entry) != unit:
        return None
    if not is_checked:
        if not crc_property_fits(record):
            return None
        log.checked.add(unit.physical_offset)
    return record


def _is_record(record: memoryview, unit: BatchUnit) -> bool:
    return len(record) >= PLACE.size and PLACE.unpack_from(record)[::2] == (unit.size, unit.physical_offset)


def _units(queue: BatchQueue, number: int, files: int) -> Iterator[tuple[int, BatchUnit | None]]:
    """Yield the units from a number on, of at most `files` files, with their numbers; None before each further file."""
    for count, (segment, start, end) in enumerate(islice(queue.spans(number), files)):
        if count:
            yield number, None
        for at in range(start, end, BATCH_UNIT_SIZE):
            yield number, unit_at(segment.view, at)
            number += 1


def _wanted(record: memoryview, unit: BatchUnit, tag_codes: frozenset[int] | None) -> bool:
    if tag_codes is None or unit.tags_code in tag_codes:
        return True
    # RocketMQ returns no inner batches to a pull with tags, so their messages are lost to such consumers. A consumer
    # compares the tags of the messages itself.
    return bool(NUMBER.unpack_from(record, AT["sys_flag"])[0] & INNER_BATCH)
