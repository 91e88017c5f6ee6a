"""Reading queues of type BatchCQ: as `reading`, with units that may stand for several messages (store.md §14.1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from tianzhou.records.layout import AT, INNER_BATCH, NUMBER, PLACE
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BATCH_UNIT_SIZE, BatchQueue, BatchUnit, unit_at
from tianzhou.store.queues.consumequeue import UNIT_SIZE
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.reading import outside_queue
from tianzhou.store.results import GetResult, GetStatus, ReadRequest

logger = logging.getLogger(__name__)


def read_batch_queue(log: CommitLog, queue: BatchQueue, limits: ReadLimits, request: ReadRequest) -> GetResult:
    """Records that hold the queue offsets from one on; the first record may begin before it, and is never too much.

    Args:
        log: the commit log.
        queue: the one of the request.
        limits: of one read.
        request: what is wanted.
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
    for unit in _units(queue, queue.find(offset), limits.segments):
        if unit is None:
            if parts:
                break
            continue
        if not unit.valid or not position < unit.end <= high:
            _report(queue, unit)
            gone = gone or not parts
            continue
        if (unit.base - offset) * BATCH_UNIT_SIZE >= scan_bytes:
            break
        if parts:
            near = log.end - unit.physical_offset <= limits.memory_bound
            most_count = most.count_in_memory if near else most.count_on_disk
            most_bytes = most.bytes_in_memory if near else most.bytes_on_disk
            if count + unit.messages > max_messages or count >= most_count or total + unit.size > most_bytes:
                break
        former, position = position, unit.end
        if _is_of_other_tags(unit, tag_codes):
            continue
        record = _record_of(log, queue, unit)
        if record is None:
            gone = gone or not parts
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


def _is_of_other_tags(unit: BatchUnit, tag_codes: frozenset[int] | None) -> bool:
    return tag_codes is not None and unit.tags_code not in tag_codes and bool(unit.tags_code)


def _record_of(log: CommitLog, queue: BatchQueue, unit: BatchUnit) -> memoryview | None:
    """The record of a unit; None when it is deleted or damaged, or when the unit leads elsewhere."""
    if unit.physical_offset < log.min_offset:
        return None
    record = log.read(unit.physical_offset, unit.size)
    if record is not None and _is_record(record, unit) and not (log.damaged and not log.intact(record)):
        return record
    if not log.damaged:
        _report(queue, unit)
    return None


def _is_record(record: memoryview, unit: BatchUnit) -> bool:
    return len(record) >= PLACE.size and PLACE.unpack_from(record)[::2] == (unit.size, unit.physical_offset)


def _report(queue: BatchQueue, unit: BatchUnit) -> None:
    if not queue.strays_reported:
        queue.strays_reported = True
        logger.error(
            "queue %s/%d: the unit of offset %d leads to %d bytes at %d of the commit log, where no such record is; it "
            "is passed over, and so are others like it: stop the broker and run `tianzhou store repair`",
            queue.topic, queue.queue_id, unit.base, unit.size, unit.physical_offset,
        )  # fmt: skip


def _units(queue: BatchQueue, number: int, files: int) -> Iterator[BatchUnit | None]:
    """The units from a number on, of at most `files` files; None before each further file."""
    for count, (segment, start, end) in enumerate(islice(queue.spans(number), files)):
        if count:
            yield None
        for at in range(start, end, BATCH_UNIT_SIZE):
            yield unit_at(segment.view, at)


def _wanted(record: memoryview, unit: BatchUnit, tag_codes: frozenset[int] | None) -> bool:
    if tag_codes is None or unit.tags_code in tag_codes:
        return True
    # RocketMQ gives inner batches to nobody who asks for a tag, so that what is in them is lost to those; a
    # consumer compares the tags of the messages itself.
    return bool(NUMBER.unpack_from(record, AT["sys_flag"])[0] & INNER_BATCH)
