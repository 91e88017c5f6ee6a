"""Ranges of a store's queues to Arrow batches, directly from the mapped files.

A binary array over a whole commit log file, whose edges are the starts and ends of the wanted parts, gives every column
in one `take`, see `columns`. Each record is compared with its unit before it is used. Records that do not match are
lost, and reported by their offset and their position in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from pyarrow import RecordBatch, Schema

from tianzhou.errors import CorruptRecord
from tianzhou.filter.tags import parse_tags
from tianzhou.model import MessageQueue, names
from tianzhou.records.checksum import crc32
from tianzhou.records.layout import OVERHEAD
from tianzhou.records.walk import LogEntry, read_item
from tianzhou.spark.rows import arrays
from tianzhou.spark.rows.arrays import Ints, pa
from tianzhou.spark.rows.columns import Records, made_of
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.rules import DEFAULT_RULES, RowRules
from tianzhou.spark.source.offsets import DataLoss, MessageLoss, Span
from tianzhou.spark.store.mapped_files import Units
from tianzhou.spark.store.store_files import StoreFiles, place_text
from tianzhou.store.queues.multi_dispatch import stored_places
from tianzhou.wire.hashing import tags_code

logger = logging.getLogger(__name__)

ROWS: Final = 8192
BYTES: Final = 8 << 20
"""Maximum size of a batch of rows, beside `ROWS`."""
SPARSE: Final = 8
"""If the range of a queue's records exceeds their size by this factor, the bytes between them are not fetched."""
NAMED: Final = 20
"""Maximum number of lost ranges in an error. Of the others it contains only the number."""
_EXTENDED: Final = -(1 << 31) - 1
"""Tags codes up to this value are addresses of extension units (store.md §5.5)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted rows and their columns.

    Attributes:
        schema: schema of the batches.
        columns: the column of the row schema behind each field.
        tags: a tag expression.
        key: key or unique key of the wanted messages; None for all messages.
        verify_crc: whether to compare bodies with their CRC.
        fail_on_data_loss: whether a lost or damaged message is an error; otherwise it is skipped with a warning.
        rules: rules for values that no row can have.
    """

    schema: Schema
    columns: tuple[str, ...]
    tags: str = "*"
    key: str | None = None
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    rules: RowRules = DEFAULT_RULES


class RowReader:
    """A reader of ranges of queues.

    Args:
        store: the store.
        wanted: the wanted rows and their columns.

    Attributes:
        lost: number of offsets that were skipped.
    """

    def __init__(self, store: StoreFiles, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted
        self._tags = parse_tags(wanted.tags).tags
        self._codes = np.array([tags_code(tag) for tag in sorted(self._tags)], np.int64)
        # A comparison of CRCs or keys needs the records, so the compiled code cannot make the batch directly.
        at_once = not wanted.verify_crc and wanted.key is None
        rules = wanted.rules
        self._compiled = CompiledColumns(wanted.schema, wanted.columns, self._tags, rules) if at_once else None
        self._losses: list[MessageLoss] = []
        self.lost = 0

    def read(self, span: Span) -> Iterator[RecordBatch]:
        """Return the rows of a range as batches of up to `ROWS` rows and about `BYTES` bytes.

        Raises:
            DataLoss: messages of the range are lost or damaged, and `fail_on_data_loss` is set.
        """
        store, queue = self._store, span.queue
        files = store.files(queue.topic, queue.queue_id)
        end = max(files.written(), files.begin)
        if (queue.topic, queue.queue_id) in store.more:
            end = files.end(store.more[queue.topic, queue.queue_id][0])
        at = span.start
        self._losses = []
        first = store.slot_of(queue, span.start, files.begin, end)
        last = end if files.batched else min(end, span.end)
        for units in files.units(first, last, ROWS):
            inside = units.where(units.base < span.end)
            at = self._gap(queue, at, inside)
            for batch in self._batches(queue, span, inside.where(~inside.blank)):
                self._settle()  # Report here and not earlier, so that adjacent losses are one.
                yield batch
            if len(self._losses) > NAMED:
                self._settle()
            if len(inside.base) < len(units.base):
                break
        if at < span.end:
            store.look()
            begin = files.begin
            why = f"the queue now begins at {begin}" if at < begin and not files.batched else "the queue has no unit"
            self._lose(queue, at, span.end, why)
        self._settle()
        if self.lost:
            logger.warning("%d messages of %s were skipped, for failOnDataLoss=false", self.lost, queue)
            self.lost = 0

    def _gap(self, queue: MessageQueue, at: int, units: Units) -> int:
        """Record the offsets between units as lost. Return the offset after the units."""
        if not len(units.base):
            return at
        ends = units.base + units.count
        begins = np.concatenate([[at], ends[:-1]])
        for row in np.flatnonzero(units.base > begins).tolist():
            self._lose(queue, int(begins[row]), int(units.base[row]), "the file with their units is gone")
        return max(at, int(ends[-1]))

    # --- lost messages

    def _lose(self, queue: MessageQueue, start: int, end: int, reason: str) -> None:
        last = self._losses[-1] if self._losses else None
        if last is not None and last.end == start and last.reason == reason:
            self._losses[-1] = MessageLoss(queue, last.start, end, reason)
        else:
            self._losses.append(MessageLoss(queue, start, end, reason))

    def _settle(self) -> None:
        """Raise an error for the losses so far, or log warnings.

        Raises:
            DataLoss: there are losses, and `fail_on_data_loss` is set.
        """
        losses, self._losses = self._losses, []
        if not losses:
            return
        if self._wanted.fail_on_data_loss:
            raise DataLoss(losses[:NAMED])
        for loss in losses:
            if self.lost < NAMED:
                logger.warning("skipped, for failOnDataLoss=false: %s", loss)
            self.lost += (loss.end or loss.start) - loss.start

    def _lose_units(self, queue: MessageQueue, units: Units, why: str | None = None) -> None:
        for row in range(len(units.base)):
            unit = units.where(slice(row, row + 1))
            base = int(unit.base[0])
            reason = (
                why or self._store.place_problem(queue, unit) or f"{self._where(unit)}: the CRC of the body is wrong"
            )
            self._lose(queue, base, base + int(unit.count[0]), reason)

    def _where(self, unit: Units) -> str:
        physical = int(unit.physical[0])
        index = int(self._store.log.index_of(unit.physical)[0])
        if index < 0:  # The file has been deleted since.
            return f"commit-log position {physical}"
        return place_text(int(self._store.log.starts[index]), physical)

    # --- units to rows

    def _batches(self, queue: MessageQueue, span: Span, units: Units) -> Iterator[RecordBatch]:
        if len(self._codes) and queue.topic != names.SCHEDULE_TOPIC:
            # Inner batches have no tag of their own.
            batched = (units.count > 1) | (units.tags == 0) if self._store.is_batched(queue.topic) else False
            units = units.where(
                np.isin(units.tags, self._codes) | (units.tags <= _EXTENDED) | (units.size <= 0) | batched
            )
        for start, mapped, piece in self._pieces(queue, units):
            yield from self._decoded(queue, span, start, mapped, piece)

    def _pieces(self, queue: MessageQueue, units: Units) -> Iterator[tuple[int, Any, Units]]:
        """Yield the units in pieces of about `BYTES` bytes.

        A piece is ascending, belongs to one commit log file, and is inside the file.
        """
        if not len(units.base):
            return
        log = self._store.log
        if len(log.starts) == 0 or (units.physical >= log.starts[-1]).any():
            self._look_again(units)
        starts = log.starts  # `look` replaces the array, and `index` refers to this one
        index: Ints = np.searchsorted(starts, units.physical, side="right") - 1
        full = np.cumsum(units.size) // BYTES
        ends = units.physical + units.size
        cut = (np.diff(index) != 0) | (np.diff(full) != 0) | (units.physical[1:] < ends[:-1])
        edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(index)]
        for low, high in pairwise(edges):
            piece = units.where(slice(low, high))
            start = int(starts[index[low]]) if index[low] >= 0 else -1
            mapped = log.get(start) if index[low] >= 0 else None
            if mapped is None:
                log.look()
                self._lose_units(queue, piece)
                continue
            # Arrow does not check bounds, so units that reach outside the file must not be passed to it.
            room = len(mapped.raw) - (piece.physical - start)
            fits = (piece.size >= OVERHEAD) & (piece.physical >= start) & (piece.size <= room)
            if not fits.all():
                self._lose_units(queue, piece.where(~fits))
                piece = piece.where(fits)
            if len(piece.base):
                first, last = int(piece.physical[0]) - start, int(piece.physical[-1] + piece.size[-1]) - start
                if last - first <= SPARSE * int(piece.size.sum()):
                    mapped.ready(first, last)
                yield start, mapped, piece

    def _look_again(self, units: Units) -> None:
        """List the files again if units refer to positions after the last known file."""
        log = self._store.log
        last = log.get(int(log.starts[-1])) if len(log.starts) else None
        if last is None or int((units.physical + units.size).max()) > int(log.starts[-1]) + len(last.raw):
            log.look()

    def _decoded(self, queue: MessageQueue, span: Span, start: int, mapped: Any, units: Units) -> Iterator[RecordBatch]:
        if self._compiled is not None:
            named = self._named(queue)
            batch = self._compiled.placed(mapped.data, units.physical - start, units.size, units.base, start, named)
            if batch is not None:
                yield batch
                return
        records, good = self._records(queue, start, mapped, units)
        if not good.all():
            self._lose_units(queue, units.where(~good))
            units = units.where(good)
        if not len(records):
            return
        try:
            batch = self._made(records, span)
        except CorruptRecord as error:
            # A body cannot be unpacked: halve the piece until the record is alone.
            if len(units.base) == 1:
                self._lose_units(queue, units, f"{self._where(units)}: {error}")
                return
            middle = len(units.base) // 2
            for half in (slice(None, middle), slice(middle, None)):
                yield from self._decoded(queue, span, start, mapped, units.where(half))
            return
        if batch.num_rows:
            yield batch

    def _records(self, queue: MessageQueue, start: int, mapped: Any, units: Units) -> tuple[Records, Ints]:
        """Return the records that match their units, and the units of these records."""
        records, good = Records.at(
            mapped.data, units.physical - start, units.size, self._named(queue), self._wanted.rules
        )
        if not good.all():
            records.keep(good)
        rows = np.flatnonzero(good)
        own = (records.fixed("queue_offset") == units.base[rows]) & (records.fixed("queue_id") == queue.queue_id)
        own &= records.fixed("physical_offset") == units.physical[rows]
        own &= arrays.contained(records.topics(), arrays.strings([queue.topic.encode()], pa.binary()))
        if not own.all():
            for row in np.flatnonzero(~own).tolist():
                own[row] = self._further(queue, records.record(row), units.where(slice(rows[row], rows[row] + 1)))
            records.keep(own)
            rows = rows[own]
            if len(rows):
                records.renumber(units.base[rows])
        if self._wanted.verify_crc and len(rows):
            intact = _intact(records)
            if not intact.all():
                records.keep(intact)
                rows = rows[intact]
        good = np.zeros(len(units.base), bool)
        good[rows] = True
        return records, good

    def _named(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the broker's name for rows."""
        return MessageQueue(queue.topic, self._store.broker_name, queue.queue_id)

    def _further(self, queue: MessageQueue, record: memoryview, unit: Units) -> bool:
        """Whether a record whose header contains another queue belongs to this queue as well (store.md §7)."""
        physical = int(unit.physical[0])
        entry = _entry(record, physical)
        place = (queue.topic, queue.queue_id, int(unit.base[0]))
        return entry is not None and place in stored_places(entry.topic, entry.queue_id, entry.properties)

    def _made(self, records: Records, span: Span) -> RecordBatch:
        if records.has_batches:
            parts = b"".join(records.record(row) for row in range(len(records)))
            records = Records(parts, records.queue, records.rules)
            offsets = records.fixed("queue_offset")
            inside = (offsets >= span.start) & (offsets < span.end)
            if not inside.all():
                records.keep(inside)
        if self._wanted.key is not None:
            records.keep(_with_key(records, self._wanted.key))
        return made_of(records, self._wanted.schema, self._wanted.columns, self._tags)


def _entry(record: memoryview, physical: int) -> LogEntry | None:
    # A record in a file is followed by at least the bytes of an end mark. A single record is not, so append them.
    return read_item(memoryview(bytes(record) + bytes(8)), 0, physical, check_crc=False).entry


def _intact(records: Records) -> Ints:
    """Return NumPy booleans: whether the body of each record matches its CRC (store.md §0.1)."""
    bodies = records.stored_bodies()
    content, edges = arrays.content(bodies)
    view, edge = memoryview(content), edges.tolist()
    found = [crc32(view[low:high]) if high > low else -1 for low, high in pairwise(edge)]
    values = np.array(found, np.int64)
    return (values == records.fixed("body_crc")) | (values < 0)


def _with_key(records: Records, key: str) -> Ints:
    """Return NumPy booleans: whether each message has a key."""
    unique = arrays.contained(records.pairs.column(names.UNIQ_KEY), arrays.strings([key.encode()], pa.string()))
    keys = records.pairs.column(names.KEYS)
    candidates = arrays.bits(arrays.function("match_substring")(keys, key))
    for row in np.flatnonzero(candidates).tolist():
        candidates[row] = key in (keys[row].as_py() or "").split(" ")
    return unique | candidates


def read_all(store: StoreFiles, spans: Sequence[Span], wanted: Wanted) -> Iterator[RecordBatch]:
    """Return the rows of several ranges in order. Errors are those of `RowReader.read`."""
    reader = RowReader(store, wanted)
    for span in spans:
        yield from reader.read(span)
