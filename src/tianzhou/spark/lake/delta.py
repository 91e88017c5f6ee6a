"""Delta tables through `deltalake`, with batches committed under the table's own `txn` entries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tianzhou.spark.lake.files import NewFile
from tianzhou.spark.lake.options import LakeOptions
from tianzhou.spark.lake.partitions import Division, agreed, check_parts, parts_of
from tianzhou.spark.lake.pruning import Condition, may_hold
from tianzhou.spark.lake.reading import TableFile
from tianzhou.spark.lake.tables import Batch, LakeError, fitting, refuse_new, requiring, retried

_COMPUTED: Final = {
    "delta.generationExpression": "a generated column",
    "delta.identity.": "an identity column",
    "delta.invariants": "a column with an invariant",
}
"""How metadata of columns begin whose values the table has a say in."""


class DeltaLake:
    """A Delta table.

    Args:
        options: of the table.
    """

    prefix = "part"

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._storage = dict(options.storage) or None
        self.division: Division | None = None

    @property
    def location(self) -> str:
        """The table's folder or URI."""
        return self._options.path

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self._options.path, storage_options=self._storage)
        except TableNotFoundError as error:
            raise LakeError(f"there is no {self._options.name}") from error
        except DeltaError as error:  # among others a feature that deltalake does not know
            raise LakeError(f"{self._options.name} cannot be opened: {error}") from error

    def _open_as_of(self) -> DeltaTable:
        """The table as the options want to read it.

        Raises:
            LakeError: it has no such version, or what it was made of is gone from its log.
        """
        table = self._open()
        version, time = self._options.version_as_of, self._options.timestamp_as_of
        if version is None and time is None:
            return table
        newest = table.version()
        asked = f"versionAsOf={version}" if version is not None else f"timestampAsOf={time}"
        try:
            table.load_as_version(version if version is not None else time)  # type: ignore[arg-type]
        except DeltaError as error:
            raise LakeError(
                f"{asked}: {self._options.name} has no such version, the newest is {newest}: {error}"
            ) from error
        return table

    def prepare(self, schema: pa.Schema) -> pa.Schema:
        """See `LakeTable.prepare`."""
        name = self._options.name
        if not DeltaTable.is_deltatable(self._options.path, storage_options=self._storage):
            check_parts(self._options.parts, schema, name, in_files=False)
            DeltaTable.create(
                self._options.path,
                schema=schema,
                mode="ignore",
                partition_by=[part.column for part in self._options.parts],
                storage_options=self._storage,
            )
        table = self._open()
        self._refuse(_not_written(table))
        there = _arrow(table)
        parts = agreed(self._options.parts, parts_of(table.metadata().partition_columns), name)
        check_parts(parts, schema, name, in_files=False)
        self.division = Division(parts) if parts else None
        new = fitting(schema, there, name)
        if new:
            if not self._options.merge_schema:
                raise refuse_new(new, there, name)
            fields = deltalake.Schema.from_arrow(
                pa.schema([schema.field(column).with_nullable(True) for column in new])
            )
            table.alter.add_columns(fields.fields)
        return requiring(schema, there)

    def _refuse(self, features: Sequence[str]) -> None:
        """Refuse the table for features that it has.

        Raises:
            LakeError: there are some.
        """
        if features:
            raise LakeError(
                f"{self._options.name} has {'; '.join(features)}, which tianzhou_lake does not know how to keep; "
                "use a table without, or another tool for this one"
            )

    def committed(self, writer: str) -> int | None:
        """See `LakeTable.committed`."""
        return self._open().transaction_version(writer)

    def commit(self, files: Sequence[NewFile], batch: Batch, overwrite: bool) -> bool:
        """See `LakeTable.commit`."""
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, file.values, now, True, file.stats) for file in files
        ]

        def once() -> bool:
            table = self._open()
            self._refuse(_not_written(table))
            if batch.writer is not None and batch.is_in(table.transaction_version(batch.writer)):
                return False
            table.create_write_transaction(
                actions,
                mode="overwrite" if overwrite else "append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns or None,
                commit_properties=commit_properties(batch),
            )
            return True

        return retried(once, CommitFailedError, f"{self._options.name}: batch {batch.number} is not committed")

    def known(self, paths: Sequence[str]) -> set[str]:
        """See `LakeTable.known`."""
        names = {uri.rpartition("/")[2] for uri in self._open().file_uris()}
        return {path for path in paths if path.rpartition("/")[2] in names}

    def compact(self, target_bytes: int) -> int:
        """See `LakeTable.compact`."""
        table = self._open()
        self._refuse(_not_written(table))
        metrics: dict[str, Any] = table.optimize.compact(target_size=target_bytes)
        return int(metrics["numFilesRemoved"])

    def files(self, conditions: Sequence[Condition] = ()) -> list[TableFile]:
        """See `LakeTable.files`."""
        table = self._open_as_of()
        self._refuse(_not_read(table))
        uris = table.file_uris()
        columns = table.metadata().partition_columns
        if not columns:
            return [TableFile(uri) for uri in sorted(uris)]
        entries: Any = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = []
        for uri, entry in zip(uris, entries, strict=True):
            if unquote(uri).rpartition("/")[2] != unquote(entry["path"]).rpartition("/")[2]:
                raise LakeError(f"{self._options.name}: deltalake lists {uri} where the log has {entry['path']}")
            file = TableFile(uri, {column: entry[f"partition.{column}"] for column in columns})
            if may_hold(file.values, conditions):
                files.append(file)
        return sorted(files, key=lambda file: file.path)

    def schema(self) -> pa.Schema:
        """See `LakeTable.schema`."""
        table = self._open_as_of()
        self._refuse(_not_read(table))
        return _arrow(table)


def _not_read(table: DeltaTable) -> list[str]:
    """What of a table makes its rows other than those of its files, taken by name."""
    metadata, features = table.metadata(), table.protocol().reader_features or []
    found = []
    mode = metadata.configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        found.append(f"column mapping (delta.columnMapping.mode={mode})")
    if "deletionVectors" in features and any(batch.num_rows for batch in table.deletion_vectors()):
        found.append("deletion vectors")
    return found


def _not_written(table: DeltaTable) -> list[str]:
    """What of a table files alone cannot fulfil: `deltalake` commits them without a look inside."""
    configuration = table.metadata().configuration
    found = _not_read(table)
    if configuration.get("delta.enableDeletionVectors") == "true" and "deletion vectors" not in found:
        found.append("deletion vectors (delta.enableDeletionVectors=true)")
    prefix = "delta.constraints."
    found += [
        f"the constraint {name.removeprefix(prefix)} ({rule})"
        for name, rule in sorted(configuration.items())
        if name.startswith(prefix)
    ]
    for field in table.schema().fields:
        kinds = {kind for key in field.metadata for begin, kind in _COMPUTED.items() if key.startswith(begin)}
        found += [f"{kind} ({field.name})" for kind in sorted(kinds)]
    return found


def commit_properties(batch: Batch) -> CommitProperties:
    """What a commit says about itself; with a writer, the batch, which is looked for before it is committed again."""
    if batch.writer is None:
        return CommitProperties(custom_metadata={"userMetadata": "tianzhou"})
    mark = deltalake.Transaction(batch.writer, batch.number, int(time.time() * 1000))
    return CommitProperties(custom_metadata={"userMetadata": f"tianzhou batch {batch.number}"}, app_transactions=[mark])


def _arrow(table: DeltaTable) -> pa.Schema:
    schema: Any = table.schema().to_arrow()
    return pa.schema(schema)
