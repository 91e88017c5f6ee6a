"""Merged table: the changes in a topic (see `binlog_changes`) as a table that equals the database's, in Parquet.

Each micro-batch writes the next version of the table, `version=N`, and then the file `CURRENT`, which names it: readers
see a whole version, and a batch that is run again writes the same one again. Of all changes of a key the one with the
greatest position counts; deleted rows stay as marks, so that a repeated older change does not bring them back.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.errors import ConfigError
from tianzhou.pipelines.topics import Topics, text_body

CURRENT = "CURRENT"
KEPT = 2
"""So many versions stay: a reader that has just begun with one can end with it."""
CHANGE = "op STRING, table STRING, key STRING, row STRING, position STRING"


def newest(rows: DataFrame) -> DataFrame:
    """Of the changes of each key, the one with the greatest position."""
    columns = [name for name in rows.columns if name != "_key"]
    return (
        rows.groupBy("_key")
        .agg(f.max_by(f.struct(*columns), "_position").alias("newest"))
        .select("_key", *[f.col("newest")[name].alias(name) for name in columns])
    )


def changes_of(rows: DataFrame, table: str, schema: str) -> DataFrame:
    """Messages as rows of the table, with `_key`, `_position` and `_deleted` beside them."""
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


def version_of(to: Path) -> Path | None:
    """The folder of the version that counts; None before the first."""
    current = to / CURRENT
    return to / current.read_text(encoding="utf-8").strip() if current.exists() else None


def merged(spark: SparkSession, to: str) -> DataFrame:
    """The table as it is now.

    Raises:
        ConfigError: nothing was merged into the folder yet.
    """
    version = version_of(Path(to))
    if version is None:
        raise ConfigError(f"{to}: holds no merged table yet; make one with: tianzhou pipeline merge")
    return spark.read.parquet(str(version)).where("NOT _deleted").drop("_key", "_position", "_deleted")


def merge(
    topics: Topics,
    source: str,
    to: str,
    *,
    table: str,
    schema: str,
    follow: bool = False,
    most: int = 200_000,
) -> StreamingQuery:
    """Start merging the changes in a topic into a table.

    Args:
        topics: the cluster.
        source: the topic of `binlog_changes`.
        to: the table's folder, on a disk all of Spark sees.
        table: `schema.table` as the changes name it.
        schema: its columns as Spark writes them, `id INT, name STRING`.
        follow: go on with later changes.
        most: most changes in a micro-batch.

    Raises:
        ConfigError: the columns are no schema.
    """
    folder = Path(to)
    spark = topics.spark
    try:
        spark.createDataFrame([], schema)
    except Exception as error:
        raise ConfigError(f"--schema {schema!r}: expected columns and types, as in 'id INT, name STRING'") from error

    def next_version(rows: DataFrame, batch: int) -> None:
        target = folder / f"version={batch}"
        before = version_of(folder)
        if before == target:  # this batch is run again, and had been whole
            return
        parts = changes_of(rows, table, schema)
        if before is not None:
            parts = spark.read.parquet(str(before)).unionByName(parts)
        newest(parts).write.mode("overwrite").parquet(str(target))
        mark = folder / f"{CURRENT}.new"
        mark.write_text(target.name, encoding="utf-8")
        mark.replace(folder / CURRENT)
        for old in sorted(folder.glob("version=*"), key=lambda path: int(path.name.partition("=")[2]))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    folder.mkdir(parents=True, exist_ok=True)
    writer = (
        topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=most)
        .writeStream.foreachBatch(next_version)
        .option("checkpointLocation", str(folder / "_checkpoint"))
    )
    return (writer.trigger(processingTime="1 second") if follow else writer.trigger(availableNow=True)).start()
