"""Arrow arrays from NumPy arrays and from spans of a buffer, made from their buffers alone.

`pyarrow.array`, `scalar`, `repeat` and `to_numpy` import pandas at their first use, which takes a second in every new
Spark worker. This module calls none of them. It imports `pyarrow.compute` at the first array that needs it, because a
process that only plans a read makes no array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow  # noqa: ICN001 - `pa` is its untyped alias below

from tianzhou.model.timestamps import MAX_TIME_MS, MIN_TIME_MS

# The stubs of PyArrow do not know NumPy's arrays, nor NumPy's stubs PyArrow's buffers, so both are untyped here.
pa: Any = pyarrow
Ints = Any
Array = Any
DataType = Any


def function(name: str) -> Any:
    """Return a function of `pyarrow.compute` by name."""
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def integers(values: Ints, kind: DataType, valid: Ints = None) -> Array:
    """Return a fixed-width array over NumPy values of the same width; null where `valid` is False."""
    present = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(np.ascontiguousarray(values))])


def slots(values: Ints, valid: Ints = None) -> Array:
    """Return indices for `take`; null where `valid` is False."""
    return integers(values.astype(np.int64, copy=False), pa.int64(), valid)


def strings(values: Sequence[bytes], kind: DataType) -> Array:
    """Return a string or binary array of a few values."""
    edges = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=edges[1:])
    content = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(edges), content])


def optional_strings(values: Sequence[bytes | None], kind: DataType) -> Array:
    """Return a string or binary array of a few values, None as null."""
    if None not in values:
        return strings([value or b"" for value in values], kind)
    valid = np.array([value is not None for value in values])
    return strings([value or b"" for value in values], kind).take(slots(np.arange(len(values)), valid))


def repeated(value: bytes, count: int, kind: DataType) -> Array:
    """Return a string or binary array of one value, repeated `count` times."""
    return strings([value], kind).take(slots(np.zeros(count, np.int64)))


def replaced(array: Array, rows: Ints, values: Array) -> Array:
    """Return `array` with the values in some rows replaced."""
    chosen = np.arange(len(array))
    chosen[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, values]).take(slots(chosen))


def cut(data: Any, edges: Ints, wanted: Ints) -> Array:
    """Return chosen pieces of a buffer that is cut at ascending edges. Each piece is copied once."""
    pieces = [None, pa.py_buffer(edges.astype(np.int32, copy=False)), data]
    every = pa.Array.from_buffers(pa.binary(), max(len(edges) - 1, 0), pieces)
    return every.take(slots(wanted))


def spans(data: Any, starts: Ints, ends: Ints) -> Array:
    """Return the bytes of a buffer from each start to its end, as binary. The spans ascend and do not overlap."""
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2], edges[1::2] = starts, ends
    return cut(data, edges, np.arange(0, 2 * len(starts), 2))


def structs(data: Any, starts: Ints, shape: np.dtype[Any]) -> Any:
    """Return a NumPy array of values of one `shape`, read at each start."""
    content = spans(data, starts, starts + shape.itemsize).buffers()[2]
    return np.frombuffer(content or b"", shape, len(starts))


def content(array: Array) -> tuple[Ints, Ints]:
    """Return the bytes and the edges of a binary array whose buffers have no offset."""
    _, edges, data = array.buffers()
    rows = np.frombuffer(edges, np.int32, len(array) + 1) if edges is not None else np.zeros(1, np.int32)
    return np.frombuffer(data or b"", np.uint8)[: rows[-1]], rows


def encoded(array: Array) -> tuple[Array, Ints]:
    """Return the distinct values of an array without nulls, and the index of each row's value among them."""
    dictionary = array.dictionary_encode()
    indices = np.frombuffer(dictionary.indices.buffers()[1] or b"", np.int32, len(array))
    return dictionary.dictionary, indices


def contained(array: Array, values: Array) -> Ints:
    """Return NumPy booleans: whether each row has one of the values. A null has none."""
    return bits(function("is_in")(array, values))


def present(array: Array) -> Ints:
    """Return NumPy booleans: whether each value is not null. The array's buffers must have no offset."""
    valid = array.buffers()[0]
    if valid is None:
        return np.ones(len(array), bool)
    return np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[: len(array)].astype(bool)


def bits(array: Array) -> Ints:
    """Return a boolean array as NumPy booleans; null is False. The array's buffers must have no offset."""
    valid, values = (np.frombuffer(buffer or b"", np.uint8) for buffer in array.buffers())
    found = np.unpackbits(values, bitorder="little")[: len(array)].astype(bool)
    return found & np.unpackbits(valid, bitorder="little")[: len(array)].astype(bool) if len(valid) else found


def text(array: Array) -> Array:
    """Return a binary array as strings. Invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        values = [value and value.decode("utf-8", "replace").encode() for value in array.to_pylist()]
        return optional_strings(values, pa.string())


def are_dates(millis: Ints) -> Ints:
    """Return NumPy booleans: whether each time in ms since the epoch is in the years 1 to 9999 of every time zone."""
    return (millis >= MIN_TIME_MS) & (millis <= MAX_TIME_MS)


def are_born_dates(born: Ints, stored: Ints, max_ahead_ms: int) -> Ints:
    """Return NumPy booleans of `tianzhou.model.timestamps.is_born_date` for times in ms since the epoch."""
    dates, bounds = are_dates(born), are_dates(stored)
    ahead = np.where(dates & bounds, born, 0) - np.where(dates & bounds, stored, 0)
    return dates & (ahead <= max_ahead_ms)


def times(millis: Ints, valid: Ints = None) -> Array:
    """Return milliseconds since the epoch as Spark's TIMESTAMP; null where `valid` is False.

    Without `valid`, times outside the years 1 to 9999 are null.
    """
    millis = millis.astype(np.int64)
    valid = are_dates(millis) if valid is None else valid
    if valid.all():
        return integers(millis * 1000, pa.timestamp("us", "UTC"))
    return integers(np.where(valid, millis, 0) * 1000, pa.timestamp("us", "UTC"), valid)


def same_time(at_ms: int | None, count: int) -> Array:
    """Return one time in ms since the epoch as Spark's TIMESTAMP, `count` times; nulls for None."""
    if at_ms is None:
        return integers(np.zeros(count, np.int64), pa.timestamp("us", "UTC"), np.zeros(count, bool))
    return times(np.full(count, at_ms, np.int64))
