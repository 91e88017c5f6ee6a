"""Delta tables through `deltalake`, with batches in the `txn` actions of the table's log."""

from __future__ import annotations

import functools
import json
import operator
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.datasource import Filter

from tianzhou.errors import ConfigError
from tianzhou.spark.lake import columns, conditions
from tianzhou.spark.lake.files import LakeTarget, NewFile, Values, local_path
from tianzhou.spark.lake.options import LakeOptions, PartitionColumn
from tianzhou.spark.lake.tables import Batch, LakeError, replaced, retried

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_COMPUTED: Final = {
    "delta.generationExpression": "a generated column",
    "delta.identity.": "an identity column",
    "delta.invariants": "a column with an invariant",
}
"""Prefixes of metadata of columns whose values the table computes or checks."""


@dataclass(frozen=True)
class DeltaTarget(LakeTarget):
    """Files of a Delta table.

    Attributes:
        location: folder or URI of the table.
        storage: storage options of `deltalake`.
    """

    location: str
    storage: dict[str, str] | None

    def _system(self) -> tuple[Any, str]:
        folder = local_path(self.location)
        if folder is not None:
            return pyarrow.fs.LocalFileSystem(), f"{folder}/"
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.location, self.storage)), ""

    def create(self, path: str) -> Any:
        """See `LakeTarget.create`."""
        system, root = self._system()
        return system.open_output_stream(root + path)

    def delete(self, path: str) -> None:
        """See `LakeTarget.delete`."""
        system, root = self._system()
        try:
            system.delete_file(root + path)
        except FileNotFoundError:
            return

    def path(self, name: str) -> str:
        """See `LakeTarget.path`."""
        return name

    def uri(self, path: str) -> str:
        """See `LakeTarget.uri`."""
        return f"{self.location}/{path}"

    @property
    def file_schema(self) -> pa.Schema:
        """See `LakeTarget.file_schema`; partition values are in the log only."""
        own = {part.column for part in self.parts}
        return pa.schema([field for field in self.schema if field.name not in own])

    def values(self, part: PartitionColumn, column: Any) -> Any:
        """See `LakeTarget.values`."""
        texts = column.cast(pa.string())
        if pc.any(pc.equal(texts, pa.scalar(""))).as_py():
            raise LakeError(
                f"column {part.column}: a row has an empty text, which a partition of a Delta table cannot distinguish "
                "from null; write another text, or partition by another column"
            )
        return texts

    def entry(self, path: str, size: int, metadata: pq.FileMetaData, values: Values) -> AddAction:
        """See `LakeTarget.entry`."""
        by_column = dict(zip((part.column for part in self.parts), values, strict=True))
        return AddAction(path, size, by_column, int(time.time() * 1000), True, json.dumps(_statistics(metadata)))


def _statistics(metadata: Any) -> dict[str, Any]:
    """Return row count, null counts and bounds of whole numbers, by which readers pass over a file."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None or not found.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max and isinstance(found.min, int) and column.physical_type in {"INT32", "INT64"}:
                low[name] = min(low.get(name, found.min), found.min)
                high[name] = max(high.get(name, found.max), found.max)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


class DeltaLake:
    """A Delta table.

    Args:
        options: options of the table.
    """

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._storage = dict(options.storage) or None

    def open(self) -> DeltaTable:
        """Open the current version.

        Raises:
            LakeError: there is no such table, or `deltalake` cannot open it.
        """
        try:
            return DeltaTable(self._options.path, storage_options=self._storage)
        except TableNotFoundError as error:
            raise LakeError(f"there is no {self._options.name}") from error
        except DeltaError as error:  # for example a feature that deltalake does not support
            raise LakeError(f"{self._options.name} cannot be opened: {error}") from error

    def _dataset(self) -> ds.Dataset:
        """Open the version that the options name.

        Raises:
            LakeError: there is no such version, or it has a feature that cannot be read.
        """
        table = self.open()
        version, moment = self._options.version_as_of, self._options.timestamp_as_of
        if version is not None or moment is not None:
            newest = table.version()
            asked = f"versionAsOf={version}" if version is not None else f"timestampAsOf={moment}"
            try:
                table.load_as_version(version if version is not None else moment)  # type: ignore[arg-type]
            except DeltaError as error:
                raise LakeError(
                    f"{asked}: {self._options.name} has no such version, the newest is {newest}: {error}"
                ) from error
        features, mode = table.protocol().reader_features or [], _mapping(table)
        if mode != "none" or "columnMapping" in features:
            self._refuse([f"column mapping (delta.columnMapping.mode={mode})"])
        if "deletionVectors" in features:
            self._refuse(["deletion vectors"])
        return self._files(table)

    def _files(self, table: DeltaTable) -> ds.Dataset:
        """Return the files of a version. Processes that read by deltalake's file system may abort when they exit."""
        folder = local_path(self._options.path)
        if folder is None:
            return table.to_pyarrow_dataset()
        whole = pyarrow.fs.LocalFileSystem()
        return table.to_pyarrow_dataset(filesystem=pyarrow.fs.SubTreeFileSystem(str(Path(folder).absolute()), whole))

    def prepare(self, rows: pa.Schema) -> DeltaTarget:
        """See `LakeTable.prepare`."""
        failure = f"{self._options.name}: the table is not created, or columns are not added"
        return retried(lambda: self._prepare(rows), CommitFailedError, failure)

    def _prepare(self, rows: pa.Schema) -> DeltaTarget:
        options, name = self._options, self._options.name
        sensitive = options.case_sensitive
        if not DeltaTable.is_deltatable(options.path, storage_options=self._storage):
            parts = columns.resolved(options.parts, rows.names, case_sensitive=sensitive)
            columns.agreed((), parts, rows, name, own=True)
            DeltaTable.create(
                options.path,
                schema=self._converted(rows),
                mode="ignore",
                partition_by=[part.column for part in parts],
                storage_options=self._storage,
            )
        table = self.open()
        self._refuse(_not_written(table))
        there = _arrow(table)
        matched = columns.match(rows, there, name, case_sensitive=sensitive)
        if matched.new:
            if not options.merge_schema:
                raise columns.missing(matched.new, there, name)
            added = self._converted(pa.schema([rows.field(column) for column in matched.new]))
            table.alter.add_columns(added.fields, commit_properties=CommitProperties(max_commit_retries=0))
            return self._prepare(rows)
        schema = pa.schema([there.field(own) for own in matched.names.values()])
        parts = columns.agreed(
            options.parts,
            [PartitionColumn(column) for column in table.metadata().partition_columns],
            schema,
            name,
            own=True,
        )
        limits = options.compression, options.target_bytes
        return DeltaTarget(name, matched.names, schema, parts, *limits, options.path, self._storage)

    def _converted(self, rows: pa.Schema) -> deltalake.Schema:
        """Return columns of a Delta table for columns of rows."""
        fields = []
        for field in rows:
            if columns.has_local_times_in_map(field.type):
                raise ConfigError(
                    f"column {field.name} is {field.type}: deltalake 1.6 cannot open a table with TIMESTAMP_NTZ "
                    "inside a map; cast the times to TIMESTAMP"
                )
            try:
                fields += deltalake.Schema.from_arrow(pa.schema([columns.nullable(field)])).fields
            except Exception as error:
                raise ConfigError(
                    f"column {field.name} is {field.type}, which a Delta table cannot hold; cast it: {error}"
                ) from error
        return deltalake.Schema(fields)

    def _refuse(self, features: Sequence[str]) -> None:
        """Raise `LakeError` if the table has features that tianzhou_lake does not support."""
        if features:
            raise LakeError(
                f"{self._options.name} has {'; '.join(features)}, which tianzhou_lake does not support; use a table "
                "without, or another tool for this one"
            )

    def committed(self, writer: str) -> int | None:
        """See `LakeTable.committed`."""
        return self.open().transaction_version(writer)

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """See `LakeTable.commit`."""

        def once() -> bool:
            table = self.open()
            self._refuse(_not_written(table))
            if batch.writer is not None and batch.is_in(table.transaction_version(batch.writer)):
                return False
            self._write(table, [file.entry for file in files], batch, "overwrite" if overwrite else "append")
            return True

        return retried(once, CommitFailedError, f"{self._options.name}: batch {batch.number} is not committed")

    def _write(self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], batch: Batch, mode: str) -> None:
        """Commit actions. A commit that removes files succeeds only as the version after the opened one."""
        removes = mode == "overwrite" or any(isinstance(action, RemoveAction) for action in actions)
        table.create_write_transaction(
            list(actions),
            mode=mode,
            schema=table.schema(),
            partition_by=table.metadata().partition_columns or None,
            commit_properties=commit_properties(batch, next_version_only=removes),
        )

    def known(self, paths: Sequence[str]) -> set[str]:
        """See `LakeTable.known`."""
        return set(paths) & set(_active(self.open()))

    def compact(self, target_bytes: int) -> int:
        """See `LakeTable.compact`."""
        table = self.open()
        self._refuse(_not_written(table))
        groups: dict[str, list[str]] = {}
        active = _active(table)
        for path, action in active.items():
            if action["size_bytes"] < target_bytes // 2:
                groups.setdefault(repr(action["partition"]), []).append(path)
        small = {path for group in groups.values() if len(group) > 1 for path in group}
        if not small:
            return 0
        schema = _arrow(table)
        parts = [PartitionColumn(column) for column in table.metadata().partition_columns]
        identity = {column: column for column in schema.names}
        limits = self._options.compression, target_bytes
        target = DeltaTarget(self._options.name, identity, schema, parts, *limits, self._options.path, self._storage)
        dataset = self._files(table)
        parts_ = [(one, schema) for one in dataset.get_fragments() if one.path in small]
        written = target.write((batch for one in parts_ for batch in read_part(one, schema)), "compacted")
        now = int(time.time() * 1000)
        removed = [RemoveAction(path, False, now, active[path]["size_bytes"]) for path in sorted(small)]
        added = [
            AddAction(one.path, one.entry.size, one.entry.partition_values, now, False, one.entry.stats)
            for one in written
        ]

        def once() -> bool:
            current = self.open()
            if not small <= _active(current).keys():
                return False
            self._write(current, [*removed, *added], Batch(None, 0), "append")
            return True

        return len(small) if replaced(once, CommitFailedError, target, written) else 0

    def scan(self, conditions_: Sequence[Filter] = ()) -> list[Any]:
        """See `LakeTable.scan`."""
        dataset = self._dataset()
        own = self.open().metadata().partition_columns
        by_column = {column: dataset.schema.field(column).type for column in own if column in dataset.schema.names}
        made = conditions.expressions(conditions_, by_column, pc.field, conditions.ARROW)
        fragments = dataset.get_fragments(filter=functools.reduce(operator.and_, made) if made else None)
        return [(fragment, dataset.schema) for fragment in fragments]

    def schema(self) -> pa.Schema:
        """See `LakeTable.schema`."""
        return self._dataset().schema


def read_part(part: tuple[ds.Fragment, pa.Schema], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a part of `DeltaLake.scan`.

    Args:
        part: a file, and the columns of the table.
        wanted: names and types of the batches. Columns that the table lacks are null.
    """
    import pyarrow.dataset as ds  # imports pandas, which tasks that write do without

    fragment, schema = part
    names = columns.chosen(wanted.names, schema.names)
    scanner = ds.Scanner.from_fragment(fragment, schema=schema, columns=sorted(set(names.values())))
    for batch in scanner.to_batches():
        yield columns.shaped(batch, wanted, names)


def commit_properties(batch: Batch, *, next_version_only: bool = False) -> CommitProperties:
    """Return properties of a commit.

    Args:
        batch: the batch that the commit holds; with a writer, it becomes a `txn` action.
        next_version_only: fail if the version after the opened one exists (docs/adr/0025-lake-by-libraries.md).
    """
    marks = []
    if batch.writer is not None:
        marks.append(deltalake.Transaction(batch.writer, batch.number, int(time.time() * 1000)))
    return CommitProperties(
        custom_metadata={"userMetadata": f"tianzhou batch {batch.number}" if marks else "tianzhou"},
        max_commit_retries=0 if next_version_only else None,
        app_transactions=marks or None,
    )


def _mapping(table: DeltaTable) -> str:
    return table.metadata().configuration.get("delta.columnMapping.mode") or "none"


def _not_written(table: DeltaTable) -> list[str]:
    """Return the features of a table that files of tasks may violate; `deltalake` does not check the files."""
    features, configuration = table.protocol().writer_features or [], table.metadata().configuration
    found = []
    if (mode := _mapping(table)) != "none":
        found.append(f"column mapping (delta.columnMapping.mode={mode})")
    if "deletionVectors" in features or configuration.get("delta.enableDeletionVectors") == "true":
        found.append("deletion vectors")
    prefix = "delta.constraints."
    found += [
        f"the constraint {name.removeprefix(prefix)} ({value})"
        for name, value in configuration.items()
        if name.startswith(prefix)
    ]
    for field in table.schema().fields:
        kinds = {kind for key in field.metadata for begin, kind in _COMPUTED.items() if key.startswith(begin)}
        found += [f"{kind} ({field.name})" for kind in sorted(kinds)]
    return found


def _active(table: DeltaTable) -> dict[str, dict[str, Any]]:
    """Return the add action of each file of a version."""
    actions: Any = pa.table(table.get_add_actions())
    partition = "partition" if "partition" in actions.column_names else None
    wanted = ["path", "size_bytes", *([partition] if partition else [])]
    return {one["path"]: {"partition": None, **one} for one in actions.select(wanted).to_pylist()}


def _arrow(table: DeltaTable) -> pa.Schema:
    schema: Any = table.schema().to_arrow()
    return pa.schema(schema)
