"""Merged table: the changes in a topic (see `binlog_changes`) as a Delta table that equals the database's.

Of all changes of a key the one with the greatest position counts. Each micro-batch is one MERGE into the table (see
`tianzhou.spark.lake.merging`).
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.errors import ConfigError
from tianzhou.pipelines.topics import Topics, started, text_body
from tianzhou.spark.lake.formats import open_table
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch
from tianzhou.spark.rows.schema import arrow_schema

CHANGE = "op STRING, table STRING, key STRING, row STRING, position STRING"
RETENTION = dt.timedelta(days=7)
"""Default time for which replaced files and the keys of deleted rows are kept."""


def newest(rows: DataFrame) -> DataFrame:
    """Return of the changes of each key the one with the greatest position."""
    columns = [name for name in rows.columns if name != "_key"]
    return (
        rows.groupBy("_key")
        .agg(f.max_by(f.struct(*columns), "_position").alias("newest"))
        .select("_key", *[f.col("newest")[name].alias(name) for name in columns])
    )


def changes_of(rows: DataFrame, table: str, schema: str) -> DataFrame:
    """Return messages as rows of the table, with `_key`, `_position` and `_deleted` beside them."""
    change = f.from_json(text_body(), CHANGE).alias("change")
    row = f.from_json("change.row", schema).alias("row")
    return (
        rows.select(change)
        .where(f.col("change.table") == table)
        .select(
            f.col("change.key").alias("_key"),
            f.col("change.position").alias("_position"),
            (f.col("change.op") == "delete").alias("_deleted"),
            row,
        )
        .select("_key", "_position", "_deleted", "row.*")
    )


def is_merged(to: str) -> bool:
    """Whether a folder holds a table."""
    return (Path(to) / "_delta_log").is_dir()


def merged(spark: SparkSession, to: str) -> DataFrame:
    """Return the table in its current version.

    Raises:
        ConfigError: nothing was merged into the folder yet.
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
        to: folder of the table, on a disk that all of Spark sees.
        table: `schema.table` as the changes name it.
        schema: its columns as Spark writes them, `id INT, name STRING`.
        retention: time for which replaced files and the keys of deleted rows are kept.
        follow: continue with later changes.
        most: maximum number of changes in a micro-batch.

    Raises:
        ConfigError: the columns are no schema, the folder holds a table of other columns, or deltalake is missing.
    """
    spark = topics.spark
    try:
        spark.createDataFrame([], schema)
    except Exception as error:
        raise ConfigError(f"--schema {schema!r}: expected columns and types, as in 'id INT, name STRING'") from error
    open_table(parse_lake({"path": to}))  # an error here names the package to install
    from tianzhou.spark.lake.merging import MAINTENANCE_BATCHES, MergedDelta

    Path(to).mkdir(parents=True, exist_ok=True)
    checkpoint = Path(to) / "_checkpoint"
    stream = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=most)
    target = MergedDelta(to, arrow_schema(changes_of(stream, table, schema).schema))

    def next_merge(rows: DataFrame, batch: int) -> None:
        found = changes_of(rows, table, schema).where("_key IS NOT NULL AND _position IS NOT NULL")
        query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        now = dt.datetime.now(dt.UTC)
        target.merge(newest(found).toArrow(), Batch(query, batch), now)
        if (batch + 1) % MAINTENANCE_BATCHES == 0:
            target.maintain(retention, now)

    return started(stream.writeStream.foreachBatch(next_merge), str(checkpoint), follow=follow)
