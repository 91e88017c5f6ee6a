"""Record bytes to Arrow columns. The only Python step per message finds where it begins.

A pull returns records back to back (wire.md §5). A binary array over the whole buffer with the edges start0, end0,
start1, end1, … has the wanted spans in its even slots, and one `take` copies them. Headers, bodies and properties are
all copied in this way. NumPy reads the fixed fields. Only the wanted columns are made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property
from typing import Any, Final

import numpy as np
from pyarrow import RecordBatch, Schema

from tianzhou.errors import BodiesTooLarge, CorruptRecord, ProtocolError
from tianzhou.model import MessageQueue, names
from tianzhou.model.timestamps import BORN_TIMESTAMP_MS, STORE_TIMESTAMP_MS, raw_times
from tianzhou.records.codec import decode_record, encode_record, record_edges
from tianzhou.records.layout import (
    BORN_HOST_V6,
    HOST_V6_EXTRA,
    INNER_BATCH_BITS,
    MAGIC_V1,
    MAGIC_V2,
    NUMBER,
    STORE_HOST_V6,
    numpy_type,
)
from tianzhou.repeats import Once
from tianzhou.spark.rows import arrays
from tianzhou.spark.rows.arrays import Array, DataType, Ints, pa
from tianzhou.spark.rows.compiled_columns import CompiledColumns
from tianzhou.spark.rows.makers import MAKERS
from tianzhou.spark.rows.property_columns import PropertyColumns
from tianzhou.spark.rows.rules import DEFAULT_RULES, FAIL, NULL, SKIP, RowRules
from tianzhou.store.queues.multi_dispatch import is_light, offset_in
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.compression import COMPRESSED, decompress
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import encode_properties

_log = logging.getLogger(__name__)
_odd_times_said = Once()

BODY_LIMIT: Final = 64 << 20
"""Maximum size in bytes of one unpacked body."""
BODIES_LIMIT: Final = 64 << 20
"""Maximum total size in bytes of the unpacked bodies of one batch of rows. A batch of one row has no maximum."""

_NO_BODY: Final = b"\0"
"""A body that no codec can unpack."""
_HEAD: Final = numpy_type("size", "born_timestamp")
_TAIL: Final = numpy_type("reconsume_times", "body_size")


class Records:
    """The records of one queue in a buffer, as columns. Each column is made at its first use.

    Args:
        buffer: whole records, back to back.
        queue: the queue of the records, for errors.
        rules: rules for values that no row can have.

    Raises:
        CorruptRecord: the bytes are not records.
    """

    def __init__(self, buffer: bytes, queue: MessageQueue, rules: RowRules = DEFAULT_RULES) -> None:
        self.queue: MessageQueue = queue
        self.rules: RowRules = rules
        self._take(pa.py_buffer(buffer), self._walk(buffer))
        if self.has_batches:
            buffer = self._unwrap(buffer, self._starts)
            self._take(pa.py_buffer(buffer), self._walk(buffer))
        sound = self._locate()
        if not sound.all():
            raise self._corrupt(int(np.argmin(sound)))

    @classmethod
    def at(
        cls, data: Any, starts: Ints, sizes: Ints, queue: MessageQueue, rules: RowRules = DEFAULT_RULES
    ) -> tuple[Records, Ints]:
        """Return records of a larger buffer, such as a mapped file, and NumPy booleans: whether each is well-formed.

        Inner batches are not unpacked. Malformed records must be dropped (`keep`) before any column is made.

        Args:
            data: an Arrow buffer.
            starts: the beginning of each record, ascending.
            sizes: size of each record in bytes: at least `OVERHEAD`, and at most up to the next record or the buffer's
                end.
            queue: the queue of the records.
            rules: see `Records`.
        """
        records = cls.__new__(cls)
        records.queue, records.rules = queue, rules
        records._take(data, starts, sizes)
        return records, records._locate()

    def _take(self, data: Any, starts: Ints, sizes: Ints = None) -> None:
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._starts = starts
        self._head = arrays.structs(data, starts, _HEAD)
        self._ends = starts + (self._head["size"] if sizes is None else sizes)

    @property
    def has_batches(self) -> bool:
        """Whether some records are inner batches."""
        return bool((self._head["sys_flag"] & INNER_BATCH_BITS).any())

    def _walk(self, buffer: bytes) -> Ints:
        edges = record_edges(buffer)
        if edges[-1] != len(buffer):
            # A record that is too long is the last edge. A record with an invalid size is the one after the last edge.
            raise self._corrupt(len(edges) - 1 - (edges[-1] > len(buffer)))
        return np.array(edges[:-1], np.int64)

    def _unwrap(self, buffer: bytes, starts: Ints) -> bytes:
        """Return the same messages with each inner batch unpacked (wire.md §5).

        Each message of a batch becomes a record.
        """
        parts = []
        for start in starts.tolist():
            record = decode_record(buffer, start)
            if not record.sys_flag & INNER_BATCH_BITS:
                parts.append(buffer[start : start + record.size])
                continue
            first = record.queue_offset
            try:
                body = record.body
                if record.sys_flag & COMPRESSED:
                    body = decompress(body, record.sys_flag, BODY_LIMIT)
                entries = decode_batch(body)
            except ProtocolError as error:
                if self.rules.corrupt_bodies == FAIL:
                    raise CorruptRecord(f"{self.queue}, offset {first}: {error}") from error
                # Make one row with a damaged body, because the number of messages in the batch is unknown.
                record.sys_flag = record.sys_flag & ~INNER_BATCH_BITS | COMPRESSED
                record.body = _NO_BODY
                parts.append(encode_record(record))
                continue
            record.sys_flag &= ~(INNER_BATCH_BITS | COMPRESSED)
            for step, (flag, content, properties) in enumerate(entries):
                record.flag, record.body, record.properties = flag, bytes(content), bytes(properties)
                record.queue_offset = first + step
                parts.append(encode_record(record))
        return b"".join(parts)

    def _locate(self) -> Ints:
        """Find the parts of each record, and return NumPy booleans: whether each record is well-formed."""
        head, starts, raw = self._head, self._starts, self._bytes
        flags = head["sys_flag"].astype(np.int64)
        self._born = starts + _HEAD.itemsize
        self._stored_at = self._born + 8 + HOST_V6_EXTRA * ((flags & BORN_HOST_V6) != 0)
        self._store = self._stored_at + 8
        tail_at = self._store + 8 + HOST_V6_EXTRA * ((flags & STORE_HOST_V6) != 0)
        magic = head["magic"]
        version2 = magic == MAGIC_V2
        ends = self._ends
        sound = ((magic == MAGIC_V1) | version2) & (tail_at + _TAIL.itemsize <= ends) & (starts + head["size"] == ends)
        # The parts of malformed records are read at the record's beginning from here on, which is inside the buffer.
        inside = starts + 2
        tail_at = np.where(sound, tail_at, inside)
        self._tail = arrays.structs(self._data, tail_at, _TAIL)
        self._body = tail_at + _TAIL.itemsize
        self._body_end = self._body + self._tail["body_size"]
        self._topic = self._body_end + 1 + version2
        sound &= (self._tail["body_size"] >= 0) & (self._topic <= ends - 2)
        at = np.where(sound, self._topic, inside)
        topic_size = np.where(version2, raw[at - 2].astype(np.int64) << 8 | raw[at - 1], raw[at - 1])
        self._properties = self._topic + topic_size + 2
        sound &= self._properties <= ends
        at = np.where(sound, self._properties, inside)
        sound &= at + (raw[at - 2].astype(np.int64) << 8 | raw[at - 1]) == ends
        return sound

    def _corrupt(self, index: int) -> CorruptRecord:
        return CorruptRecord(
            f"record {index} of a pull from {self.queue} is malformed: "
            "its size, its magic or its parts do not fit; the broker's store may be damaged there"
        )

    def __len__(self) -> int:
        return len(self._starts)

    def keep(self, mask: Ints) -> None:
        """Drop the records where `mask` is False. Must be called before any column is made."""
        for name in ("_starts", "_head", "_tail", "_ends", "_born", "_stored_at", "_store", "_body", "_body_end",
                     "_topic", "_properties"):  # fmt: skip
            setattr(self, name, getattr(self, name)[mask])
        for name in ("pairs", "odd_times", "bodies"):
            self.__dict__.pop(name, None)

    def halves(self) -> tuple[Records, Records]:
        """Return the first and the second half of the records, which share one buffer."""
        middle = len(self) // 2
        before = np.arange(len(self)) < middle
        first, second = copy(self), copy(self)
        first.keep(before)
        second.keep(~before)
        return first, second

    def renumber(self, offsets: Ints) -> None:
        """Replace the queue offsets of the records, for records that are read from a further queue (store.md §7)."""
        head = self._head.copy()
        head["queue_offset"] = offsets
        self._head = head

    def light_offsets(self) -> Ints:
        """Return the offsets of the records in the light queue. Their headers contain the offsets in the main topic.

        Raises:
            CorruptRecord: a record has no offset in the light queue.
        """
        found = [offset_in(self.queue.topic, raw) for raw in self.pairs_as_stored().to_pylist()]
        if None in found:
            row = found.index(None)
            raise CorruptRecord(
                f"record {row} of a pull from {self.queue}, at physical offset {self._head['physical_offset'][row]}, "
                f"does not say its offset there ({names.INNER_MULTI_QUEUE_OFFSET})"
            )
        return np.array(found, np.int64)

    def pairs_as_stored(self) -> Array:
        """Return the property strings, as binary."""
        return arrays.spans(self._data, self._properties, self._ends)

    def topics(self) -> Array:
        """Return the topics in the records, as binary."""
        return arrays.spans(self._data, self._topic, self._properties - 2)

    def stored_bodies(self) -> Array:
        """Return the bodies as they are stored. The CRC covers these bytes."""
        return arrays.spans(self._data, self._body, self._body_end)

    def record(self, row: int) -> memoryview:
        """Return one record's bytes."""
        return memoryview(self._data).cast("B")[int(self._starts[row]) : int(self._ends[row])]

    def store_stamps(self) -> Ints:
        """Return the broker's store times in ms, as NumPy array."""
        return arrays.structs(self._data, self._stored_at, np.dtype(">i8")).astype(np.int64)

    @cached_property
    def pairs(self) -> PropertyColumns:
        """The properties of the records."""
        return PropertyColumns(self.pairs_as_stored())

    def born_times(self) -> Array:
        """Return the producers' times; null for times that are no dates or too far ahead of the brokers' times."""
        self.odd_times  # noqa: B018 - logs them
        return arrays.times(self.fixed("born_timestamp"), self._born_dates())

    def _born_dates(self) -> Ints:
        born, stored = self.fixed("born_timestamp"), self.store_stamps()
        return arrays.are_born_dates(born, stored, self.rules.max_born_ahead_ms)

    @cached_property
    def odd_times(self) -> Ints:
        """Rows of messages with a time that is null. The first batch of a queue with such rows logs a warning."""
        born, stored = self.fixed("born_timestamp"), self.store_stamps()
        odd = np.flatnonzero(~(self._born_dates() & arrays.are_dates(stored)))
        if len(odd) and _odd_times_said.first(self.queue):
            first = int(odd[0])
            _log.warning(
                "%s, offset %d: bornTimestamp=%d and storeTimestamp=%d are not both in the years 1 to 9999, or the "
                "former is later by more than maxBornAhead=%dms, as of %d messages of this batch; such a time is null "
                "in rows, and its number is in properties as %s or %s; set the clock of the producer (bornHost) or of "
                "the broker (storeHost); this is logged once for each queue in a process",
                self.queue, int(self.fixed("queue_offset")[first]), int(born[first]), int(stored[first]),
                self.rules.max_born_ahead_ms, len(odd), BORN_TIMESTAMP_MS, STORE_TIMESTAMP_MS,
            )  # fmt: skip
        return odd

    def properties(self, kind: DataType) -> Array:
        """Return all properties as one map per message, with the numbers of times that are no dates."""
        odd = self.odd_times
        if not len(odd):
            return self.pairs.maps(kind)
        born, stored, strings = self.fixed("born_timestamp"), self.store_stamps(), self.pairs_as_stored()
        ahead = self.rules.max_born_ahead_ms
        longer = [
            # Old brokers append no separator to the last pair. An additional empty pair has no effect.
            strings[row].as_py() + b"\x02" + encode_properties(raw_times(int(born[row]), int(stored[row]), ahead))
            for row in odd.tolist()
        ]
        return PropertyColumns(arrays.replaced(strings, odd, arrays.strings(longer, pa.binary()))).maps(kind)

    @cached_property
    def bodies(self) -> Array:
        """The unpacked bodies. A corrupt body is null, unless the rules make it an error.

        Raises:
            CorruptRecord: a body cannot be unpacked, and `corrupt_bodies` is FAIL.
            BodiesTooLarge: the unpacked bodies of several messages exceed `BODIES_LIMIT`.
        """
        bodies = self.stored_bodies()
        packed = np.flatnonzero(self._head["sys_flag"] & COMPRESSED)
        if not len(packed):
            return bodies
        flags, offsets = self._head["sys_flag"].tolist(), self._head["queue_offset"].tolist()
        unpacked: list[bytes | None] = []
        failures: list[str] = []
        room_bytes = BODIES_LIMIT
        for row in packed.tolist():
            try:
                body = decompress(bodies[row].as_py(), flags[row], BODY_LIMIT)
            except ProtocolError as error:
                failures.append(f"{self.queue}, offset {offsets[row]}: {error}")
                if self.rules.corrupt_bodies == FAIL:
                    raise CorruptRecord(failures[0]) from error
                unpacked.append(None)
                continue
            unpacked.append(body)
            room_bytes -= len(body)
            if room_bytes < 0 and len(self) > 1:
                raise BodiesTooLarge(
                    f"{self.queue}: the bodies of {len(self)} messages from offset {offsets[0]} on unpack to more than "
                    f"{BODIES_LIMIT} bytes"
                )
        if failures:
            _log.warning(
                "%s. corruptBodies=%s: %d of %d bodies of this batch cannot be unpacked and are %s",
                failures[0], self.rules.corrupt_bodies, len(failures), len(self),
                "null" if self.rules.corrupt_bodies == NULL else "left out with their rows",
            )  # fmt: skip
        return arrays.replaced(bodies, packed, arrays.optional_strings(unpacked, pa.binary()))

    def skip_corrupt(self) -> None:
        """Drop the records whose bodies cannot be unpacked. Must be called before any other column is made.

        Raises:
            BodiesTooLarge: see `bodies`.
        """
        bodies = self.bodies
        if bodies.null_count:
            rows = np.flatnonzero(arrays.present(bodies))
            self.keep(arrays.present(bodies))
            self.__dict__["bodies"] = bodies.take(arrays.slots(rows))

    def store_times(self) -> Array:
        """Return the broker's store times of the messages; null for times that are no dates."""
        self.odd_times  # noqa: B018 - logs them
        return arrays.times(self.store_stamps())

    def born_hosts(self) -> Array:
        """Return the addresses of the producers."""
        return self._hosts(self._born, self._stored_at)

    def store_hosts(self) -> Array:
        """Return the addresses of the brokers."""
        return self._hosts(self._store, self._body - _TAIL.itemsize)

    def _hosts(self, starts: Ints, ends: Ints) -> Array:
        distinct, rows = arrays.encoded(arrays.spans(self._data, starts, ends))
        texts = [host_text(*_host(value)).encode() for value in distinct.to_pylist()]
        return arrays.strings(texts, pa.string()).take(arrays.slots(rows))

    def message_ids(self) -> Array:
        """Return the unique keys, and offset ids for messages without a unique key."""
        ids = self.pairs.column(names.UNIQ_KEY)
        if not ids.null_count:
            return ids
        missing = np.array([row for row, value in enumerate(ids.to_pylist()) if value is None])
        hosts = arrays.spans(self._data, self._store[missing], self._body[missing] - _TAIL.itemsize)
        offsets = self._head["physical_offset"][missing].tolist()
        made = [
            offset_msg_id(*_host(host), offset).encode()
            for host, offset in zip(hosts.to_pylist(), offsets, strict=True)
        ]
        return arrays.replaced(ids, missing, arrays.strings(made, pa.string()))

    def fixed(self, name: str) -> Ints:
        """Return a fixed-width field, as NumPy array in the machine's byte order."""
        values = self._tail[name] if name in (_TAIL.names or ()) else self._head[name]
        return values.astype(values.dtype.newbyteorder("="))


def _host(value: bytes) -> tuple[bytes, int]:
    return value[:-4], NUMBER.unpack(value[-4:])[0]


def to_batch(
    buffer: bytes | list[bytes | memoryview],
    queue: MessageQueue,
    schema: Schema,
    columns: tuple[str, ...],
    *,
    start: int = 0,
    end: int | None = None,
    tags: frozenset[str] = frozenset(),
    compiled: CompiledColumns | None = None,
    rules: RowRules = DEFAULT_RULES,
) -> RecordBatch:
    """Return the records of a buffer as one batch.

    Args:
        buffer: whole records from pulls, back to back, in one piece or several.
        queue: the queue of the records.
        schema: names and types of the batch.
        columns: the column of the row schema behind each field of `schema`.
        start: first offset wanted; earlier records are dropped.
        end: offset after the last one wanted, None for no bound.
        tags: tags to keep; empty keeps all. Brokers compare hashes only, so the text is compared here.
        compiled: makes batches of plain records, for the same schema, tags and rules; None makes all batches in this
            module.
        rules: rules for values that no row can have.

    Raises:
        CorruptRecord: the bytes are not records, or a body cannot be unpacked and `rules` make that an error.
        BodiesTooLarge: the unpacked bodies exceed `BODIES_LIMIT`; `to_batches` returns several batches instead.
    """
    if compiled is not None and not is_light(queue.topic):
        made = compiled.walked(buffer if isinstance(buffer, list) else [buffer], queue, start, end)
        if made is not None:
            return made
    return made_of(_within(buffer, queue, start, end, rules), schema, columns, tags)


def _within(
    buffer: bytes | list[bytes | memoryview], queue: MessageQueue, start: int, end: int | None, rules: RowRules
) -> Records:
    """Return the records of a buffer whose offsets are in a range."""
    records = Records(b"".join(buffer) if isinstance(buffer, list) else buffer, queue, rules)
    if is_light(queue.topic):
        records.renumber(records.light_offsets())
    offsets = records.fixed("queue_offset")
    inside = offsets >= start if end is None else (offsets >= start) & (offsets < end)
    if not inside.all():
        records.keep(inside)
    return records


def to_batches(
    buffer: bytes | list[bytes | memoryview],
    queue: MessageQueue,
    schema: Schema,
    columns: tuple[str, ...],
    *,
    start: int = 0,
    end: int | None = None,
    tags: frozenset[str] = frozenset(),
    compiled: CompiledColumns | None = None,
    rules: RowRules = DEFAULT_RULES,
) -> Iterable[RecordBatch]:
    """Return the records of a buffer as one batch, or as several when the unpacked bodies exceed `BODIES_LIMIT`.

    Arguments and errors are those of `to_batch`, except `BodiesTooLarge`. The buffer is not read after the return.
    """
    try:
        batch = to_batch(
            buffer, queue, schema, columns, start=start, end=end, tags=tags, compiled=compiled, rules=rules
        )
    except BodiesTooLarge:
        return _in_parts(_within(buffer, queue, start, end, rules), schema, columns, tags)
    return (batch,)


def _in_parts(
    records: Records, schema: Schema, columns: tuple[str, ...], tags: frozenset[str]
) -> Iterator[RecordBatch]:
    try:
        batch = made_of(records, schema, columns, tags)
    except BodiesTooLarge:
        for half in records.halves():
            yield from _in_parts(half, schema, columns, tags)
    else:
        yield batch


def made_of(
    records: Records, schema: Schema, columns: tuple[str, ...], tags: frozenset[str] = frozenset()
) -> RecordBatch:
    """Return records as one batch. Arguments and errors are those of `to_batch`."""
    if tags:
        wanted = arrays.strings([tag.encode() for tag in sorted(tags)], pa.string())
        matching = arrays.contained(records.pairs.column(names.TAGS), wanted)
        if not matching.all():
            records.keep(matching)
    if records.rules.corrupt_bodies == SKIP and "body" in columns:
        records.skip_corrupt()
    made = [MAKERS[name](records, field.type) for name, field in zip(columns, schema, strict=True)]
    batch: RecordBatch = pa.RecordBatch.from_arrays(made, schema=schema)
    return batch
