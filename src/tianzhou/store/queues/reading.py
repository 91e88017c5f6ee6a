"""Reading a queue: what to return of it, and where a time is in it (store.md §14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tianzhou._hot import gather
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from tianzhou.store.queues.extension import ACCEPTED, ExtendedQueue
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.strays import refuse_strays
from tianzhou.store.results import GetResult, GetStatus, ReadRequest

_JUDGED: Final = frozenset((ACCEPTED,))


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    limits: ReadLimits,
    request: ReadRequest,
    strays: bool = False,
) -> GetResult:
    """Records of a queue from an offset on (store.md §14.1).

    Args:
        log: the commit log.
        queue: the one of the request.
        limits: of one read.
        request: what is wanted.
        strays: whether the caller wants to know of a unit that leads elsewhere than to a record; it is passed over
            otherwise.

    Raises:
        StrayUnit: there is one before anything that could be returned.
    """
    offset, accept, max_messages = request.offset, request.accept, request.max_messages
    low, high = queue.min_offset, queue.max_offset
    if not low <= offset < high:
        return outside_queue(offset, low, high)
    if log.damaged:
        accept = log.intact if accept is None else _both(log.intact, accept)
    stop_at = min(high, offset + max(limits.units, max_messages))
    batch_limits = limits.of(max_messages, request.max_bytes)
    position = offset
    gone = False
    wanted = request.tag_codes
    for _ in range(limits.segments):
        segment = queue.files.find(position * UNIT_SIZE)
        if segment is None:
            per_segment = queue.files.size // UNIT_SIZE
            following = position + per_segment - position % per_segment
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high)
        at = position * UNIT_SIZE - segment.start
        upto = min(segment.size, stop_at * UNIT_SIZE - segment.start)
        units = segment.view[at:upto]
        if isinstance(queue, ExtendedQueue):
            if request.tag_codes is not None:
                units = queue.resolved(units)
            elif request.accept_unit is not None:
                units, wanted = queue.judged(units, request.accept_unit), _JUDGED
        records, count, scanned, last, missing = gather(
            units, log.files.segments, log.files.size, log.end, wanted, accept, batch_limits
        )
        if missing and strays:
            refuse_strays(log, queue, units, scanned, position)
        position += scanned
        if count:
            behind = log.end - last > limits.memory_bound
            return GetResult(GetStatus.FOUND, position, low, high, records, count, behind)
        gone = gone or missing
        if position >= stop_at:
            break
    status = GetStatus.MESSAGE_WAS_REMOVING if gone else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, position, low, high)


def outside_queue(offset: int, low: int, high: int) -> GetResult:
    """The answer to a read at an offset that the queue, which goes from `low` to `high`, does not have."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


def _both(
    first: Callable[[memoryview], bool], second: Callable[[memoryview], bool | None]
) -> Callable[[memoryview], bool | None]:
    return lambda record: first(record) and second(record)


def offset_steps(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> Steps[int]:
    """The queue offset that belongs to a store time (store.md §14.2).

    Args:
        log: the commit log.
        queue: the queue.
        timestamp: ms.
        upper: the last message stored at or before the time; otherwise the first stored at or after it.

    Returns:
        An offset between the queue's min and max; max when every message is older and `upper` is not set.
    """
    if isinstance(queue, BatchQueue):
        return (yield from queue.time_steps(timestamp, upper=upper))
    low, high = queue.min_offset, queue.max_offset
    if low >= high:
        return high
    begin, end = low, high
    while begin < end:
        middle = (begin + end) // 2
        stored = yield from time_steps(log, queue, middle)
        if stored < timestamp or (upper and stored == timestamp):
            begin = middle + 1
        else:
            end = middle
    return max(begin - 1, queue.min_offset) if upper else max(begin, queue.min_offset)


def time_steps(log: CommitLog, queue: ConsumeQueue, offset: int) -> Steps[int]:
    """Store time of a queue offset's message, ms; -1 when the message is not there."""
    unit = yield from queue.unit_steps(offset)
    return -1 if unit is None else (yield from log.time_steps(unit[0], unit[1]))
