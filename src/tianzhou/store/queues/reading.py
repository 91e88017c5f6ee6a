"""Reading a queue: what to return of it, and where a time is in it (store.md §14)."""

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
"""Units of a light queue that one read looks at, as long as they have something to prove."""
_BESIDE: Final = 8
"""Messages that are tried behind one whose store time cannot be had."""


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    limits: ReadLimits,
    request: ReadRequest,
    strays: StrayUnits | None = None,
) -> GetResult:
    """Records of a queue from an offset on (store.md §14.1).

    Args:
        log: the commit log.
        queue: the one of the request.
        limits: of one read.
        request: what is wanted.
        strays: knows units about which nothing can be done; None when all that lead elsewhere are to be passed over.

    Raises:
        StrayUnit: one leads elsewhere than to a whole record, before anything that could be returned.
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
            # What this process wrote, and what has not come back from the disk since, has nothing to prove.
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
    """What units from a queue offset on have to prove; None when this process wrote them and their records.

    Args:
        log: the commit log.
        queue: the one of the units.
        position: the queue offset of the first.
        units: they, or the first of them.
    """
    checked = log.checked
    if position >= queue.trusted_from and units and UNIT.unpack_from(units)[0] >= checked.trusted_from:
        return None
    # The records of a light queue are those of other queues.
    field = b"" if is_light(queue.topic) else queue.topic_field
    return Proof(field, queue.queue_id, position, checked.trusted_from, checked.bits)


def is_damage_ahead(log: CommitLog, units: memoryview) -> bool:
    """Whether any broken stretch of the log ends behind the place that the first of some units leads to."""
    return bool(log.damaged[-1][1] > UNIT.unpack_from(units)[0])


def _leading(
    log: CommitLog, queue: ConsumeQueue, position: int, units: memoryview, strays: StrayUnits | None
) -> memoryview:
    """The units of a light queue up to one that leads elsewhere: only properties of the records tell.

    Raises:
        StrayUnit: it is the first.
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
    """Look at units of which one seemed to lead elsewhere.

    Args:
        log: the commit log.
        queue: the queue.
        position: queue offset of the first of them.
        scanned: how many they are; the last is the one, when something had to be proved.
        proof: what had to be.
        strays: as of `read_queue`.

    Returns:
        Whether it leads to a record that belongs to the queue, though not as records of a queue mostly do.

    Raises:
        StrayUnit: it does lead elsewhere, and nobody knows of it yet.
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
    """Store time of a queue offset's message, ms; -1 when the message is not there."""
    unit = yield from queue.unit_steps(offset)
    return -1 if unit is None else (yield from log.time_steps(unit[0], unit[1]))
