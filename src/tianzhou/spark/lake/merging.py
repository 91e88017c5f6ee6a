"""Changes of rows merged into a Delta table by the MERGE of `deltalake`.

The table holds the current rows. A change names its row by `_key`. It counts if its `_position` is greater than that of
the row. The keys of deleted rows are in a second Delta table in a folder below the first, which readers of the first
ignore. A repeated older change of a deleted row therefore does not bring the row back.

A batch is one commit to the second table and one MERGE into the first, which names the batch. Either may be repeated
without effect, so the driver may be killed at any point.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.delta import DeltaLake, commit_properties, read_part
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch, LakeError, retried

if TYPE_CHECKING:
    from deltalake.table import TableMerger

logger = logging.getLogger(__name__)

KEY: Final = "_key"
POSITION: Final = "_position"
DELETED: Final = "_deleted"
DELETED_AT: Final = "_deleted_at"
DELETED_KEYS: Final = "_deleted_keys"
"""Folder of the second table, below the first."""
MAINTENANCE_BATCHES: Final = 16
"""Number of batches after which `MergedDelta.maintain` is due."""
_TARGET_BYTES: Final = 128 << 20
_COLUMNS: Final[dict[str, pa.DataType]] = {
    KEY: pa.string(),
    POSITION: pa.string(),
    DELETED_AT: pa.timestamp("us", "UTC"),
}
_MARKS: Final = pa.schema(_COLUMNS)
_LATER: Final = f"s.{POSITION} > t.{POSITION}"


class MergedDelta:
    """A Delta table into which changes are merged.

    Args:
        path: folder of the table. It is created if it is missing.
        columns: columns of the changes: texts KEY and POSITION, a boolean DELETED, and the columns of the row.

    Raises:
        ConfigError: the table has other columns, or was not created here.
        LakeError: the table has a feature that cannot be written; names the feature.
    """

    def __init__(self, path: str, columns: pa.Schema) -> None:
        self._path, self._keys_path = path, f"{path}/{DELETED_KEYS}"
        if DeltaTable.is_deltatable(path):
            there = {field.name for field in DeltaTable(path).schema().fields}
            if not {KEY, POSITION} <= there:
                raise ConfigError(
                    f"{path}: is a Delta table without {KEY} and {POSITION}, so no merge has created it; merge into a "
                    "folder of its own"
                )
        rows = pa.schema([field for field in columns if field.name != DELETED])
        target = _lake(path).prepare(rows)
        self._names = [DELETED, *target.names]
        self._columns = pa.schema([columns.field(DELETED), *target.schema])
        _lake(self._keys_path).prepare(_MARKS)

    def merge(self, changes: pa.Table, batch: Batch, now: dt.datetime) -> bool:
        """Merge a batch of changes. Return False if the table has the batch already.

        Args:
            changes: at most one per key.
            batch: the batch.
            now: the time from which the retention of deleted keys counts.

        Raises:
            LakeError: the table refuses the commit.
        """
        if batch.writer is not None and batch.is_in(DeltaTable(self._path).transaction_version(batch.writer)):
            return False
        changes = changes.select(self._names).rename_columns(self._columns.names).cast(self._columns)
        gone = changes.filter(pc.field(DELETED))
        if gone.num_rows:
            times = pa.repeat(pa.scalar(now, _MARKS.field(DELETED_AT).type), gone.num_rows)
            marks = gone.select([KEY, POSITION]).append_column(_MARKS.field(DELETED_AT), times)
            self._merge(self._keys_path, marks, Batch(None, 0), _keep_latest)
        changes = self._without_older(changes)
        if changes.num_rows:
            self._merge(self._path, changes, batch, _apply)
        return True

    def maintain(self, retention: dt.timedelta, now: dt.datetime) -> None:
        """Merge small files, expire the keys of old deletions, and delete files that no recent version contains.

        A failure is logged. The next call repeats the work.

        Args:
            retention: how long replaced files and the keys of deleted rows are retained.
            now: the current time.
        """
        try:
            oldest = (now - retention).astimezone(dt.UTC).isoformat()
            self._expire(f"{DELETED_AT} < arrow_cast('{oldest}', 'Timestamp(Microsecond, Some(\"UTC\"))')")
            for path in (self._keys_path, self._path):
                _lake(path).compact(_TARGET_BYTES)
                DeltaTable(path).vacuum(
                    int(retention.total_seconds() // 3600), dry_run=False, enforce_retention_duration=False, full=True
                )
        except (LakeError, DeltaError, OSError) as error:
            logger.warning("%s: small files and old versions are not cleaned up this time: %s", self._path, error)

    def _expire(self, predicate: str) -> None:
        def once() -> None:
            properties = commit_properties(Batch(None, 0), next_version_only=True)
            DeltaTable(self._keys_path).delete(predicate, commit_properties=properties)

        retried(once, CommitFailedError, f"{self._keys_path}: old keys of deleted rows are not removed")

    def _without_older(self, changes: pa.Table) -> pa.Table:
        """Return the changes that do not precede the deletion of their row."""
        keys: list[Any] = changes.column(KEY).to_pylist()
        gone: dict[str, str] = {}
        for part in _lake(self._keys_path).scan():
            for batch in read_part(part, _MARKS):
                found = batch.filter(pc.is_in(batch.column(0), value_set=pa.array(keys, pa.string()))).to_pydict()
                gone |= dict(zip(found[KEY], found[POSITION], strict=True))
        positions: list[Any] = changes.column(POSITION).to_pylist()
        kept = [position >= gone.get(key, "") for key, position in zip(keys, positions, strict=True)]
        return changes.filter(pa.array(kept, pa.bool_()))

    def _merge(self, path: str, rows: pa.Table, batch: Batch, rules: Callable[[TableMerger], TableMerger]) -> None:
        def once() -> dict[str, Any]:
            table = DeltaTable(path)
            if batch.writer is not None and batch.is_in(table.transaction_version(batch.writer)):
                return {}
            merger = table.merge(
                rows,
                f"t.{KEY} = s.{KEY}",
                source_alias="s",
                target_alias="t",
                commit_properties=commit_properties(batch, next_version_only=True),
                streamed_exec=False,  # bounds of the keys then exclude files
            )
            return rules(merger).execute()

        figures = retried(once, CommitFailedError, f"{path}: batch {batch.number} is not merged")
        logger.debug("merged into %s: %s", path, figures)


def _keep_latest(merger: TableMerger) -> TableMerger:
    return merger.when_matched_update_all(_LATER).when_not_matched_insert_all()


def _apply(merger: TableMerger) -> TableMerger:
    return (
        merger.when_matched_delete(f"s.{DELETED} AND {_LATER}")
        .when_matched_update_all(f"NOT s.{DELETED} AND {_LATER}", except_cols=[DELETED])
        .when_not_matched_insert_all(f"NOT s.{DELETED}", except_cols=[DELETED])
    )


def _lake(path: str) -> DeltaLake:
    return DeltaLake(parse_lake({"path": path}))
