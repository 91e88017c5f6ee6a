"""Reading a queue: what to return of it, and where a time is in it (store.md §14)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from tianzhou._hot import gather
from tianzhou._hot.records import GatherLimits
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from tianzhou.store.queues.extension import ACCEPTED, ExtendedQueue, ExtensionUnit
from tianzhou.store.queues.strays import refuse_strays
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.store.settings import StoreSettings

MAX_BYTES: Final = 128 << 20
_JUDGED: Final = frozenset((ACCEPTED,))
_MOST_MADE: Final = 256


class ReadLimits:
    """How much one read may look at and return.

    Args:
        settings: the limits.
        memory: bytes of main memory; None for this machine's.
    """

    __slots__ = ("_made", "_settings", "memory_bound", "segments", "units")

    def __init__(self, settings: StoreSettings, memory: int | None = None) -> None:
        if memory is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._settings = settings
        self._made: dict[tuple[int, int], GatherLimits] = {}
        self.memory_bound = memory * settings.access_message_in_memory_max_ratio // 100
        self.units = -(-settings.max_filter_message_size // UNIT_SIZE)
        self.segments = max(1, settings.travel_cq_file_num_when_get_message)

    def of(self, max_messages: int, max_bytes: int) -> GatherLimits:
        """The limits of a read that itself wants at most so much."""
        made = self._made.get((max_messages, max_bytes))
        return self._make(max_messages, max_bytes) if made is None else made

    def settings_changed(self) -> None:
        """Take over limits that were changed while running."""
        self._made.clear()

    def _make(self, max_messages: int, max_bytes: int) -> GatherLimits:
        settings = self._settings
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        made = self._made[max_messages, max_bytes] = GatherLimits(
            self.memory_bound,
            min(max_messages, settings.max_transfer_count_on_message_in_memory),
            min(max_bytes, settings.max_transfer_bytes_on_message_in_memory),
            min(max_messages, settings.max_transfer_count_on_message_in_disk),
            min(max_bytes, settings.max_transfer_bytes_on_message_in_disk),
        )
        return made


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    limits: ReadLimits,
    offset: int,
    max_messages: int,
    tag_codes: frozenset[int] | None,
    max_bytes: int,
    accept: Callable[[memoryview], bool | None] | None,
    accept_unit: Callable[[ExtensionUnit], bool] | None = None,
    strays: bool = False,
) -> GetResult:
    """Records of a queue from `offset` on (store.md §14.1).

    Args:
        log: the commit log.
        queue: the queue.
        limits: of one read.
        offset: first queue offset wanted.
        max_messages: at most so many.
        tag_codes: only units with one of these codes; None for all.
        max_bytes: at most so many bytes, unless the first record alone is longer.
        accept: only records for which this holds, up to one for which it gives None; None for all.
        accept_unit: only units with such an extension, or with none; None for all. Not together with `tag_codes`.
        strays: whether the caller wants to know of a unit that leads elsewhere than to a record; it is passed over
            otherwise.

    Raises:
        StrayUnit: there is one before anything that could be returned.
    """
    low, high = queue.min_offset, queue.max_offset
    if not low <= offset < high:
        return outside_queue(offset, low, high)
    if log.damaged:
        accept = log.intact if accept is None else _both(log.intact, accept)
    stop_at = min(high, offset + max(limits.units, max_messages))
    batch_limits = limits.of(max_messages, max_bytes)
    position = offset
    gone = False
    wanted = tag_codes
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
            if tag_codes is not None:
                units = queue.resolved(units)
            elif accept_unit is not None:
                units, wanted = queue.judged(units, accept_unit), _JUDGED
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
