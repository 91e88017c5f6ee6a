"""Entries of a DLedger log, written, copied and walked over: the pure twins (broker.md §19.5)."""

from __future__ import annotations

from collections import deque
from mmap import mmap
from typing import Final

from tianzhou._hot.cursors import LogCursor, NewRecord, Pending, QueueCursor
from tianzhou._hot.records import Result, put_plain
from tianzhou._hot.runs import Row, next_run
from tianzhou.records.checksum import Octets
from tianzhou.records.entry import END_SIZE, HEADER, HEADER_SIZE, MAGIC, UNIT, UNIT_SIZE

_ANY: Final = -1


def entry_run(data: Octets, at: int, most: int) -> tuple[int, int, int]:
    """Count consecutive entries in one segment of a log, up to the first that does not belong to the run.

    Each entry is whole, has the term of the first entry, the next index, and the position where the entry before ends.

    Args:
        data: bytes of a log, or of a message between nodes.
        at: start of the first entry in it.
        most: maximum number of entries.

    Returns:
        The number of entries, their bytes, and the start of the last one.
    """
    begin, last, count = at, at, 0
    expected = (0, 0, 0)
    while count < most and len(data) - at >= HEADER_SIZE:
        magic, size, index, term, pos, _, _, _, body_size = HEADER.unpack_from(data, at)
        if magic != MAGIC or body_size <= 0 or size != HEADER_SIZE + body_size or size > len(data) - at:
            break
        if min(index, term, pos) < 0 or (count and (index, term, pos) != expected):
            break
        expected = (index + 1, term, pos + size)
        last, at = at, at + size
        count += 1
    return count, at - begin, last


def copy_run(
    data: Octets, at: int, target: mmap, position: int, stop: int, units: mmap, unit_at: int, most: int
) -> tuple[int, int]:
    """Copy a run of entries (`entry_run`) into a segment, and write their units into a file of the index.

    Each entry's header is written after its body, so a process that dies in between leaves no entry.

    Args:
        data: bytes with the entries.
        at: start of the first entry in it.
        target: the segment.
        position: position of the first entry in it.
        stop: maximum end of an entry in the segment.
        units: the file of the index.
        unit_at: position of the first entry's unit in it.
        most: maximum number of entries.

    Returns:
        The number of copied entries, and their bytes.
    """
    begin, count = at, 0
    found, *_ = entry_run(data, at, most)
    while count < found:
        magic, size, index, term, pos, *_ = HEADER.unpack_from(data, at)
        if position + size > stop or unit_at + UNIT_SIZE > len(units):
            break
        target[position + HEADER_SIZE : position + size] = data[at + HEADER_SIZE : at + size]
        target[position : position + HEADER_SIZE] = data[at : at + HEADER_SIZE]
        UNIT.pack_into(units, unit_at, magic, pos, size, index, term)
        at, position, unit_at, count = at + size, position + size, unit_at + UNIT_SIZE, count + 1
    return count, at - begin


def next_entries(
    view: memoryview, position: int, base: int, stop: int, most: int, check_crc: bool, index: int, term: int
) -> tuple[list[Row], int, int, int, int]:
    """Return the ordinary records in consecutive entries of one term, up to the first that is not; see `next_run`.

    Args:
        view: as for `next_run`.
        position: start of the first entry in it.
        base: as for `next_run`.
        stop: as for `next_run`.
        most: as for `next_run`.
        check_crc: as for `next_run`.
        index: index of the entry before; -1 accepts any first entry.
        term: term of the entry before; the entries have the same or a later one.

    Returns:
        The records, the position after them, the newest store time of them in ms, and index and term of the last
        entry; those of the arguments without one.
    """
    rows: list[Row] = []
    newest = 0
    while len(rows) < most and position + HEADER_SIZE < stop and len(view) - position >= HEADER_SIZE:
        magic, size, found, its_term, pos, _, _, _, body_size = HEADER.unpack_from(view, position)
        if magic != MAGIC or body_size <= 0 or size != HEADER_SIZE + body_size or pos != base + position:
            break
        if size > len(view) - position - END_SIZE or found < 0 or (index != _ANY and found != index + 1):
            break
        if its_term < max(term, 0) or (rows and its_term != term):
            break
        one, behind, stored = next_run(view, position + HEADER_SIZE, base, stop, 1, check_crc)
        if not one or behind != position + size:
            break
        rows += one
        newest = max(newest, stored)
        position, index, term = behind, found, its_term
    return rows, position, newest, index, term


def put_entry(
    log: LogCursor,
    queue: QueueCursor,
    record: NewRecord,
    stored: int,
    pending: deque[Pending],
    done: Result,
    units: mmap,
    unit_at: int,
    index: int,
    term: int,
) -> Result | None:
    """Store a plain message with its record in an entry, as `put_plain`.

    Args:
        log: as for `put_plain`.
        queue: as for `put_plain`.
        record: as for `put_plain`.
        stored: as for `put_plain`.
        pending: as for `put_plain`.
        done: as for `put_plain`.
        units: the file of the entry's unit.
        unit_at: position of the unit in it; the file has room.
        index: index of the entry.
        term: term of the entry.
    """
    start = log.position
    log.position = start + HEADER_SIZE
    result: Result | None = put_plain(log, queue, record, stored, pending, done)
    if result is None:
        log.position = start
        return None
    size, pos, memory = log.position - start, log.base + start, log._map
    assert memory is not None
    HEADER.pack_into(memory, start, MAGIC, size, index, term, pos, 0, 0, 0, size - HEADER_SIZE)
    UNIT.pack_into(units, unit_at, MAGIC, pos, size, index, term)
    return result


def put_entries(
    log: LogCursor,
    queue: QueueCursor,
    record: NewRecord,
    batch: bytes | memoryview,
    most: int,
    stored: int,
    pending: deque[Pending],
    done: Result,
    units: mmap,
    unit_at: int,
    most_units: int,
    index: int,
    term: int,
) -> Result | None:
    """Store a plain batch with each record in an entry, as `put_batch`.

    This twin stores none: it leaves all batches to the store, which splits them.

    Args:
        log: as for `put_batch`.
        queue: as for `put_batch`.
        record: as for `put_batch`.
        batch: as for `put_batch`.
        most: as for `put_batch`.
        stored: as for `put_batch`.
        pending: as for `put_batch`.
        done: as for `put_batch`.
        units: the file of the entries' units.
        unit_at: position of the first unit in it.
        most_units: number of units that the file has room for.
        index: index of the first entry.
        term: term of the entries.
    """
    return None
