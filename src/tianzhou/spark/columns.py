"""Record bytes to Arrow columns, without a Python step per message beyond finding where each begins.

Pulls bring records one behind the other (wire.md §5). One binary array over the whole buffer whose edges are
start0, end0, start1, end1, … has the wanted spans in its even slots, and one `take` copies them out; headers,
bodies and properties all leave the buffer that way. NumPy reads the fixed fields, and only the columns that
were asked for are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow  # noqa: ICN001 - `pa` is its untyped alias below
import pyarrow.compute

from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.model import MessageQueue, names
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.compression import COMPRESSED, decompress
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.record import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD,
    STORE_HOST_V6,
    decode_record,
    encode_record,
)

INNER_BATCH: Final = 0xC0
BODY_LIMIT: Final = 64 << 20
"""Most bytes a compressed body may unpack to."""

_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")])
_SIZE: Final = Struct(">i")

# The stubs of PyArrow and NumPy know neither each other's arrays nor buffers, so both are untyped in here.
pa: Any = pyarrow
pc: Any = pyarrow.compute
Ints = Any
Array = Any
DataType = Any


def _spans(data: Any, starts: Ints, ends: Ints) -> Array:
    """The bytes from each start to its end, in one copy each; both ascend and do not overlap."""
    count = len(starts)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    every = pa.BinaryArray.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(edges), data])
    return every.take(pa.array(np.arange(0, 2 * count, 2)))


def _fixed(data: Any, starts: Ints, shape: np.dtype[Any]) -> Any:
    """A structured array of one `shape` at each start."""
    _, edges, content = _spans(data, starts, starts + shape.itemsize).buffers()
    del edges
    return np.frombuffer(content or b"", shape, len(starts))


def _text(array: Array) -> Array:
    """Binary as string; bytes that are no UTF-8 become U+FFFD, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        return pa.array(texts, pa.string())


def _times(millis: Ints) -> Array:
    return pa.array(millis.astype(np.int64) * 1000).view(pa.timestamp("us", "UTC"))


class Pairs:
    """The properties of many messages, cut into names and values.

    Malformed and empty pairs vanish, as in `wire.properties.decode_properties`.

    Args:
        strings: one raw property string a message.
    """

    def __init__(self, strings: Array) -> None:
        self._messages = len(strings)
        data, rows = _edges(strings)
        if len(data) and (data[rows[1:][np.diff(rows) > 0] - 1] != 2).any():
            # Old brokers leave the last pair unterminated; an additional empty piece does no harm.
            strings = pc.binary_join_element_wise(strings, b"\x02", b"")
            data, rows = _edges(strings)
        ends = np.flatnonzero(data == 2)
        starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        inner = np.append(np.flatnonzero(data == 1), len(data))
        middles = inner[np.searchsorted(inner, starts)]
        whole = (middles > starts) & (middles + 1 < ends)
        starts, middles, ends = starts[whole], middles[whole], ends[whole]
        self.rows = np.searchsorted(rows, starts, side="right") - 1
        edges = np.empty(4 * len(starts), np.int32)
        for slot, values in enumerate((starts, middles, middles + 1, ends)):
            edges[slot::4] = values
        cut = pa.BinaryArray.from_buffers(
            pa.binary(), max(len(edges) - 1, 0), [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        self.names = cut.take(pa.array(np.arange(0, len(edges), 4)))
        self.values = cut.take(pa.array(np.arange(2, len(edges), 4)))

    def column(self, name: str) -> Array:
        """The value of one property, null where a message has none; the last one wins."""
        hits = np.flatnonzero(pc.equal(self.names, name.encode()).to_numpy(zero_copy_only=False))
        slots = np.full(self._messages, -1)
        slots[self.rows[hits]] = hits
        return _text(self.values.take(pa.array(slots, mask=slots < 0)))

    def maps(self, kind: DataType) -> Array:
        """All properties as one map a message."""
        rows, keys, values = self.rows, self.names, self.values
        encoded = keys.dictionary_encode()
        codes = rows * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        unique, last = np.unique(codes[::-1], return_index=True)
        if len(unique) < len(codes):
            kept = np.sort(len(codes) - 1 - last)
            rows, keys, values = rows[kept], keys.take(pa.array(kept)), values.take(pa.array(kept))
        offsets = np.searchsorted(rows, np.arange(self._messages + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), _text(keys), _text(values), type=kind)


def _edges(strings: Array) -> tuple[Ints, Ints]:
    """Content and row edges of a binary array that starts at the beginning of its buffers."""
    _, edges, content = strings.buffers()
    rows = np.frombuffer(edges, np.int32, len(strings) + 1) if edges is not None else np.zeros(1, np.int32)
    return np.frombuffer(content or b"", np.uint8)[: rows[-1]], rows


class Records:
    """The records of one queue in a buffer, as columns that are made when asked for.

    Args:
        buffer: whole records, one behind the other.
        queue: where they are from; names them in errors.

    Raises:
        CorruptRecord: the bytes are no records.
    """

    def __init__(self, buffer: bytes, queue: MessageQueue) -> None:
        self.queue = queue
        starts = self._walk(buffer)
        self._data = pa.py_buffer(buffer)
        self._head = _fixed(self._data, starts, _HEAD)
        if (self._head["sys_flag"] & INNER_BATCH).any():
            buffer = self._unwrap(buffer, starts)
            self._data = pa.py_buffer(buffer)
            starts = self._walk(buffer)
            self._head = _fixed(self._data, starts, _HEAD)
        self._starts = starts
        self._bytes = np.frombuffer(buffer, np.uint8)
        self._locate()

    def _walk(self, buffer: bytes) -> Ints:
        starts = []
        at, end, read = 0, len(buffer), _SIZE.unpack_from
        while at < end:
            starts.append(at)
            size = read(buffer, at)[0] if end - at >= OVERHEAD else 0
            if size < OVERHEAD:
                raise self._corrupt(len(starts) - 1)
            at += size
        if at != end:
            raise self._corrupt(len(starts) - 1)
        return np.array(starts, np.int64)

    def _unwrap(self, buffer: bytes, starts: Ints) -> bytes:
        """The same messages with every inner batch taken apart into records of its own (wire.md §5)."""
        parts = []
        for start in starts.tolist():
            record = decode_record(buffer, start)
            if not record.sys_flag & INNER_BATCH:
                parts.append(buffer[start : start + record.size])
                continue
            first = record.queue_offset
            body = record.body
            if record.sys_flag & COMPRESSED:
                body = self._unpack(body, record.sys_flag, first)
            try:
                entries = decode_batch(body)
            except ProtocolError as error:
                raise CorruptRecord(f"{self.queue}, offset {first}: {error}") from error
            record.sys_flag &= ~(INNER_BATCH | COMPRESSED)
            for step, (flag, content, properties) in enumerate(entries):
                record.flag, record.body, record.properties = flag, bytes(content), bytes(properties)
                record.queue_offset = first + step
                parts.append(encode_record(record))
        return b"".join(parts)

    def _unpack(self, body: bytes, sys_flag: int, queue_offset: int) -> bytes:
        try:
            return decompress(body, sys_flag, BODY_LIMIT)
        except ProtocolError as error:
            raise CorruptRecord(f"{self.queue}, offset {queue_offset}: {error}") from error

    def _locate(self) -> None:
        """Find the parts of each record, and that they add up."""
        head, starts = self._head, self._starts
        flags = head["sys_flag"].astype(np.int64)
        self._born = starts + _HEAD.itemsize
        self._stored_at = self._born + 8 + 12 * ((flags & BORN_HOST_V6) != 0)
        self._store = self._stored_at + 8
        tail_at = self._store + 8 + 12 * ((flags & STORE_HOST_V6) != 0)
        magic = head["magic"]
        version2 = magic == MAGIC_V2
        ends = starts + head["size"]
        known = (magic == MAGIC_V1) | version2
        if not known.all() or (tail_at + _TAIL.itemsize > ends).any():
            raise self._corrupt(int(np.argmin(known)))
        self._tail = _fixed(self._data, tail_at, _TAIL)
        self._body = tail_at + _TAIL.itemsize
        self._body_end = self._body + self._tail["body_size"]
        topic = self._body_end + 1 + version2
        fits = (self._tail["body_size"] >= 0) & (topic <= ends - 2)
        if not fits.all():
            raise self._corrupt(int(np.argmin(fits)))
        raw = self._bytes
        topic_size = np.where(version2, raw[topic - 2].astype(np.int64) << 8 | raw[topic - 1], raw[topic - 1])
        self._properties = topic + topic_size + 2
        fits = self._properties <= ends
        if not fits.all():
            raise self._corrupt(int(np.argmin(fits)))
        at = self._properties
        fits = at + (raw[at - 2].astype(np.int64) << 8 | raw[at - 1]) == ends
        if not fits.all():
            raise self._corrupt(int(np.argmin(fits)))
        self._ends = ends

    def _corrupt(self, index: int) -> CorruptRecord:
        return CorruptRecord(
            f"record {index} of a pull from {self.queue} is malformed: "
            "its size, its magic or its parts do not fit; the broker's store may be damaged there"
        )

    def __len__(self) -> int:
        return len(self._starts)

    def keep(self, mask: Ints) -> None:
        """Drop the records where `mask` is False; before any column is asked for."""
        for name in ("_starts", "_head", "_tail", "_ends", "_born", "_stored_at", "_store", "_body"):
            setattr(self, name, getattr(self, name)[mask])
        self._body_end, self._properties = self._body_end[mask], self._properties[mask]
        self.__dict__.pop("pairs", None)

    @property
    def queue_offsets(self) -> Ints:
        """Positions in the queue."""
        return self._head["queue_offset"].astype(np.int64)

    @cached_property
    def pairs(self) -> Pairs:
        """The properties."""
        return Pairs(_spans(self._data, self._properties, self._ends))

    def bodies(self) -> Array:
        """The bodies, unpacked.

        Raises:
            CorruptRecord: one cannot be unpacked.
        """
        bodies = _spans(self._data, self._body, self._body_end)
        packed = np.flatnonzero(self._head["sys_flag"] & COMPRESSED)
        if not len(packed):
            return bodies
        flags, offsets = self._head["sys_flag"].tolist(), self._head["queue_offset"].tolist()
        unpacked = pa.array(
            [self._unpack(bodies[row].as_py(), flags[row], offsets[row]) for row in packed.tolist()],
            pa.binary(),
        )
        slots = np.arange(len(self))
        slots[packed] = len(self) + np.arange(len(packed))
        return pa.concat_arrays([bodies, unpacked]).take(pa.array(slots))

    def born_times(self) -> Array:
        """When the producers made them, by their clocks."""
        return _times(self._head["born_timestamp"])

    def store_times(self) -> Array:
        """When the broker stored them."""
        return _times(_fixed(self._data, self._stored_at, np.dtype(">i8")))

    def born_hosts(self) -> Array:
        """Addresses of the producers."""
        return self._hosts(self._born, self._stored_at)

    def store_hosts(self) -> Array:
        """Addresses of the brokers."""
        return self._hosts(self._store, self._body - _TAIL.itemsize)

    def _hosts(self, starts: Ints, ends: Ints) -> Array:
        encoded = _spans(self._data, starts, ends).dictionary_encode()
        texts = [_host(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    def message_ids(self) -> Array:
        """The unique keys; offset ids for messages without one."""
        ids = self.pairs.column(names.UNIQ_KEY)
        if not ids.null_count:
            return ids
        missing = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        hosts = _spans(self._data, self._store[missing], self._body[missing] - _TAIL.itemsize).to_pylist()
        offsets = self._head["physical_offset"][missing].tolist()
        made = [
            offset_msg_id(host[:-4], _SIZE.unpack(host[-4:])[0], offset)
            for host, offset in zip(hosts, offsets, strict=True)
        ]
        return pc.replace_with_mask(ids, ids.is_null(), pa.array(made, pa.string()))

    def reconsume_times(self) -> Ints:
        """How often each was handed back."""
        return self._tail["reconsume_times"]

    def head(self, name: str) -> Ints:
        """A fixed field of the header."""
        return self._head[name]


def _host(value: bytes) -> str:
    return host_text(value[:-4], _SIZE.unpack(value[-4:])[0])


Maker = Callable[[Records, DataType], Any]


def _body(records: Records, kind: DataType) -> Array:
    bodies = records.bodies()
    return _text(bodies) if pa.types.is_string(kind) else bodies


MAKERS: Final[Mapping[str, Maker]] = {
    "topic": lambda records, kind: pa.repeat(records.queue.topic, len(records)),
    "brokerName": lambda records, kind: pa.repeat(records.queue.broker_name, len(records)),
    "queueId": lambda records, kind: pa.repeat(pa.scalar(records.queue.queue_id, kind), len(records)),
    "queueOffset": lambda records, kind: records.queue_offsets,
    "msgId": lambda records, kind: records.message_ids(),
    "tags": lambda records, kind: records.pairs.column(names.TAGS),
    "keys": lambda records, kind: records.pairs.column(names.KEYS),
    "body": _body,
    "properties": lambda records, kind: records.pairs.maps(kind),
    "bornTimestamp": lambda records, kind: records.born_times(),
    "storeTimestamp": lambda records, kind: records.store_times(),
    "bornHost": lambda records, kind: records.born_hosts(),
    "storeHost": lambda records, kind: records.store_hosts(),
    "reconsumeTimes": lambda records, kind: records.reconsume_times().astype(np.int32),
    "sysFlag": lambda records, kind: records.head("sys_flag").astype(np.int32),
    "physicalOffset": lambda records, kind: records.head("physical_offset").astype(np.int64),
}
"""How each column of the row schema is made."""


def to_batch(
    buffer: bytes,
    queue: MessageQueue,
    schema: pyarrow.Schema,
    columns: tuple[str, ...],
    *,
    start: int = 0,
    end: int | None = None,
    tags: frozenset[str] = frozenset(),
) -> pyarrow.RecordBatch:
    """The records of a buffer as one batch.

    Args:
        buffer: what pulls brought: whole records, one behind the other.
        queue: where they are from.
        schema: names and types of the batch.
        columns: the column of the row schema behind each field of `schema`.
        start: first offset wanted; earlier records are dropped.
        end: offset after the last one wanted, None for no bound.
        tags: tags to keep; empty keeps all. Brokers compare hashes only, so the text is compared here.

    Raises:
        CorruptRecord: the bytes are no records, or a body cannot be unpacked.
    """
    records = Records(buffer, queue)
    offsets = records.queue_offsets
    inside = offsets >= start if end is None else (offsets >= start) & (offsets < end)
    if not inside.all():
        records.keep(inside)
    if tags:
        wanted = pc.is_in(records.pairs.column(names.TAGS), pa.array(sorted(tags), pa.string()))
        mask = wanted.to_numpy(zero_copy_only=False)
        if not mask.all():
            records.keep(mask)
    arrays = []
    for name, field in zip(columns, schema, strict=True):
        made = MAKERS[name](records, field.type)
        arrays.append(made if isinstance(made, pa.Array) else pa.array(made, field.type))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
