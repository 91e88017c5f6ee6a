"""Rows to Parquet files that nobody sees yet: what the tasks of a write do."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from tianzhou.spark.lake.tables import LakeError

if TYPE_CHECKING:
    from tianzhou.spark.lake.partitions import Division, Values

MOST_OPEN: Final = 64
"""Maximum partitions whose files a task writes at the same time; with one more the largest is closed."""
ROW_GROUP_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written file.

    Attributes:
        path: below the table's location, with `/`.
        rows: how many.
        size: bytes.
        stats: Delta's statistics as JSON: rows, nulls, least and greatest of whole numbers.
        values: what its rows have in common, by what the table is partitioned by.
    """

    path: str
    rows: int
    size: int
    stats: str
    values: Mapping[str, str | None] = field(default_factory=dict)


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
    division: Division | None = None,
) -> list[NewFile]:
    """Write batches to as many files as they need; none for no rows.

    Every file gets a name of its own, so that two attempts at the same task never meet. What is under way when an
    error comes is removed.

    Args:
        batches: the rows.
        schema: of the rows.
        location: folder or URI of the table.
        prefix: how the files' paths below it begin.
        compression: see `options.COMPRESSIONS`.
        target_bytes: a file that has become so large is followed by another.
        division: how rows are divided; None when the table is not partitioned.

    Raises:
        LakeError: a row has what the table does not let be.
    """
    system, root = filesystem(location)
    held = schema if division is None else division.of_files(schema)
    written: list[NewFile] = []
    under_way: dict[Values, _File] = {}
    try:
        for table in _of_size(batches):
            _check_nulls(table, schema)
            for values, rows in [((), table)] if division is None else division.split(table):
                if values not in under_way:
                    if len(under_way) >= MOST_OPEN:
                        largest = max(under_way, key=lambda one: under_way[one].size)
                        written.append(under_way[largest].close())
                        del under_way[largest]
                    path, common = _path(prefix, division, values)
                    under_way[values] = _File(system, root, path, held, compression, common)
                under_way[values].add(rows)
                if under_way[values].size >= target_bytes:
                    written.append(under_way[values].close())
                    del under_way[values]
        while under_way:
            values, current = next(iter(under_way.items()))
            written.append(current.close())
            del under_way[values]
    except BaseException:
        for current in under_way.values():
            current.drop()
        remove_files(location, [file.path for file in written])
        raise
    return written


def _path(prefix: str, division: Division | None, values: Values) -> tuple[str, dict[str, str | None]]:
    """Where a new file goes, below the table, and what its rows have in common."""
    name = f"{prefix}-{uuid.uuid4().hex}.parquet"
    if division is None:
        return name, {}
    above, _, name = name.rpartition("/")
    path = "/".join(part for part in (above, division.folder(values), name) if part)
    return path, dict(zip((part.column for part in division.parts), values, strict=True))


def _check_nulls(table: pa.Table, schema: pa.Schema) -> None:
    for field_ in schema:
        if not field_.nullable and field_.name in table.column_names and table.column(field_.name).null_count:
            raise LakeError(
                f"column {field_.name}: a row has null, which the table does not let it be; fill it in, as by "
                "coalesce, or leave the row out"
            )


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
    def __init__(
        self, system: Any, root: str, path: str, schema: pa.Schema, compression: str, values: Mapping[str, str | None]
    ) -> None:
        self._system, self._path, self._values = system, path, values
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
        self._writer.write_table(table.select(self._schema.names).cast(self._schema), row_group_size=len(table))
        self._rows += len(table)

    def close(self) -> NewFile:
        self._writer.close()
        self._sink.close()
        if isinstance(self._system, pyarrow.fs.LocalFileSystem):
            sync(Path(self._full))
        info = self._system.get_file_info(self._full)
        stats = json.dumps(_stats(pq.read_metadata(self._full, filesystem=self._system)))
        return NewFile(self._path, self._rows, info.size, stats, self._values)

    def drop(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):  # it would do so later, into a file that is gone
            self._writer.close()
        self._sink.close()
        self._system.delete_file(self._full)


def sync(path: Path) -> None:
    """Bring a file, or the entries of a folder, to the disk: a commit must not name what a power failure takes away."""
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
