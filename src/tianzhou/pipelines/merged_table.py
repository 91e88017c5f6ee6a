"""Merged table: the changes in a topic (see `binlog_changes`) as a table that equals the database's.

Of all changes of a key the one with the greatest position counts. A Delta table is changed by its own MERGE, a commit a
micro-batch (see `tianzhou.spark.lake.merging`).

A Parquet table is divided into parts by the hash of the key. Each micro-batch rewrites the parts that hold a key it
changes, below `version=N`, and then the file `CURRENT`, which says where each part is: readers see a whole version, and
a batch that is run again makes the same table again. Deleted rows stay as marks, so that a repeated older change does
not bring them back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tianzhou.errors import ConfigError
from tianzhou.pipelines.topics import Topics, started, text_body
from tianzhou.spark.lake.formats import open_table
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.lake.tables import Batch
from tianzhou.spark.rows.schema import arrow_schema

CURRENT = "CURRENT"
PARTS = 32
"""Number of parts of the table; a batch that changes fewer keys leaves some alone."""
PARQUET, DELTA = "parquet", "delta"
CHANGE = "op STRING, table STRING, key STRING, row STRING, position STRING"


@dataclass(frozen=True)
class Version:
    """What `CURRENT` says.

    Attributes:
        number: one more than the former one's.
        columns: the schema of the files, as Spark writes it in JSON.
        parts: the folder of each part that holds rows, below the table's.
    """

    number: int
    columns: str
    parts: Mapping[str, str]

    def rows(self, spark: SparkSession, to: Path, parts: Collection[str] | None = None) -> DataFrame:
        """The rows of some parts, or of all."""
        schema = StructType.fromJson(json.loads(self.columns))
        folders = [str(to / place) for part, place in self.parts.items() if parts is None or part in parts]
        return spark.read.schema(schema).parquet(*folders) if folders else spark.createDataFrame([], schema)


def part() -> Column:
    """The part of the table a row belongs to."""
    return f.pmod(f.xxhash64("_key"), f.lit(PARTS)).cast("string")


def newest(rows: DataFrame) -> DataFrame:
    """Of the changes of each key, the one with the greatest position, with the part it belongs to."""
    columns = [name for name in rows.columns if name != "_key"]
    return (
        rows.withColumn("_part", part())
        .repartition("_part")  # so that a part is one file, and grouping has nothing to move
        .groupBy("_part", "_key")
        .agg(f.max_by(f.struct(*columns), "_position").alias("newest"))
        .select("_part", "_key", *[f.col("newest")[name].alias(name) for name in columns])
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


def version_of(to: Path) -> Version | None:
    """The version that counts; None before the first."""
    current = to / CURRENT
    return Version(**json.loads(current.read_text(encoding="utf-8"))) if current.exists() else None


def format_of(to: Path) -> str | None:
    """The format of the table in a folder; None when it holds none."""
    if (to / "_delta_log").is_dir():
        return DELTA
    return PARQUET if (to / CURRENT).exists() else None


def merged(spark: SparkSession, to: str) -> DataFrame:
    """The table as it is now.

    Raises:
        ConfigError: nothing was merged into the folder yet.
    """
    if format_of(Path(to)) == DELTA:
        return spark.read.format("tianzhou_lake").load(to).drop("_key", "_position")
    version = version_of(Path(to))
    if version is None:
        raise ConfigError(f"{to}: holds no merged table yet; make one with: tianzhou pipeline merge")
    return version.rows(spark, Path(to)).where("NOT _deleted").drop("_key", "_position", "_deleted")


def merge(
    topics: Topics,
    source: str,
    to: str,
    *,
    table: str,
    schema: str,
    table_format: str | None = None,
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
        table_format: PARQUET or DELTA; None for what the folder holds, PARQUET when it holds nothing.
        follow: go on with later changes.
        most: most changes in a micro-batch.

    Raises:
        ConfigError: the columns are no schema, or the folder holds a table of the other format, or of other columns.
    """
    folder = Path(to)
    spark = topics.spark
    there = format_of(folder)
    if table_format is not None and there not in (None, table_format):
        raise ConfigError(f"{to}: holds a merged table in {there}, not in {table_format}; choose another folder")
    delta = (table_format or there) == DELTA
    try:
        spark.createDataFrame([], schema)
    except Exception as error:
        raise ConfigError(f"--schema {schema!r}: expected columns and types, as in 'id INT, name STRING'") from error

    def next_version(rows: DataFrame, _batch: int) -> None:
        # A batch that is run again makes the next version once more, of the same rows.
        before = version_of(folder)
        number = 0 if before is None else before.number + 1
        target = f"version={number}"
        changes = changes_of(rows, table, schema).persist()
        try:
            touched = {row[0] for row in changes.select(part()).distinct().collect()}
            all_rows = changes if before is None else changes.unionByName(before.rows(spark, folder, touched))
            if touched:
                newest(all_rows).write.mode("overwrite").partitionBy("_part").parquet(str(folder / target))
        finally:
            changes.unpersist()
        there = {} if before is None else before.parts
        after = Version(
            number, changes.schema.json(), {**there, **{one: f"{target}/_part={one}" for one in sorted(touched)}}
        )
        mark = folder / f"{CURRENT}.new"
        mark.write_text(json.dumps(vars(after)), encoding="utf-8")
        mark.replace(folder / CURRENT)
        # What was the table until now stays: a reader that has just begun with it can end with it.
        _remove_all_but(folder, {*after.parts.values(), *there.values()})

    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "_checkpoint"
    stream = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=most)
    if delta:
        open_table(parse_lake({"path": to}))  # says what to install
        from tianzhou.spark.lake.merging import MergedDelta

        target = MergedDelta(to, arrow_schema(changes_of(stream, table, schema).schema))

        def next_merge(rows: DataFrame, batch: int) -> None:
            found = changes_of(rows, table, schema).where("_key IS NOT NULL AND _position IS NOT NULL")
            query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
            target.merge(newest(found).drop("_part").toArrow(), Batch(query, batch))

    writer = stream.writeStream.foreachBatch(next_merge if delta else next_version)
    return started(writer, str(checkpoint), follow=follow)


def _remove_all_but(folder: Path, named: Collection[str]) -> None:
    """Remove parts that no version names, and folders of versions without parts."""
    for version in folder.glob("version=*"):
        parts = list(version.glob("_part=*"))
        gone = [one for one in parts if f"{version.name}/{one.name}" not in named]
        for path in [version] if len(gone) == len(parts) else gone:
            shutil.rmtree(path, ignore_errors=True)
