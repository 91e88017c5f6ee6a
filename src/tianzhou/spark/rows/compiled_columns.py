"""Batches of plain records, made in compiled code: a faster way to the same batches as `columns`.

`columns` makes each batch with a record that is not plain (see `_rows`), and all batches where no code was compiled.
The results are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from pyarrow import RecordBatch, Schema

from tianzhou.model import MessageQueue
from tianzhou.spark.rows import _rows, arrays
from tianzhou.spark.rows.arrays import Array, DataType, Ints, pa
from tianzhou.spark.rows.rules import DEFAULT_RULES, RowRules

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_STEP: Final = 1024
_CACHED: Final = 64


class CompiledColumns:
    """A maker of batches of one schema.

    Args:
        schema: names and types of the batches.
        columns: the column of the row schema behind each field.
        tags: tags that rows may have; empty for any. The records were selected by the hash of the tag only.
        rules: rules for values that no row can have. Records with such values are not plain.
    """

    def __init__(
        self,
        schema: Schema,
        columns: tuple[str, ...],
        tags: frozenset[str] = frozenset(),
        rules: RowRules = DEFAULT_RULES,
    ) -> None:
        self._ahead_ms = rules.max_born_ahead_ms
        self._schema = schema
        self._columns = columns
        self._kinds = dict(zip(columns, (field.type for field in schema), strict=True))
        # A body column of type STRING would need a check of each body, so `columns` makes it.
        known = (
            len(self._kinds) == len(columns)
            and self._kinds.get("body") in (None, pa.binary())
            and self._kinds.keys() <= {*_rows.NAMES, *_ALIKE}
        )
        self._fill = _rows.fill if known else None
        self._tags = arrays.strings([tag.encode() for tag in sorted(tags)], pa.string()) if tags else None
        needed = {*columns, "tags"} if tags else set(columns)
        self._made = [name for name in _rows.NAMES if name in needed]
        self._wanted = sum(1 << bit for bit, name in enumerate(_rows.NAMES) if name in needed)

    def walked(
        self, parts: Sequence[bytes | memoryview], queue: MessageQueue, low: int, high: int | None
    ) -> RecordBatch | None:
        """Return the records whose queue offsets are in a range, or None if a record is not plain.

        Args:
            parts: each part holds whole records, back to back.
            queue: the queue of the records.
            low: the first offset.
            high: the offset after the last one, None for no bound.
        """
        if self._fill is None:
            return None
        high = _HIGH if high is None else high
        return self._batch(
            self._fill(parts, None, None, None, 0, 0, b"", low, high, self._wanted, self._ahead_ms), queue
        )

    def placed(
        self, data: Any, starts: Ints, sizes: Ints, offsets: Ints, position: int, queue: MessageQueue
    ) -> RecordBatch | None:
        """Return the records of a mapped file; None if a record is not plain or does not match its unit.

        Args:
            data: the file.
            starts: the beginning of each record in the file, int64 like the next two.
            sizes: size of each record in bytes.
            offsets: queue offset of each record.
            position: commit log offset of the file's beginning.
            queue: the queue of the records.
        """
        if self._fill is None:
            return None
        expected = queue.queue_id, queue.topic.encode(), _LOW, _HIGH
        filled = self._fill(data, starts, sizes, offsets, position, *expected, self._wanted, self._ahead_ms)
        return self._batch(filled, queue)

    def _batch(self, filled: tuple[int, list[Any]] | None, queue: MessageQueue) -> RecordBatch | None:
        if filled is None:
            return None
        count, parts = filled
        made = {
            name: _MAKERS[name](count, self._kinds.get(name, pa.string()), found)
            for name, found in zip(self._made, parts, strict=True)
        }
        if self._tags is not None and not arrays.contained(made["tags"], self._tags).all():
            return None
        for name, make in _ALIKE.items():
            if name in self._kinds:
                made[name] = make(queue, self._kinds[name], -(-count // _STEP) * _STEP).slice(0, count)
        batch: RecordBatch = pa.RecordBatch.from_arrays([made[name] for name in self._columns], schema=self._schema)
        return batch


Maker = Callable[[int, DataType, Any], Array]


def _fixed(count: int, kind: DataType, values: bytes) -> Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])


def _text(count: int, kind: DataType, parts: tuple[bytes, bytes, bytes, int, int]) -> Array:
    edges, content, valid, used, missing = parts
    present = pa.py_buffer(valid) if missing else None
    return pa.Array.from_buffers(kind, count, [present, pa.py_buffer(edges), _upto(content, used)], missing)


def _properties(count: int, kind: DataType, parts: tuple[bytes, int, bytes, bytes, int, bytes, bytes, int]) -> Array:
    edges, pairs, *keys_and_values = parts
    keys, values = (_strings(pairs, *three) for three in (keys_and_values[:3], keys_and_values[3:]))
    return pa.MapArray.from_arrays(_fixed(count + 1, pa.int32(), edges), keys, values, type=kind)


def _strings(count: int, edges: Any, content: Any, used: Any) -> Array:
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), _upto(content, used)])


def _upto(content: bytes, used: int) -> Any:
    return pa.py_buffer(content).slice(0, used)


_MAKERS: Final[Mapping[str, Maker]] = {
    **dict.fromkeys(("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp"), _fixed),
    **dict.fromkeys(("reconsumeTimes", "sysFlag"), _fixed),
    **dict.fromkeys(("msgId", "tags", "keys", "bornHost", "storeHost", "body"), _text),
    "properties": _properties,
}


@lru_cache(_CACHED)
def _repeated(value: str, kind: DataType, count: int) -> Array:
    # The name is empty for a store, whose files do not contain the broker's name.
    return arrays.repeated(value.encode(), count, kind) if value else pa.nulls(count, kind)


@lru_cache(_CACHED)
def _numbers(value: int, kind: DataType, count: int) -> Array:
    return arrays.integers(np.full(count, value, np.int32), kind)


_ALIKE: Final[Mapping[str, Callable[[MessageQueue, DataType, int], Array]]] = {
    "topic": lambda queue, kind, count: _repeated(queue.topic, kind, count),
    "brokerName": lambda queue, kind, count: _repeated(queue.broker_name, kind, count),
    "queueId": lambda queue, kind, count: _numbers(queue.queue_id, kind, count),
}
"""Columns with the same value in all rows of a batch. They are cached, because each batch needs a slice of them."""
