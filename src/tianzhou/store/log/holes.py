"""Placeholder units of queues for lost records.

RocketMQ's blank unit (store.md §5.2) is meant for places before a queue's first message. Anywhere else Apache's broker,
4.9.7 and 5.3.3, treats it as a deleted record at offset 0. It then skips all further messages of the pull in the first
file of the log. And when a blank unit is the last unit of a queue, the log counts as dispatched up to 2 GiB: new
messages are no longer added to the queue (5.3.3), or to any queue (4.9.7).

Where a blank unit would do such harm, the placeholder points to a neighbouring record. Apache's broker serves that
record once more; ours recognizes the tags code and skips the unit.
"""

from __future__ import annotations

from typing import Final

from tianzhou._hot.records import HOLE, UNIT

BLANK_SIZE: Final = 0x7FFFFFFF
"""The size in a blank unit; its offset and tags code are 0."""
BLANK: Final = UNIT.pack(0, BLANK_SIZE, 0)


def is_hole(physical_offset: int, size: int, tags_code: int) -> bool:
    """Whether a unit is a placeholder."""
    return tags_code == HOLE or (size == BLANK_SIZE and physical_offset == 0)


def leading(units: memoryview) -> int:
    """Return the number of identical placeholder units at the beginning of `units`."""
    unit = bytes(units[: UNIT.size])
    if not is_hole(*UNIT.unpack(unit)):
        return 0
    count = len(units) // UNIT.size
    if units == unit * count:
        return count
    return next(number for number in range(count) if units[number * UNIT.size : (number + 1) * UNIT.size] != unit)


def before(physical_offset: int, size: int, log_file_size: int) -> bytes:
    """Return the placeholder unit before a record of the queue.

    Args:
        physical_offset: log offset of that record.
        size: bytes of that record.
        log_file_size: bytes of a file of the log.
    """
    return BLANK if physical_offset >= log_file_size else UNIT.pack(physical_offset, size, HOLE)


def behind(count: int, physical_offset: int, size: int, log_file_size: int) -> list[bytes]:
    """Return the placeholder units after the last record of the queue.

    Args:
        count: number of units.
        physical_offset: log offset of that record.
        size: bytes of that record.
        log_file_size: bytes of a file of the log.
    """
    last = UNIT.pack(physical_offset, size, HOLE)
    return [BLANK if physical_offset + size >= log_file_size else last] * (count - 1) + [last] * min(count, 1)
