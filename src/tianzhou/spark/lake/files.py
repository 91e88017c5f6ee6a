"""Parquet files that tasks write and that no reader sees before a commit names them."""

from __future__ import annotations

import contextlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tianzhou.spark.lake.options import PartitionColumn
from tianzhou.spark.lake.tables import LakeError

MAX_OPEN_FILES: Final = 64
"""Number of partitions whose files a task keeps open. One more closes the largest."""
ROW_GROUP_BYTES: Final = 32 << 20

Values = tuple[Any, ...]
"""Partition values that all rows of a file have, in the order of the partition columns."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A written file.

    Attributes:
        path: as `LakeTarget.delete` takes it.
        rows: number of rows.
        entry: the file's entry for the table's log: an `AddAction` of Delta or a `DataFile` of Iceberg.
    """

    path: str
    rows: int
    entry: Any


@dataclass(frozen=True)
class LakeTarget(ABC):
    """A description of where and how tasks write files. It is pickled into the tasks.

    Attributes:
        name: the table, for messages.
        names: the table's name of each column of the rows.
        schema: schema of the rows under the table's names and types.
        parts: partition columns.
        compression: of the Parquet files.
        target_bytes: size in bytes after which a file is closed.
    """

    name: str
    names: Mapping[str, str]
    schema: pa.Schema
    parts: Sequence[PartitionColumn]
    compression: str
    target_bytes: int

    @abstractmethod
    def create(self, path: str) -> Any:
        """Open a new file for writing."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file. A file that does not exist is no error."""

    @abstractmethod
    def path(self, name: str) -> str:
        """Return the path of a file in the table."""

    def uri(self, path: str) -> str:
        """Return the URI, or absolute path, of a file."""
        return path

    @abstractmethod
    def values(self, part: PartitionColumn, column: Any) -> Any:
        """Return the partition values of a column's rows.

        Raises:
            LakeError: a partition cannot hold a value.
        """

    @abstractmethod
    def entry(self, path: str, size: int, metadata: pq.FileMetaData, values: Values) -> Any:
        """Return a file's entry for the table's log."""

    @property
    def file_schema(self) -> pa.Schema:
        """Schema of the files."""
        return self.schema

    def write(self, batches: Iterable[pa.RecordBatch], prefix: str) -> list[NewFile]:
        """Write batches to as many files as partitions and sizes require; none for no rows.

        Each file has a name of its own, so two attempts at a task never write the same file. An error removes the files
        that this call wrote.

        Args:
            batches: the rows.
            prefix: the beginning of the files' names.

        Raises:
            LakeError: the rows contain a value that the table does not allow.
        """
        written: list[NewFile] = []
        opened: dict[Values, _File] = {}
        try:
            for table in _row_groups(batches):
                for values, rows in self._divided(self._conformed(table)):
                    if values not in opened:
                        if len(opened) >= MAX_OPEN_FILES:
                            written.append(opened.pop(max(opened, key=lambda one: opened[one].size)).close())
                        path = self.path(f"{prefix}-{uuid.uuid4().hex}.parquet")
                        opened[values] = _File(self, path, values)
                    opened[values].add(rows)
                    if opened[values].size >= self.target_bytes:
                        written.append(opened.pop(values).close())
            while opened:
                written.append(opened.pop(next(iter(opened))).close())
        except BaseException:
            for file in opened.values():
                file.drop()
            self.remove(file.path for file in written)
            raise
        return written

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files that no commit names."""
        for path in paths:
            self.delete(path)

    def _conformed(self, rows: pa.Table) -> pa.Table:
        rows = rows.select(list(self.names)).rename_columns(list(self.names.values())).combine_chunks()
        for field in self.schema:
            if not field.nullable and rows.column(field.name).null_count:
                raise LakeError(
                    f"column {field.name}: a row has null, and the column is NOT NULL in {self.name}; fill it in with "
                    "coalesce, or leave the row out"
                )
        try:
            return rows.cast(self.schema)
        except (pa.ArrowInvalid, ValueError) as error:
            raise LakeError(f"the rows do not fit {self.name}: {error}") from error

    def _divided(self, rows: pa.Table) -> Iterator[tuple[Values, pa.Table]]:
        if not self.parts:
            yield (), rows
            return
        columns = {str(part): self.values(part, rows.column(part.column).combine_chunks()) for part in self.parts}
        keys: Any = pa.table({**columns, "": pa.array(range(len(rows)), pa.int64())})
        groups = keys.group_by(list(columns), use_threads=False).aggregate([("", "list")])
        held = rows.select(self.file_schema.names)
        for index in range(len(groups)):
            yield tuple(groups[name][index].as_py() for name in columns), held.take(groups["_list"][index].values)


class _File:
    def __init__(self, target: LakeTarget, path: str, values: Values) -> None:
        self._target, self._path, self._values = target, path, values
        self._rows = 0
        self._metadata: list[Any] = []
        self._sink = target.create(path)
        self._writer = pq.ParquetWriter(
            self._sink,
            target.file_schema,
            compression=cast("Any", target.compression),
            version="2.6",
            metadata_collector=self._metadata,
        )

    @property
    def size(self) -> int:
        """Size so far, in bytes."""
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        """Write rows as a row group."""
        self._writer.write_table(rows, row_group_size=max(len(rows), 1))
        self._rows += len(rows)

    def close(self) -> NewFile:
        """Finish the file."""
        self._writer.close()
        size = self.size
        self._sink.close()
        sync(self._target.uri(self._path))
        return NewFile(self._path, self._rows, self._target.entry(self._path, size, self._metadata[0], self._values))

    def drop(self) -> None:
        """Close and delete an unfinished file."""
        with contextlib.suppress(pa.ArrowException, OSError):  # otherwise its destructor writes into the closed file
            self._writer.close()
        self._sink.close()
        self._target.delete(self._path)


def local_path(uri: str) -> str | None:
    """Return the path of a local file, None for a URI of another file system."""
    path = uri.removeprefix("file://")
    return None if "://" in path else path


def sync(uri: str) -> None:
    """Flush a local file to disk, so that no commit names a file that a power failure can lose."""
    path = local_path(uri)
    if path is not None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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
