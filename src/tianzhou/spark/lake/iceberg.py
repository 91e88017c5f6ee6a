"""Iceberg tables through `pyiceberg`, with the batch of each writer in the snapshots' summaries.

The last batch is also a property of the table, changed in the same commit: snapshots expire.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.files import NewFile, remove_files, write_files
from tianzhou.spark.lake.iceberg_conditions import row_filter
from tianzhou.spark.lake.options import TIMES, LakeOptions, Part
from tianzhou.spark.lake.partitions import Division, agreed, check_parts
from tianzhou.spark.lake.pruning import Condition
from tianzhou.spark.lake.reading import TableFile, file_batches
from tianzhou.spark.lake.tables import Batch, LakeError, fitting, refuse_new, requiring, retried

WRITER: Final = "tianzhou.writer"
BATCH: Final = "tianzhou.batch"
COMPACTION: Final = "tianzhou.compaction"
LISTED: Final = 5
"""Snapshots that an error names."""
_SHOWN: Final = frozenset({"type", "warehouse"})
"""Options of a catalog without secrets; a URI may have a password."""


class IcebergTable:
    """A table of an Iceberg catalog.

    Args:
        options: of the table.
    """

    prefix = "data/part"

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._location: str | None = None
        self.division: Division | None = None

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

    def _open(self) -> Table:
        try:
            return self._catalog().load_table(self._options.table)
        except NoSuchTableError as error:
            raise LakeError(f"there is no {self._options.name}") from error

    @property
    def location(self) -> str:
        """The table's folder or URI."""
        if self._location is None:
            self._location = self._open().location()
        return self._location

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        """See `LakeTable.prepare`."""
        name, catalog = self._options.name, self._catalog()
        catalog.create_namespace_if_not_exists(self._options.table.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(self._options.table, schema)
        there = table.schema().as_arrow()
        new = fitting(schema, there, name)
        if new:
            if not self._options.merge_schema:
                raise refuse_new(new, there, name)
            with table.update_schema() as update:
                update.union_by_name(schema)
        self.division = self._divided(table, schema)
        self._location = table.location()
        return requiring(schema, there)

    def _divided(self, table: Table, rows: pa.Schema) -> Division | None:
        """How rows are divided; a table that never held any takes on what `partitionBy` says."""
        wanted, name = self._options.parts, self._options.name
        if wanted and not table.spec().fields and table.current_snapshot() is None:
            check_parts(wanted, rows, name, in_files=True)
            with table.update_spec() as update:
                for part in wanted:
                    update.add_field(part.column, part.transform or "identity", part.name if part.transform else None)
        parts = agreed(wanted, _parts(table, name), name)
        check_parts(parts, rows, name, in_files=True)
        return Division(parts, in_files=True) if parts else None

    def committed(self, writer: str) -> int | None:
        """See `LakeTable.committed`."""
        return _committed(self._open(), writer)

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """See `LakeTable.commit`."""
        marks = {} if batch.writer is None else {WRITER: batch.writer, BATCH: str(batch.number)}

        def once() -> bool:
            table = self._open()
            if batch.writer is not None and batch.is_in(_committed(table, batch.writer)):
                return False
            paths = [f"{table.location()}/{file.path}" for file in files]
            with table.transaction() as transaction:
                if overwrite and table.current_snapshot() is not None:
                    transaction.delete(AlwaysTrue(), snapshot_properties=marks)
                if paths:
                    transaction.add_files(paths, snapshot_properties=marks, check_duplicate_files=False)
                if batch.writer is not None:
                    transaction.set_properties({_property(batch.writer): str(batch.number)})
            return True

        return retried(once, CommitFailedException, f"{self._options.name}: batch {batch.number} is not committed")

    def known(self, paths: Sequence[str]) -> set[str]:
        """See `LakeTable.known`."""
        names = {task.file.file_path.rpartition("/")[2] for task in self._open().scan().plan_files()}
        return {path for path in paths if path.rpartition("/")[2] in names}

    def compact(self, target_bytes: int) -> int:
        """See `LakeTable.compact`."""

        def once() -> int:
            table = self._open()
            small = _mergeable(_files(table, self._options.name, AlwaysTrue()), target_bytes // 2)
            if not small:
                return 0
            self._location = root = table.location()
            schema = table.schema().as_arrow()
            batches = (batch for file in small for batch in file_batches(TableFile(file.file_path), schema))
            division = self._divided(table, schema)
            written = write_files(batches, schema, root, self.prefix, self._options.compression, target_bytes, division)
            try:
                with table.transaction() as transaction:
                    paths = iter([f"{root}/{file.path}" for file in written])
                    merged = list(parquet_files_to_data_files(table.io, transaction.table_metadata, paths))
                    with transaction.update_snapshot(snapshot_properties={COMPACTION: "true"}).overwrite() as update:
                        for old in small:
                            update.delete_data_file(old)
                        for new in merged:
                            update.append_data_file(new)
            except (CommitFailedException, ValidationException):
                remove_files(root, [file.path for file in written])
                raise
            return len(small)

        beaten = (CommitFailedException, ValidationException)
        return retried(once, beaten, f"{self._options.name}: is not compacted")

    def files(self, conditions: Sequence[Condition] = ()) -> list[TableFile]:
        """See `LakeTable.files`; pyiceberg knows which partitions, also of former specs, conditions leave out."""
        table = self._open()
        files = _files(table, self._options.name, row_filter(conditions, table), self._snapshot(table))
        return [TableFile(path) for path in sorted(file.file_path for file in files)]

    def schema(self) -> pa.Schema:
        """See `LakeTable.schema`."""
        table = self._open()
        snapshot = self._snapshot(table)
        _files(table, self._options.name, AlwaysTrue(), snapshot)
        if snapshot is None or snapshot.schema_id is None:
            return table.schema().as_arrow()
        return table.schemas()[snapshot.schema_id].as_arrow()

    def _snapshot(self, table: Table) -> Snapshot | None:
        """The snapshot that is to be read; None for that of now.

        Raises:
            LakeError: the table has none such.
        """
        number, time, name = self._options.version_as_of, self._options.timestamp_as_of, self._options.name
        if number is None and time is None:
            return None
        if number is not None:
            found = table.snapshot_by_id(number)
        else:
            found = table.snapshot_as_of_timestamp(int(time.timestamp() * 1000)) if time is not None else None
        if found is None:
            asked = f"versionAsOf={number}" if number is not None else f"timestampAsOf={time}"
            there = [
                f"{one.snapshot_id} of {dt.datetime.fromtimestamp(one.timestamp_ms / 1000, dt.UTC).isoformat()}"
                for one in table.snapshots()[-LISTED:]
            ]
            raise LakeError(f"{asked}: {name} has no such snapshot; its last are {', '.join(there) or 'none'}")
        return found


def _parts(table: Table, name: str) -> tuple[Part, ...]:
    """What a table is partitioned by.

    Raises:
        LakeError: by something that is not written here.
    """
    found = []
    for field in table.spec().fields:
        transform, column = str(field.transform), table.schema().find_column_name(field.source_id)
        if transform == "void":
            continue
        if column is None or (transform != "identity" and transform not in TIMES):
            raise LakeError(
                f"{name} is partitioned by {transform}({column}), which tianzhou_lake does not write; it writes "
                f"partitions by columns and by {', '.join(TIMES)}"
            )
        found.append(Part(column, None if transform == "identity" else transform))
    return tuple(found)


def _mergeable(files: Sequence[DataFile], limit: int) -> list[DataFile]:
    """Files below a size that share their partition with another one."""
    by_partition: dict[tuple[int, str], list[DataFile]] = {}
    for file in files:
        if file.file_size_in_bytes < limit:
            by_partition.setdefault((file.spec_id, str(file.partition)), []).append(file)
    return [file for group in by_partition.values() if len(group) > 1 for file in group]


def _files(table: Table, name: str, wanted: BooleanExpression, snapshot: Snapshot | None = None) -> list[DataFile]:
    """The files of a table whose rows are theirs, taken by the columns' names; those that can have wanted rows.

    Args:
        table: the table.
        name: what it is called in messages.
        wanted: the rows.
        snapshot: which of its states; None for that of now.

    Raises:
        LakeError: they are not.
    """
    if changed := _other_names(table):
        raise LakeError(
            f"{name} has other names in old files than now: {', '.join(changed)}; columns are read by name here. "
            "Read it by an Iceberg reader, or rewrite its rows into a new table"
        )
    scan = table.scan(row_filter=wanted, snapshot_id=None if snapshot is None else snapshot.snapshot_id)
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):
        raise LakeError(f"{name} has delete files, which are not read here; rewrite the table first")
    return [task.file for task in tasks]


def _other_names(table: Table) -> list[str]:
    """Columns, also inside others, that had another name once, or whose name another column had."""
    current = table.schema()
    names = {number: current.find_column_name(number) for number in current.field_ids}
    numbers = {name: number for number, name in names.items()}
    found = set()
    for schema in table.schemas().values():
        for number in schema.field_ids:
            name = schema.find_column_name(number)
            if number in names and names[number] != name:
                found.add(f"{names[number]} was {name}")
            elif numbers.get(name, number) != number:
                found.add(f"{name} was another column")
    return sorted(found)


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
