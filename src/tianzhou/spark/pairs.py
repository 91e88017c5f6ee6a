"""The properties of many messages at once (store.md §0.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tianzhou.spark import arrays
from tianzhou.spark.arrays import Array, DataType, Ints, pa, pc


class Pairs:
    """Property strings cut into names and values.

    Malformed and empty pairs vanish, as in `wire.properties.decode_properties`.

    Args:
        strings: one raw property string a message.
    """

    def __init__(self, strings: Array) -> None:
        self._messages = len(strings)
        raw, rows = arrays.content(strings)
        if len(raw) and (raw[rows[1:][np.diff(rows) > 0] - 1] != 2).any():
            # Old brokers leave the last pair unterminated; an additional empty piece does no harm.
            ending, nothing = (arrays.repeated(mark, self._messages, pa.binary()) for mark in (b"\x02", b""))
            raw, rows = arrays.content(pc.binary_join_element_wise(strings, ending, nothing))
        ends = np.flatnonzero(raw == 2)
        starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        inner = np.append(np.flatnonzero(raw == 1), len(raw))
        middles = inner[np.searchsorted(inner, starts)]
        whole = (middles > starts) & (middles + 1 < ends)
        self._raw = raw
        self._starts, self._middles, self._ends = starts[whole], middles[whole], ends[whole]
        self._rows = np.searchsorted(rows, self._starts, side="right") - 1

    def column(self, name: str) -> Array:
        """The value of one property, null where a message has none; the last one wins."""
        wanted = np.frombuffer(name.encode(), np.uint8)
        hits = np.flatnonzero(self._middles - self._starts == len(wanted))
        letters = self._raw[self._starts[hits][:, None] + np.arange(len(wanted))]
        hits = hits[(letters == wanted).all(axis=1)]
        found = np.full(self._messages, -1)
        found[self._rows[hits]] = np.arange(len(hits))
        values = arrays.spans(self._data(), self._middles[hits] + 1, self._ends[hits])
        if len(hits) == self._messages and (found >= 0).all():
            return arrays.text(values)
        return arrays.text(values.take(arrays.slots(found, found >= 0)))

    def maps(self, kind: DataType) -> Array:
        """All properties as one map a message."""
        edges = np.empty(4 * len(self._starts), np.int32)
        for slot, values in enumerate((self._starts, self._middles, self._middles + 1, self._ends)):
            edges[slot::4] = values
        kept, keys = self._distinct(edges)
        offsets = np.searchsorted(self._rows[kept], np.arange(self._messages + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(
            arrays.integers(offsets, pa.int32()),
            arrays.text(keys),
            arrays.text(arrays.cut(self._data(), edges, 4 * kept + 2)),
            type=kind,
        )

    def _distinct(self, edges: Ints) -> tuple[Ints, Array]:
        """The pairs that count, and their names: of several with one name in a message only the last."""
        every = np.arange(len(self._starts))
        keys = arrays.cut(self._data(), edges, 4 * every)
        known, codes = arrays.encoded(keys)
        codes = self._rows * max(len(known), 1) + codes
        unique, last = np.unique(codes[::-1], return_index=True)
        if len(unique) == len(codes):
            return every, keys
        kept = np.sort(len(codes) - 1 - last)
        return kept, keys.take(arrays.slots(kept))

    def _data(self) -> Any:
        return pa.py_buffer(self._raw)
