"""Reading a queue: what to return of it, and where a time is in it (store.md §14)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from tianzhou.store.commitlog import CommitLog
from tianzhou.store.consumequeue import BLANK_SIZE, UNIT, UNIT_SIZE, ConsumeQueue
from tianzhou.store.logscan import store_time
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.store.settings import StoreSettings

EXTENSION_ADDRESS: Final = -(1 << 31) - 1
"""Tags codes up to here are addresses in extension files, which filtering by tag cannot judge (store.md §5.5)."""
MAX_BYTES: Final = 128 << 20


class ReadLimits:
    """How much one read may look at and return.

    Args:
        settings: the limits.
        memory: bytes of main memory; None for this machine's.
    """

    __slots__ = (
        "bytes_in_memory",
        "bytes_on_disk",
        "count_in_memory",
        "count_on_disk",
        "memory_bound",
        "segments",
        "units",
    )

    def __init__(self, settings: StoreSettings, memory: int | None = None) -> None:
        if memory is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.memory_bound = memory * settings.access_message_in_memory_max_ratio // 100
        self.bytes_in_memory = settings.max_transfer_bytes_on_message_in_memory
        self.count_in_memory = settings.max_transfer_count_on_message_in_memory
        self.bytes_on_disk = settings.max_transfer_bytes_on_message_in_disk
        self.count_on_disk = settings.max_transfer_count_on_message_in_disk
        self.units = -(-settings.max_filter_message_size // UNIT_SIZE)
        self.segments = settings.travel_cq_file_num_when_get_message


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    limits: ReadLimits,
    offset: int,
    max_messages: int,
    tag_codes: frozenset[int] | None,
    max_bytes: int,
    accept: Callable[[memoryview], bool] | None,
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
        accept: only records for which this holds; None for all.
    """
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    parts: list[memoryview] = []
    total = 0
    status = GetStatus.NO_MATCHED_MESSAGE
    log_end = log.end
    stop_at = min(high, offset + max(limits.units, max_messages))
    position = offset
    skip_below = -1
    last_physical = 0
    full = False
    segments_left = limits.segments
    while not parts and not full and position < stop_at and segments_left > 0:
        segments_left -= 1
        segment = queue.files.find(position * UNIT_SIZE)
        if segment is None:
            per_segment = queue.files.size // UNIT_SIZE
            return GetResult(GetStatus.OFFSET_FOUND_NULL, position + per_segment - position % per_segment, low, high)
        at = position * UNIT_SIZE - segment.start
        upto = min(segment.size, stop_at * UNIT_SIZE - segment.start)
        for physical, size, tags in UNIT.iter_unpack(segment.view[at:upto]):
            if parts:
                if total + size > max_bytes or len(parts) >= max_messages:
                    full = True
                elif log_end - physical <= limits.memory_bound:
                    full = total + size > limits.bytes_in_memory or len(parts) >= limits.count_in_memory
                else:
                    full = total + size > limits.bytes_on_disk or len(parts) >= limits.count_on_disk
                if full:
                    break
            position += 1
            if physical < skip_below or (tag_codes is not None and tags not in tag_codes and tags > EXTENSION_ADDRESS):
                continue
            record = log.read(physical, size)
            if record is None:
                if not parts:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                if size != BLANK_SIZE and physical < log.min_offset:
                    skip_below = log.min_offset
                continue
            if accept is not None and not accept(record):
                continue
            parts.append(record)
            total += size
            last_physical = physical
            status = GetStatus.FOUND
    behind = bool(parts) and log_end - last_physical > limits.memory_bound
    return GetResult(status, position, low, high, parts, len(parts), total, behind)


def offset_at_time(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
    """The queue offset that belongs to a store time (store.md §14.2).

    Args:
        log: the commit log.
        queue: the queue.
        timestamp: ms.
        upper: the last message stored at or before the time; otherwise the first stored at or after it.

    Returns:
        An offset between the queue's min and max; max when every message is older and `upper` is not set.
    """
    low, high = queue.min_offset, queue.max_offset
    if low >= high:
        return high
    begin, end = low, high
    while begin < end:
        middle = (begin + end) // 2
        stored = time_of(log, queue, middle)
        if stored < timestamp or (upper and stored == timestamp):
            begin = middle + 1
        else:
            end = middle
    return max(begin - 1, low) if upper else begin


def time_of(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """Store time of a queue offset's message, ms; -1 when the message is not there."""
    unit = queue.unit(offset)
    if unit is None:
        return -1
    record = log.read(unit[0], unit[1])
    return -1 if record is None else store_time(record)
