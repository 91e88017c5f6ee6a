"""Changes of rows merged into a Delta table by the MERGE of `deltalake`.

The table holds the rows that are; a change knows its row by `_key` and counts when its `_position` is greater than what
the row has. So that a repeated older change does not bring a deleted row back, keys of deleted rows stay in a
second Delta table below the first, in a folder that readers pass over.

A batch is: the deleted keys into the second table, then one MERGE into the first, which names the batch. Each step
changes nothing when it is done again, so a driver may die anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from tianzhou.errors import ConfigError
from tianzhou.spark.lake.delta import DeltaLake, commit_properties
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.reading import file_batches
from tianzhou.spark.lake.tables import Batch, retried

if TYPE_CHECKING:
    from deltalake.table import TableMerger

logger = logging.getLogger(__name__)

KEY: Final = "_key"
POSITION: Final = "_position"
DELETED: Final = "_deleted"
GONE: Final = "_deleted_keys"
"""The folder of the second table, below the first one's."""
_MARKS: Final = pa.schema([(KEY, pa.string()), (POSITION, pa.string())])
_LATER: Final = f"s.{POSITION} > t.{POSITION}"


class MergedDelta:
    """A Delta table that changes are merged into.

    Args:
        path: the table's folder; it is made when there is none.
        columns: of the changes: text columns KEY and POSITION, a boolean DELETED, and the row's own.

    Raises:
        ConfigError: there is a table of other columns, or one that was not made here.
        LakeError: the table is of a kind that is not written here; names what it has.
    """

    def __init__(self, path: str, columns: pa.Schema) -> None:
        self._path, self._gone_path = path, f"{path}/{GONE}"
        if DeltaTable.is_deltatable(path):
            there = {field.name for field in DeltaTable(path).schema().fields}
            if not {KEY, POSITION} <= there:
                raise ConfigError(
                    f"{path}: is a Delta table without {KEY} and {POSITION}, so no merge has made it; merge into a "
                    "folder of its own"
                )
        rows = pa.schema([field for field in columns if field.name != DELETED])
        self._columns = pa.schema([*_lake(path).prepare(rows), columns.field(DELETED)])
        _lake(self._gone_path).prepare(_MARKS)

    def merge(self, changes: pa.Table, batch: Batch) -> bool:
        """Merge a batch of changes; False when it was merged before.

        Args:
            changes: one for each key.
            batch: whose batch it is.

        Raises:
            LakeError: the table refuses.
        """
        if batch.writer is not None and batch.is_in(DeltaTable(self._path).transaction_version(batch.writer)):
            return False
        changes = changes.select(self._columns.names).cast(self._columns)
        gone = changes.filter(pc.field(DELETED))
        if gone.num_rows:
            self._merge(self._gone_path, gone.select([KEY, POSITION]), Batch(None, 0), _keep_latest)
        changes = self._without_older(changes)
        if changes.num_rows:
            self._merge(self._path, changes, batch, _apply)
        return True

    def _without_older(self, changes: pa.Table) -> pa.Table:
        """Changes but those that came before their row was deleted."""
        keys: list[Any] = changes.column(KEY).to_pylist()
        positions: list[Any] = changes.column(POSITION).to_pylist()
        wanted, gone = pa.array(keys, pa.string()), dict[Any, Any]()
        for file in _lake(self._gone_path).files():
            for batch in file_batches(file, _MARKS):
                marks = batch.filter(pc.is_in(batch.column(0), value_set=wanted)).to_pydict()
                gone |= dict(zip(marks[KEY], marks[POSITION], strict=True))
        if not gone:
            return changes
        left = [position >= gone.get(key, "") for key, position in zip(keys, positions, strict=True)]
        return changes.filter(pa.array(left, pa.bool_()))

    def _merge(self, path: str, rows: pa.Table, batch: Batch, rules: Callable[[TableMerger], TableMerger]) -> None:
        def once() -> dict[str, Any]:
            merger = DeltaTable(path).merge(
                rows,
                f"t.{KEY} = s.{KEY}",
                source_alias="s",
                target_alias="t",
                commit_properties=commit_properties(batch),
                streamed_exec=False,  # so that the keys' least and greatest leave out files
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
