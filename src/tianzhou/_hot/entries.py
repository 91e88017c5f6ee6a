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
    """Count entries that stand one behind the other as in one segment of a log, up to the first that does not.

    Each is whole, of the term of the first one, has the next index, and says that it is where the one before ends.

    Args:
        data: bytes of a log, or of a message between nodes.
        at: where in it the first entry may begin.
        most: no more than so many.

    Returns:
        How many there are, their bytes, and where the last of them begins.
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

    The header of each comes behind its body: who dies in between leaves no entry.

    Args:
        data: has the entries.
        at: where in it they begin.
        target: the segment.
        position: where in it they go.
        stop: no entry may end behind this position.
        units: the file of the index.
        unit_at: where in it the first one's unit goes.
        most: no more than so many.

    Returns:
        How many were copied, and their bytes.
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
    """The ordinary records in entries of one term from a place on, up to the first that is not; see `next_run`.

    Args:
        view: as there.
        position: where in it an entry may begin.
        base: as there.
        stop: as there.
        most: as there.
        check_crc: as there.
        index: of the entry before; -1 when any may come first.
        term: of that; the entries have it or a later one.

    Returns:
        The records, the position behind them, the newest store time of them in ms, and index and term of the last
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
    """As `put_plain`, with the record in an entry.

    Args:
        log: as there.
        queue: as there.
        record: as there.
        stored: as there.
        pending: as there.
        done: as there.
        units: the file of the entry's unit.
        unit_at: where in it the unit goes; there is room.
        index: of the entry.
        term: of the entry.
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
    """As `put_batch`, with each record in an entry.

    This twin leaves all of them to the store, which takes them apart.

    Args:
        log: as there.
        queue: as there.
        record: as there.
        batch: as there.
        most: as there.
        stored: as there.
        pending: as there.
        done: as there.
        units: the file of the entries' units.
        unit_at: where in it the first unit goes.
        most_units: for so many units there is room.
        index: of the first entry.
        term: of the entries.
    """
    return None
