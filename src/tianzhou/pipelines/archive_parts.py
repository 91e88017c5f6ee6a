"""Rows to the Parquet files of an archive, as Spark names and types them.

Memory: `WAITING_BYTES` of rows wait to be written, and one batch of the source comes on top; `OPEN` files are open.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.pipelines.archive_folders import sync_folder
from tianzhou.pipelines.archive_log import partition
from tianzhou.spark.rows.whole_row import WHOLE_ROW

WAITING_BYTES: Final = 32 << 20
"""Bytes of rows in memory from which on they are written, a row group of each file."""
OPEN: Final = 64
"""Files that are written together; a topic of many days is cut into more."""
ROWS: Final = pa.schema([column for column in WHOLE_ROW if column.name != "topic"])
"""What the files hold; topic and day are in the names of their folders."""
DIFFERENT: Final = frozenset({"body", "msgId", "queueOffset", "physicalOffset"})
"""Columns of which hardly two messages share a value: a dictionary would be for nothing."""

_DICTIONARIES: Final = [
    path
    for name in ROWS.names
    if name not in DIFFERENT
    for path in (("properties.key_value.key", "properties.key_value.value") if name == "properties" else (name,))
]
_DAY_US: Final = 86_400_000_000
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The day of rows whose storeTimestamp is null: Spark's name for the folder of null values."""
_NO_DAY_NUMBER: Final = -(1 << 62)
_ParquetWriter: Any = pq.ParquetWriter  # its stubs know fewer arguments


def days(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Return the rows of a batch by the UTC day of their store time, in runs of neighbouring rows.

    Args:
        batch: with the column `storeTimestamp`.

    Returns:
        Days and rows; `NO_DAY` for rows whose time is null.
    """
    column: Any = batch.column("storeTimestamp")
    values = np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8) // _DAY_US
    if column.null_count:
        values = np.where(column.is_valid().to_numpy(zero_copy_only=False), values, _NO_DAY_NUMBER)
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for first, last in itertools.pairwise(edges):
        day = int(values[first])
        name = NO_DAY if day == _NO_DAY_NUMBER else str(np.datetime64(day, "D"))
        yield name, batch.slice(first, last - first)


def body_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of the bodies of a batch.

    Args:
        batch: with the column `body`.
    """
    column: Any = batch.column("body")
    edges = np.frombuffer(column.buffers()[1] or b"\0" * 4, np.int32)
    return int(edges[column.offset + len(column)] - edges[column.offset])


@dataclass
class _Part:
    draft: Path
    place: Path
    writer: Any
    waiting: list[pa.RecordBatch] = field(default_factory=list)

    def write(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting.clear()

    def close(self) -> None:
        self.write()
        self.writer.close()
        with self.draft.open("rb+") as file:
            os.fsync(file.fileno())


class PartFiles:
    """The files of one micro-batch.

    Args:
        to: the folder of the table.
        drafts: where they are written; on the same disk.
    """

    def __init__(self, to: Path, drafts: Path) -> None:
        self._to, self._drafts = to, drafts
        self._open: dict[str, _Part] = {}
        self._complete: list[_Part] = []
        self._waiting = 0

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        """Take rows of a topic.

        Args:
            topic: the topic.
            batch: of the schema `ROWS`.
        """
        for day, rows in days(batch):
            part = self._part(partition(topic, day))
            part.waiting.append(rows)
        self._waiting += batch.nbytes
        if self._waiting >= WAITING_BYTES:
            for part in self._open.values():
                part.write()
            self._waiting = 0

    def _part(self, folder: str) -> _Part:
        part = self._open.pop(folder, None)
        if part is None:
            if len(self._open) >= OPEN:
                self._close(next(iter(self._open)))
            name = f"part-{len(self._complete) + len(self._open):05d}-{uuid.uuid4()}.c000.snappy.parquet"
            self._drafts.mkdir(parents=True, exist_ok=True)
            draft = self._drafts / name
            writer = _ParquetWriter(draft, ROWS, compression="snappy", use_dictionary=_DICTIONARIES, store_schema=False)
            part = _Part(draft, self._to / folder / name, writer)
        self._open[folder] = part  # those that are longest without rows come first
        return part

    def _close(self, folder: str) -> None:
        part = self._open.pop(folder)
        part.close()
        self._complete.append(part)

    def finish(self) -> list[Path]:
        """Write what is left and put the files in their places; returns these, on the disk with their names."""
        for folder in list(self._open):
            self._close(folder)
        places = {part.place.parent for part in self._complete}
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        for part in self._complete:
            part.draft.rename(part.place)
        for place in places | {place.parent for place in places} | {self._to}:
            sync_folder(place)
        return [part.place for part in self._complete]
