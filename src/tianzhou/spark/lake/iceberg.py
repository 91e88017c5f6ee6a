"""Iceberg tables through `pyiceberg`, with the batch of each writer in the snapshot summaries.

The last batch is also a property of the table, changed in the same commit, because snapshots expire.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pyiceberg import expressions as ice
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    UnsupportedPyArrowTypeException,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyspark.sql import datasource as spark

from tianzhou.errors import ConfigError
from tianzhou.spark.lake import columns, conditions
from tianzhou.spark.lake.files import LakeTarget, NewFile, Values
from tianzhou.spark.lake.options import TIMES, LakeOptions, PartitionColumn
from tianzhou.spark.lake.tables import Batch, LakeError, replaced, retried

WRITER: Final = "tianzhou.writer"
BATCH: Final = "tianzhou.batch"
COMPACTION: Final = "tianzhou.compaction"
LISTED: Final = 5
"""Number of snapshots that an error names."""
_SHOWN: Final = frozenset({"type", "warehouse"})
"""Options of a catalog that contain no secrets; a URI may contain a password."""
_BEATEN: Final = (CommitFailedException, ValidationException)
_EXPRESSIONS: Final[Any] = ice
"""Without types: mypy derives the arguments of pyiceberg's classes from fields of pydantic, which differ."""
_MAKERS: Final[Mapping[type, conditions.Maker]] = {
    spark.EqualTo: _EXPRESSIONS.EqualTo,
    spark.EqualNullSafe: _EXPRESSIONS.EqualTo,
    spark.GreaterThan: _EXPRESSIONS.GreaterThan,
    spark.GreaterThanOrEqual: _EXPRESSIONS.GreaterThanOrEqual,
    spark.LessThan: _EXPRESSIONS.LessThan,
    spark.LessThanOrEqual: _EXPRESSIONS.LessThanOrEqual,
    spark.In: _EXPRESSIONS.In,
    spark.IsNull: lambda column, _: _EXPRESSIONS.IsNull(column),
    spark.IsNotNull: lambda column, _: _EXPRESSIONS.NotNull(column),
    spark.StringStartsWith: _EXPRESSIONS.StartsWith,
    spark.Not: lambda inner, _: ice.Not(inner),
}
_EPOCH: Final = pa.scalar(0, pa.timestamp("us"))
_UNITS: Final[Any] = {
    "year": lambda times: pc.subtract(pc.year(times), pa.scalar(1970)),
    "month": lambda times: pc.add(pc.multiply(_UNITS["year"](times), 12), pc.subtract(pc.month(times), pa.scalar(1))),
    "day": lambda times: pc.days_between(_EPOCH, times),
    "hour": lambda times: pc.hours_between(_EPOCH, times),
}
"""Partition values of TIMES: units from 1970 to a time."""


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """Files of an Iceberg table.

    Attributes:
        metadata: the table, without its snapshots.
        io: access to its files.
    """

    metadata: TableMetadata
    io: FileIO

    def create(self, path: str) -> Any:
        """See `LakeTarget.create`."""
        return self.io.new_output(path).create()

    def delete(self, path: str) -> None:
        """See `LakeTarget.delete`."""
        try:
            self.io.delete(path)
        except FileNotFoundError:
            return

    def path(self, name: str) -> str:
        """See `LakeTarget.path`."""
        return f"{self.metadata.location.rstrip('/')}/data/{name}"

    def values(self, part: PartitionColumn, column: Any) -> Any:
        """See `LakeTarget.values`."""
        if part.transform is None:
            return column.cast(pa.int32()) if types.is_date32(column.type) else column
        if types.is_date32(column.type):
            column = column.cast(pa.timestamp("us"))
        elif column.type.tz:
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
        return _UNITS[part.transform](column).cast(pa.int32())

    def entry(self, path: str, size: int, metadata: pq.FileMetaData, values: Values) -> DataFile:
        """See `LakeTarget.entry`."""
        schema, spec = self.metadata.schema(), self.metadata.spec()
        by_field = dict(zip((str(part) for part in self.parts), values, strict=True))
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=compute_statistics_plan(schema, self.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*(by_field.get(str(part)) for part in _parts(self.metadata))),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


class IcebergTable:
    """A table of an Iceberg catalog.

    Args:
        options: options of the table.
    """

    def __init__(self, options: LakeOptions) -> None:
        self._options = options

    def _catalog(self) -> Catalog:
        try:
            return load_catalog(self._options.catalog_name, **self._options.catalog)
        except Exception as error:
            options = ", ".join(
                f"{name}={value if name in _SHOWN else '…'}" for name, value in sorted(self._options.catalog.items())
            )
            raise ConfigError(
                f"no Iceberg catalog {self._options.catalog_name} with {options or 'no options'}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def open(self) -> Table:
        """Open the current state. Its commits fail if another commit came first.

        Raises:
            LakeError: there is no such table.
        """
        try:
            table = self._catalog().load_table(self._options.table)
        except NoSuchTableError as error:
            raise LakeError(f"there is no {self._options.name}") from error
        # pyiceberg would repeat the commit on the new head without comparing the batch number.
        table.metadata = _with(table.metadata, properties={**table.properties, "commit.retry.num-retries": "0"})
        return table

    def prepare(self, rows: pa.Schema) -> IcebergTarget:
        """See `LakeTable.prepare`."""
        failure = f"{self._options.name}: the table is not created, or columns are not added"
        return retried(lambda: self._prepare(rows), (*_BEATEN, TableAlreadyExistsError), failure)

    def _prepare(self, rows: pa.Schema) -> IcebergTarget:
        options, name, catalog = self._options, self._options.name, self._catalog()
        sensitive = options.case_sensitive
        if not catalog.table_exists(options.table):
            columns.unambiguous(rows.names, "the rows", case_sensitive=sensitive)
            _create_namespace(catalog, options.table.rpartition(".")[0])
            with _named(rows, name):
                catalog.create_table(options.table, pa.schema([columns.nullable(field) for field in rows]))
        table = self.open()
        there = table.schema().as_arrow()
        matched = columns.match(rows, there, name, case_sensitive=sensitive)
        if matched.new:
            if not options.merge_schema:
                raise columns.missing(matched.new, there, name)
            added = pa.schema([columns.nullable(rows.field(column)) for column in matched.new])
            with _named(added, name), table.update_schema() as update:
                update.union_by_name(added)
            return self._prepare(rows)
        wanted = columns.resolved(options.parts, there.names, case_sensitive=sensitive)
        held = pa.schema([there.field(own) for own in matched.names.values()])
        if wanted and not table.spec().fields and table.current_snapshot() is None:
            columns.agreed((), wanted, held, name, own=False)
            with table.update_spec() as update_spec:
                for part in wanted:
                    alias = f"{part.column}_{part.transform}" if part.transform else None
                    update_spec.add_field(part.column, part.transform or "identity", alias)
            return self._prepare(rows)
        return self._target(table, matched.names, wanted, options.target_bytes)

    def _target(
        self, table: Table, names: Mapping[str, str], wanted: Sequence[PartitionColumn], target_bytes: int
    ) -> IcebergTarget:
        name, slim = self._options.name, _with(table.metadata, snapshots=[], snapshot_log=[], metadata_log=[], refs={})
        whole = schema_to_pyarrow(table.schema(), include_field_ids=True)
        schema = pa.schema([whole.field(own) for own in names.values()])
        there = _parts(table.metadata)
        for part in there:
            if part.transform is not None and part.transform not in (*TIMES, "void"):
                raise LakeError(
                    f"{name} is partitioned by {part}, which tianzhou_lake does not write; it writes partitions by "
                    f"columns and by {', '.join(TIMES)}"
                )
        live = [part for part in there if part.transform != "void"]
        parts = columns.agreed(wanted, live, schema, name, own=False)
        return IcebergTarget(name, names, schema, parts, self._options.compression, target_bytes, slim, table.io)

    def committed(self, writer: str) -> int | None:
        """See `LakeTable.committed`."""
        return _committed(self.open(), writer)

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """See `LakeTable.commit`."""
        marks = {} if batch.writer is None else {WRITER: batch.writer, BATCH: str(batch.number)}

        def once() -> bool:
            table = self.open()
            if batch.writer is not None and batch.is_in(_committed(table, batch.writer)):
                return False
            with table.transaction() as transaction:
                if overwrite and table.current_snapshot() is not None:
                    transaction.delete(ice.AlwaysTrue(), snapshot_properties=marks)
                if files:
                    with transaction.update_snapshot(snapshot_properties=marks).fast_append() as append:
                        for file in files:
                            append.append_data_file(file.entry)
                if batch.writer is not None:
                    transaction.set_properties({_property(batch.writer): str(batch.number)})
            return True

        return retried(once, _BEATEN, f"{self._options.name}: batch {batch.number} is not committed")

    def known(self, paths: Sequence[str]) -> set[str]:
        """See `LakeTable.known`."""
        return set(paths) & {task.file.file_path for task in self.open().scan().plan_files()}

    def compact(self, target_bytes: int) -> int:
        """See `LakeTable.compact`."""
        table = self.open()
        small = _mergeable(list(table.scan().plan_files()), target_bytes // 2)
        if not small:
            return 0
        schema = table.schema().as_arrow()
        target = self._target(table, {name: name for name in schema.names}, (), target_bytes)
        parts = [(task, target.metadata, target.metadata.schema(), table.io) for task in small]
        written = target.write((batch for part in parts for batch in read_part(part, schema)), "compacted")
        paths = {task.file.file_path for task in small}

        def once() -> bool:
            current = self.open()
            present = {task.file.file_path: task.file for task in current.scan().plan_files()}
            if not paths <= present.keys():
                return False
            with (
                current.transaction() as transaction,
                transaction.update_snapshot(snapshot_properties={COMPACTION: "true"}).overwrite() as update,
            ):
                for path in sorted(paths):
                    update.delete_data_file(present[path])
                for file in written:
                    update.append_data_file(file.entry)
            return True

        return len(small) if replaced(once, _BEATEN, target, written) else 0

    def scan(self, conditions_: Sequence[spark.Filter] = ()) -> list[Any]:
        """See `LakeTable.scan`. pyiceberg applies the conditions to the partitions of all specs."""
        table = self.open()
        snapshot, schema = self._state(table)
        sources = {
            table.schema().find_column_name(one.source_id) for spec in table.specs().values() for one in spec.fields
        }
        by_column = {field.name: field.type for field in table.schema().as_arrow() if field.name in sources}
        made = conditions.expressions(conditions_, by_column, str, _MAKERS)
        wanted: Any = functools.reduce(ice.And, made, ice.AlwaysTrue())  # type: ignore[arg-type]
        scan = table.scan(row_filter=wanted, snapshot_id=None if snapshot is None else snapshot.snapshot_id)
        slim = _with(table.metadata, snapshots=[], snapshot_log=[], metadata_log=[], refs={})
        return [(task, slim, schema, table.io) for task in scan.plan_files()]

    def schema(self) -> pa.Schema:
        """See `LakeTable.schema`."""
        schema: pa.Schema = self._state(self.open())[1].as_arrow()
        return schema

    def _state(self, table: Table) -> tuple[Snapshot | None, Any]:
        """Return the snapshot that the options name, None for the current one, and its schema.

        Raises:
            LakeError: there is no such snapshot.
        """
        number, moment, name = self._options.version_as_of, self._options.timestamp_as_of, self._options.name
        if number is None and moment is None:
            return None, table.schema()
        if number is not None:
            found = table.snapshot_by_id(number)
        else:
            found = table.snapshot_as_of_timestamp(int(moment.timestamp() * 1000)) if moment is not None else None
        if found is None:
            asked = f"versionAsOf={number}" if number is not None else f"timestampAsOf={moment}"
            there = [
                f"{one.snapshot_id} of {dt.datetime.fromtimestamp(one.timestamp_ms / 1000, dt.UTC).isoformat()}"
                for one in table.snapshots()[-LISTED:]
            ]
            raise LakeError(f"{asked}: {name} has no such snapshot; its last are {', '.join(there) or 'none'}")
        return found, table.schema() if found.schema_id is None else table.schemas()[found.schema_id]


def read_part(part: tuple[FileScanTask, TableMetadata, Any, FileIO], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a part of `IcebergTable.scan`.

    Args:
        part: a file with its delete files, the table, the columns to read, and access to the files.
        wanted: names and types of the batches. Columns that the table lacks are null.
    """
    task, metadata, schema, io = part
    names = columns.chosen(wanted.names, [field.name for field in schema.fields])
    projected = schema.select(*sorted(set(names.values())))
    plain = _plain_batches(task, metadata, projected, io)
    for batch in plain or ArrowScan(metadata, io, projected, ice.AlwaysTrue()).to_record_batches([task]):
        yield columns.shaped(batch, wanted, names)


def _plain_batches(
    task: FileScanTask, metadata: TableMetadata, projected: Any, io: FileIO
) -> Iterator[pa.RecordBatch] | None:
    """Return the rows of a file whose columns have the table's types; None for other files and for deleted rows.

    pyiceberg 0.12 reads a null list or map as an empty one if it contains a struct.
    """
    if task.delete_files:
        return None
    stream = io.new_input(task.file.file_path).open()
    file = pq.ParquetFile(cast("Any", stream))
    there = {int((field.metadata or {}).get(b"PARQUET:field_id", -1)): field for field in file.schema_arrow}
    sources = {field.source_id for spec in metadata.specs().values() for field in spec.fields}
    found: dict[str, str] = {}
    for field in projected.fields:
        own = there.get(field.field_id)
        if own is None and (-1 in there or field.field_id in sources or field.initial_default is not None):
            return None
        if own is not None:
            if not columns.fits(own.type, schema_to_pyarrow(field.field_type)):
                return None
            found[own.name] = field.name

    def batches() -> Iterator[pa.RecordBatch]:
        with stream:
            for batch in file.iter_batches(columns=list(found)):
                yield batch.rename_columns([found[name] for name in batch.schema.names])

    return batches()


def _with(metadata: TableMetadata, **changed: Any) -> TableMetadata:
    return metadata.model_copy(update=changed)


def _create_namespace(catalog: Catalog, namespace: str) -> None:
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except Exception:  # a SQL catalog raises an error of its database if another writer created the namespace first
        if not catalog.namespace_exists(namespace):
            raise


@contextlib.contextmanager
def _named(rows: pa.Schema, name: str) -> Iterator[None]:
    """Name the table and the columns when pyiceberg refuses the columns."""
    try:
        yield
    except (UnsupportedPyArrowTypeException, ValidationError, TypeError, ValueError) as error:
        kinds = ", ".join(f"{field.name} {field.type}" for field in rows)
        raise ConfigError(f"{name} cannot hold the columns {kinds}: {error}; cast them, or leave them out") from error


def _parts(metadata: TableMetadata) -> list[PartitionColumn]:
    """Return the partition columns of a table, also those with transform `void`."""
    found = []
    for field in metadata.spec().fields:
        transform = str(field.transform)
        column = metadata.schema().find_column_name(field.source_id) or field.name
        found.append(PartitionColumn(column, None if transform == "identity" else transform))
    return found


def _mergeable(tasks: Sequence[FileScanTask], limit: int) -> list[FileScanTask]:
    """Return the files below a size that share their partition with another one."""
    by_partition: dict[tuple[int, str], list[FileScanTask]] = {}
    for task in tasks:
        if task.file.file_size_in_bytes < limit:
            by_partition.setdefault((task.file.spec_id, str(task.file.partition)), []).append(task)
    return [task for group in by_partition.values() if len(group) > 1 for task in group]


def _property(writer: str) -> str:
    return f"{BATCH}.{hashlib.sha256(writer.encode()).hexdigest()[:32]}"


def _committed(table: Table, writer: str) -> int | None:
    noted = table.properties.get(_property(writer))
    found = [] if noted is None else [int(noted)]
    for snapshot in table.snapshots():
        summary: dict[str, Any] = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if summary.get(WRITER) == writer:
            found.append(int(summary[BATCH]))
    return max(found, default=None)
