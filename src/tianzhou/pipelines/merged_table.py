"""Merged table: the changes in a topic (see `binlog_changes`) as a Delta table that equals the database's.

Of all changes of a key the one with the greatest position counts, unless the table was truncated after it. Each
micro-batch is one MERGE into the table (see `tianzhou.spark.lake.merging`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError
from tianzhou.pipelines.binlog.columns import quoted
from tianzhou.pipelines.binlog.typed_rows import naming_faults, typed_rows
from tianzhou.pipelines.topics import Topics, started
from tianzhou.spark.lake.formats import open_table
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch
from tianzhou.spark.rows.schema import arrow_schema

RETENTION = dt.timedelta(days=7)
"""Default time for which replaced files and the keys of deleted rows are retained."""
TRUNCATED = "_truncated"
"""Name of the file with the position of the last truncation of the database's table."""


def newest(rows: DataFrame) -> DataFrame:
    """Return the change with the greatest position of each key."""
    columns = [name for name in rows.columns if name != "_key"]
    return (
        rows.groupBy("_key")
        .agg(f.max_by(f.struct(*[f.col(quoted(name)) for name in columns]), "_position").alias("newest"))
        .select("_key", *[f.col("newest")[name].alias(name) for name in columns])
    )


def changes_of(rows: DataFrame, table: str, schema: StructType) -> DataFrame:
    """Return messages as rows of the table, with the columns `_key`, `_position`, `_deleted` and `_truncates`."""
    return typed_rows(rows, table, schema)


def settled(changes: DataFrame, to: Path, rows: Callable[[], DataFrame]) -> DataFrame:
    """Return the valid changes, and a deletion of each row that a truncation among the changes deletes.

    The position of the last truncation is stored beside the table, because other queues may deliver older changes
    later.

    Args:
        changes: result of `changes_of`.
        to: the table's folder.
        rows: returns the rows of the table, with `_key` and `_position`.
    """
    newest_truncation = changes.where("_truncates").agg(f.max("_position")).first()
    found = newest_truncation[0] if newest_truncation is not None else None
    truncated = max(found or "", truncated_at(to))
    changes = changes.drop("_truncates")
    if not truncated:
        return changes
    if found:
        remember_truncated(to, truncated)
    return without_truncated(changes, rows() if found else None, truncated)


def without_truncated(changes: DataFrame, rows: DataFrame | None, truncated: str) -> DataFrame:
    """Return the changes that are valid after a truncation at a position, and deletions of older rows.

    Args:
        changes: the changes.
        rows: the rows of the table with `_key` and `_position`; None if older rows are known to be deleted.
        truncated: the position. Older changes are dropped, and older rows are deleted.
    """
    kept = changes.where(f.col("_position") > truncated)
    if rows is None:
        return kept
    gone = rows.where(f.col("_position") < truncated).select(
        "_key", f.lit(truncated).alias("_position"), f.lit(True).alias("_deleted")
    )
    return kept.unionByName(gone, allowMissingColumns=True)


def truncated_at(to: Path) -> str:
    """Return the position of the last truncation; empty without one."""
    mark = to / TRUNCATED
    return mark.read_text(encoding="utf-8") if mark.exists() else ""


def remember_truncated(to: Path, position: str) -> None:
    """Store the position of a truncation, so that older changes of other queues are dropped later."""
    mark = to / f"{TRUNCATED}.new"
    mark.write_text(position, encoding="utf-8")
    mark.replace(to / TRUNCATED)


def is_merged(to: str) -> bool:
    """Whether a folder contains a table."""
    return (Path(to) / "_delta_log").is_dir()


def merged(spark: SparkSession, to: str) -> DataFrame:
    """Return the table in its current version.

    Raises:
        ConfigError: the folder contains no merged table.
    """
    if not is_merged(to):
        raise ConfigError(f"{to}: holds no merged table yet; make one with: tianzhou pipeline merge")
    return spark.read.format("tianzhou_lake").load(to).drop("_key", "_position")


def merge(
    topics: Topics,
    source: str,
    to: str,
    *,
    table: str,
    schema: str,
    retention: dt.timedelta = RETENTION,
    follow: bool = False,
    most: int = 200_000,
) -> StreamingQuery:
    """Start merging the changes in a topic into a table.

    Args:
        topics: the cluster.
        source: the topic of `binlog_changes`.
        to: folder of the table, on a disk that all Spark processes share.
        table: `schema.table` as in the changes.
        schema: its columns in Spark's notation, `id INT, name STRING`.
        retention: how long replaced files and the keys of deleted rows are retained.
        follow: whether to continue with later changes.
        most: maximum number of changes in a micro-batch.

    Raises:
        ConfigError: the schema is malformed, the folder contains a table of other columns, or deltalake is missing.
    """
    spark = topics.spark
    try:
        columns = spark.createDataFrame([], schema).schema
    except Exception as error:
        raise ConfigError(f"--schema {schema!r}: expected columns and types, as in 'id INT, name STRING'") from error
    open_table(parse_lake({"path": to}))  # The error names a missing package.
    from tianzhou.spark.lake.merging import MAINTENANCE_BATCHES, MergedDelta

    if ticked := [name for name in columns.names if "`" in name]:
        raise ConfigError(f"--schema: column {ticked[0]}: the MERGE of a Delta table takes no backtick in a name")
    folder = Path(to)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "_checkpoint"
    stream = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=most)
    target = MergedDelta(to, arrow_schema(changes_of(stream, table, columns).drop("_truncates").schema))

    def next_batch(rows: DataFrame, batch: int) -> None:
        found = changes_of(rows, table, columns).persist()
        query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        now = dt.datetime.now(dt.UTC)
        try:
            with naming_faults():
                changes = settled(found, folder, lambda: spark.read.format("tianzhou_lake").load(to))
                target.merge(newest(changes).toArrow(), Batch(query, batch), now)
        finally:
            found.unpersist()
        if (batch + 1) % MAINTENANCE_BATCHES == 0:
            target.maintain(retention, now)

    return started(stream.writeStream.foreachBatch(next_batch), str(checkpoint), follow=follow)
