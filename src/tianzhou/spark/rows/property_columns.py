"""Decoding of the properties of many messages at once (store.md §0.3)."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np

from tianzhou.spark.rows import arrays
from tianzhou.spark.rows.arrays import Array, DataType, Ints, pa

_COUNTED: Final = 8
"""Maximum counters per pair. Above it, names are sorted instead of counted to find duplicates."""


class PropertyColumns:
    """Property strings, split into names and values.

    Malformed and empty pairs are dropped, as in `wire.properties.decode_properties`.

    Args:
        strings: one raw property string per message.
    """

    def __init__(self, strings: Array) -> None:
        self._messages = len(strings)
        raw, rows = arrays.content(strings)
        if len(raw) and (raw[rows[1:][np.diff(rows) > 0] - 1] != 2).any():
            # Old brokers append no separator to the last pair. An additional empty piece has no effect.
            ending, nothing = (arrays.repeated(mark, self._messages, pa.binary()) for mark in (b"\x02", b""))
            joined = arrays.function("binary_join_element_wise")(strings, ending, nothing)
            raw, rows = arrays.content(joined)
        self._raw = raw
        starts, middles, ends = _cut(raw)
        whole = (middles > starts) & (middles + 1 < ends)
        if not whole.all():
            starts, middles, ends = starts[whole], middles[whole], ends[whole]
        self._starts, self._middles, self._ends = starts, middles, ends
        # One search per message is cheaper than one per pair.
        self._first = np.searchsorted(starts, rows)
        self._rows = np.repeat(np.arange(self._messages), np.diff(self._first))

    def column(self, name: str) -> Array:
        """Return the value of one property; null if a message does not have it. The last of several values counts."""
        wanted = name.encode()
        hits = np.flatnonzero(self._lengths == len(wanted))
        for place, letter in enumerate(wanted):
            same = self._raw[self._starts[hits] + place] == letter
            if not same.all():
                hits = hits[same]
        values = arrays.spans(self._data(), self._middles[hits] + 1, self._ends[hits])
        rows = self._rows[hits]
        if len(hits) == self._messages and (rows == np.arange(self._messages)).all():
            return arrays.text(values)
        found = np.full(self._messages, -1)
        found[rows] = np.arange(len(hits))
        return arrays.text(values.take(arrays.slots(found, found >= 0)))

    def maps(self, kind: DataType) -> Array:
        """Return all properties as one map per message."""
        edges = np.empty(4 * len(self._starts), np.int32)
        for slot, values in enumerate((self._starts, self._middles, self._middles + 1, self._ends)):
            edges[slot::4] = values
        pairs, keys = self._distinct(edges)
        every = len(pairs) == len(self._starts)
        offsets = self._first if every else np.searchsorted(self._rows[pairs], np.arange(self._messages + 1))
        return pa.MapArray.from_arrays(
            arrays.integers(offsets.astype(np.int32), pa.int32()),
            arrays.text(keys),
            arrays.text(arrays.cut(self._data(), edges, 4 * pairs + 2)),
            type=kind,
        )

    def _distinct(self, edges: Ints) -> tuple[Ints, Array]:
        """Return the valid pairs and their names.

        If a message has several pairs of one name, only the last is valid.
        """
        every = np.arange(len(self._starts))
        keys = arrays.cut(self._data(), edges, 4 * every)
        known, codes = arrays.encoded(keys)
        codes = self._rows * max(len(known), 1) + codes
        if len(known) * self._messages <= _COUNTED * len(every) and np.bincount(codes, minlength=1).max() <= 1:
            return every, keys
        unique, last = np.unique(codes[::-1], return_index=True)
        if len(unique) == len(codes):
            return every, keys
        pairs = np.sort(len(codes) - 1 - last)
        return pairs, keys.take(arrays.slots(pairs))

    @cached_property
    def _lengths(self) -> Ints:
        return self._middles - self._starts

    def _data(self) -> Any:
        return pa.py_buffer(self._raw)


def _cut(raw: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the start, the first separator of name and value, and the end of each piece of property strings."""
    marks = np.flatnonzero((raw == 1) | (raw == 2))
    middles, ends = marks[0::2], marks[1::2]
    if len(middles) == len(ends) and (raw[middles] == 1).all() and (raw[ends] == 2).all():
        return _begins(ends), middles, ends
    ends = np.flatnonzero(raw == 2)
    starts = _begins(ends)
    inner = np.append(np.flatnonzero(raw == 1), len(raw))
    return starts, inner[np.searchsorted(inner, starts)], ends


def _begins(ends: Ints) -> Ints:
    return np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
