"""Reads of a queue: the records to return, and the offset for a store time (store.md §14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tianzhou._hot import gather
from tianzhou._hot.records import UNIT, Proof
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from tianzhou.store.queues.extension import ACCEPTED, ExtendedQueue
from tianzhou.store.queues.judging import Verdict, judge
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.strays import StrayUnit, StrayUnits
from tianzhou.store.results import GetResult, GetStatus, ReadRequest

_JUDGED: Final = frozenset((ACCEPTED,))
_LIGHT: Final = 64
"""Number of units of a light queue that one read checks, while they need proof."""
_BESIDE: Final = 8
"""Number of messages to try after one whose store time cannot be read."""


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    limits: ReadLimits,
    request: ReadRequest,
    strays: StrayUnits | None = None,
) -> GetResult:
    """Return records of a queue from an offset on (store.md §14.1).

    Args:
        log: the commit log.
        queue: the queue of the request.
        limits: limits of one read.
        request: the request.
        strays: knows units that cannot be rebuilt; None to skip all units that point to a wrong record.

    Raises:
        StrayUnit: a unit before the first returned record does not point to a whole record.
    """
    offset, accept, max_messages = request.offset, request.accept, request.max_messages
    low, high = queue.min_offset, queue.max_offset
    if not low <= offset < high:
        return outside_queue(offset, low, high)
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
        if log.damaged and is_damage_ahead(log, units):
            accept = log.intact if accept is None else _both(log.intact, accept)
        if isinstance(queue, ExtendedQueue):
            if request.tag_codes is not None:
                units = queue.resolved(units)
            elif request.accept_unit is not None:
                units, wanted = queue.judged(units, request.accept_unit), _JUDGED
        while True:
            proof = None
            # Units and records that this process wrote, and that have stayed in memory since, need no proof.
            if position < queue.trusted_from or not log.checked.undisturbed:
                proof = proof_of(log, queue, position, units)
                if proof is not None and is_light(queue.topic):
                    units = _leading(log, queue, position, units, strays)
            records, count, scanned, last, missing = gather(
                units, log.files.segments, log.files.size, log.end, wanted, accept, batch_limits, proof
            )
            if missing and not count and is_sound_after_all(log, queue, position, scanned, proof, strays):
                one = units[(scanned - 1) * UNIT_SIZE : scanned * UNIT_SIZE]
                records, count, further, last, _ = gather(
                    one, log.files.segments, log.files.size, log.end, wanted, accept, batch_limits
                )
                missing = False
                scanned += further - 1
            position += scanned
            if count:
                behind = log.end - last > limits.memory_bound
                return GetResult(GetStatus.FOUND, position, low, high, records, count, behind)
            gone = gone or missing
            units = units[scanned * UNIT_SIZE :]
            if proof is None or not (scanned and units):
                break
        if position >= stop_at:
            break
    status = GetStatus.MESSAGE_WAS_REMOVING if gone else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, position, low, high)


def proof_of(log: CommitLog, queue: ConsumeQueue, position: int, units: memoryview) -> Proof | None:
    """Return the proof that units from a queue offset on need; None when this process wrote them and their records.

    Args:
        log: the commit log.
        queue: the queue of the units.
        position: the queue offset of the first.
        units: the units, or the first of them.
    """
    checked = log.checked
    if position >= queue.trusted_from and units and UNIT.unpack_from(units)[0] >= checked.trusted_from:
        return None
    # The records of a light queue have the topics of other queues.
    field = b"" if is_light(queue.topic) else queue.topic_field
    return Proof(field, queue.queue_id, position, checked.trusted_from, checked.bits)


def is_damage_ahead(log: CommitLog, units: memoryview) -> bool:
    """Whether a broken stretch of the log ends after the log offset in the first unit."""
    return bool(log.damaged[-1][1] > UNIT.unpack_from(units)[0])


def _leading(
    log: CommitLog, queue: ConsumeQueue, position: int, units: memoryview, strays: StrayUnits | None
) -> memoryview:
    """Return the units of a light queue up to one that points elsewhere, which only the records' properties show.

    Raises:
        StrayUnit: the first unit points elsewhere.
    """
    count = min(len(units) // UNIT_SIZE, _LIGHT)
    for number in range(position, position + count):
        if strays is not None and judge(log, queue, number) is Verdict.STRAY and not strays.is_passed(queue, number):
            if number == position:
                raise StrayUnit(number)
            return units[: (number - position) * UNIT_SIZE]
    return units[: count * UNIT_SIZE]


def is_sound_after_all(
    log: CommitLog,
    queue: ConsumeQueue,
    position: int,
    scanned: int,
    proof: Proof | None,
    strays: StrayUnits | None,
) -> bool:
    """Check units, one of which seemed to point to a wrong record.

    Args:
        log: the commit log.
        queue: the queue.
        position: queue offset of the first of them.
        scanned: number of units; the last is the suspicious one, when a proof was needed.
        proof: the proof that was needed.
        strays: as of `read_queue`.

    Returns:
        Whether it points to a record that belongs to the queue, though not in the usual form of a queue's records.

    Raises:
        StrayUnit: it points to a wrong record and was not reported yet.
    """
    first = position if proof is None else position + scanned - 1
    for number in range(first, position + scanned):
        verdict = judge(log, queue, number)
        if verdict is Verdict.SOUND:
            return proof is not None
        if verdict is Verdict.STRAY and strays is not None and not strays.is_passed(queue, number):
            raise StrayUnit(number)
    return False


def outside_queue(offset: int, low: int, high: int) -> GetResult:
    """Return the answer to a read at an offset outside of the queue, whose bounds are `low` and `high`."""
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
    """Return the queue offset for a store time (store.md §14.2).

    Args:
        log: the commit log.
        queue: the queue.
        timestamp: ms.
        upper: whether to find the last message stored at or before the time; otherwise the first at or after it.

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
        for at in range(middle, min(middle + _BESIDE, end)):
            stored = yield from time_steps(log, queue, at)
            if stored >= 0:
                break
        if stored < timestamp or (upper and stored == timestamp):
            begin = at + 1
        else:
            end = middle
    return max(begin - 1, queue.min_offset) if upper else max(begin, queue.min_offset)


def time_steps(log: CommitLog, queue: ConsumeQueue, offset: int) -> Steps[int]:
    """Return the store time of a queue offset's message, ms; -1 when the message does not exist."""
    unit = yield from queue.unit_steps(offset)
    return -1 if unit is None else (yield from log.time_steps(unit[0], unit[1]))
