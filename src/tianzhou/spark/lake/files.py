"""Rows to Parquet files that nobody sees yet: what the tasks of a write do."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from tianzhou.spark.lake.tables import LakeError

ROW_GROUP_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written file.

    Attributes:
        path: below the table's location, with `/`.
        rows: how many.
        size: bytes.
        stats: Delta's statistics as JSON: rows, nulls, least and greatest of whole numbers.
    """

    path: str
    rows: int
    size: int
    stats: str


def filesystem(location: str) -> tuple[Any, str]:
    """A file system of PyArrow, and the path in it, for a folder or URI."""
    if "://" in location:
        found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(location)
        return found
    return pyarrow.fs.LocalFileSystem(), str(Path(location).absolute())


def write_files(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    location: str,
    prefix: str,
    compression: str,
    target_bytes: int,
) -> list[NewFile]:
    """Write batches to as many files as they need; none for no rows.

    Every file gets a name of its own, so that two attempts at the same task never meet. What is under way when an
    error comes is removed.

    Args:
        batches: the rows.
        schema: of the files.
        location: folder or URI of the table.
        prefix: how the files' paths below it begin.
        compression: see `options.COMPRESSIONS`.
        target_bytes: a file that has become so large is followed by another.
    """
    system, root = filesystem(location)
    written: list[NewFile] = []
    current: _File | None = None
    try:
        for batch in _of_size(batches):
            if current is None:
                current = _File(system, root, f"{prefix}-{uuid.uuid4().hex}.parquet", schema, compression)
            current.add(batch)
            if current.size >= target_bytes:
                written.append(current.close())
                current = None
        if current is not None:
            written.append(current.close())
    except BaseException:
        if current is not None:
            current.drop()
        remove_files(location, [file.path for file in written])
        raise
    return written


def _of_size(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined until they make a row group."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


class _File:
    def __init__(self, system: Any, root: str, path: str, schema: pa.Schema, compression: str) -> None:
        self._system, self._path = system, path
        self._full = f"{root}/{path}"
        self._schema = schema
        system.create_dir(self._full.rpartition("/")[0], recursive=True)
        self._sink = system.open_output_stream(self._full)
        self._writer = pq.ParquetWriter(self._sink, schema, compression=cast("Any", compression), version="2.6")
        self._rows = 0

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, table: pa.Table) -> None:
        for field in self._schema:
            if not field.nullable and field.name in table.column_names and table.column(field.name).null_count:
                raise LakeError(
                    f"column {field.name}: a row has null, which the table does not let it be; fill it in, as by "
                    "coalesce, or leave the row out"
                )
        self._writer.write_table(table.cast(self._schema), row_group_size=len(table))
        self._rows += len(table)

    def close(self) -> NewFile:
        self._writer.close()
        self._sink.close()
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            _sync(self._full)
        info = self._system.get_file_info(self._full)
        stats = json.dumps(_stats(pq.read_metadata(self._full, filesystem=self._system)))
        return NewFile(self._path, self._rows, info.size, stats)

    def drop(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):  # it would do so later, into a file that is gone
            self._writer.close()
        self._sink.close()
        self._system.delete_file(self._full)


def _sync(path: str) -> None:
    """Bring a file to the disk: a commit must not speak of what a power failure takes away."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _stats(metadata: Any) -> dict[str, Any]:
    """What Delta keeps about a file, so that readers can pass it over."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name, stats = column.path_in_schema, column.statistics
            if "." in name or stats is None or not stats.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + stats.null_count
            if stats.has_min_max and isinstance(stats.min, int) and column.physical_type in {"INT32", "INT64"}:
                low[name] = min(low.get(name, stats.min), stats.min)
                high[name] = max(high.get(name, stats.max), stats.max)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def remove_files(location: str, paths: Iterable[str]) -> None:
    """Remove files that no commit speaks of; those that are gone already do not matter."""
    system, root = filesystem(location)
    for path in paths:
        try:
            system.delete_file(f"{root}/{path}")
        except FileNotFoundError:
            continue
