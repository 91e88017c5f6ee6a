"""A lake table compared with the database's: rows and checksums by range of keys, and the keys that differ.

The rows of the database go through the same types as changes (`typed_rows`). Both sides are joined by primary key,
divided into ranges of keys, and counted in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from tianzhou.errors import ConfigError
from tianzhou.pipelines.binlog.captured import Captured
from tianzhou.pipelines.binlog.columns import quoted
from tianzhou.pipelines.binlog.typed_rows import naming_faults, typed_rows

ONLY_IN_DATABASE, ONLY_IN_TABLE, DIFFERENT, REPEATED = "only in database", "only in table", "different", "repeated"


@dataclass(frozen=True)
class Range:
    """A range of keys.

    Attributes:
        first: the least key.
        last: the greatest key.
        rows_in_database: number of the database's rows in the range.
        rows_in_table: number of the lake table's rows in the range.
        checksum_in_database: checksum of the database's rows, as 16 hexadecimal digits.
        checksum_in_table: checksum of the lake table's rows.
    """

    first: str
    last: str
    rows_in_database: int
    rows_in_table: int
    checksum_in_database: str
    checksum_in_table: str


@dataclass(frozen=True)
class RowDifference:
    """A key whose rows differ.

    Attributes:
        key: the primary key's columns as JSON.
        kind: ONLY_IN_DATABASE, ONLY_IN_TABLE, DIFFERENT, or REPEATED for a key that is in the table more than once.
        columns: names of the columns that differ.
    """

    key: str
    kind: str
    columns: list[str]


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two tables.

    Attributes:
        rows_in_database: number of rows of the database's table.
        rows_in_table: number of rows of the lake's table.
        ranges: number of ranges of keys.
        different_keys: number of keys whose rows differ.
        columns_only_in_database: columns that the lake's table lacks.
        columns_only_in_table: columns that the database's table lacks.
        different_ranges: the ranges that contain keys whose rows differ.
        keys: the first keys whose rows differ, by range.
    """

    rows_in_database: int
    rows_in_table: int
    ranges: int
    different_keys: int
    columns_only_in_database: list[str] = field(default_factory=list)
    columns_only_in_table: list[str] = field(default_factory=list)
    different_ranges: list[Range] = field(default_factory=list)
    keys: list[RowDifference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the tables are equal."""
        return not (self.different_keys or self.columns_only_in_database or self.columns_only_in_table)

    def document(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {"equal": self.is_equal, **asdict(self)}


def compare(database: Captured, rows: DataFrame, table: DataFrame, *, ranges: int, most_keys: int) -> Comparison:
    """Compare a table of the database with one of the lake.

    Args:
        database: the table in the database.
        rows: the rows of the database's table, from `format("tianzhou_binlog")`.
        table: the lake's table.
        ranges: number of ranges into which keys are divided.
        most_keys: maximum number of keys in the result.

    Raises:
        ConfigError: the lake's table lacks a column of the primary key.
        ChangeRefused: a value of the database does not fit the lake's type.
    """
    there = [column.name for column in database.columns]
    missing_key = [name for name in database.key if name not in table.columns]
    if missing_key:
        raise ConfigError(f"the table lacks the key column {', '.join(missing_key)} of {database.full_name}")
    common = [name for name in there if name in table.columns]
    schema = t.StructType([table.schema[name] for name in common])
    left = typed_rows(rows, database.full_name, _nullable(schema), whole=False).select(*map(_column, common))
    joined = _joined(left, table.select(*map(_column, common)), database.key).persist(StorageLevel.DISK_ONLY)
    try:
        with naming_faults():
            parts = joined.repartitionByRange(ranges, *_sorted_by(database.key))
            found = _ranges(parts)
            different = joined.where(f.col("kind").isNotNull())
            keys = different.orderBy(*_sorted_by(database.key)).limit(most_keys).collect()
            count = different.count()
    finally:
        joined.unpersist()
    return Comparison(
        sum(one.rows_in_database for one in found),
        sum(one.rows_in_table for one in found),
        len(found),
        count,
        [name for name in there if name not in table.columns],
        [name for name in table.columns if name not in there],
        [one for one in found if one.checksum_in_database != one.checksum_in_table
         or one.rows_in_database != one.rows_in_table],
        [RowDifference(row["shown"], row["kind"], list(row["columns"])) for row in keys],
    )  # fmt: skip


def _nullable(schema: t.StructType) -> t.StructType:
    return t.StructType([t.StructField(one.name, one.dataType, nullable=True) for one in schema.fields])


def _column(name: str) -> Column:
    return f.col(quoted(name))


def _sorted_by(key: Sequence[str]) -> list[Column]:
    return [f.col("key")[name] for name in key]


def _joined(database: DataFrame, table: DataFrame, key: Sequence[str]) -> DataFrame:
    """Join both sides by key: `key`, `shown`, the rows `d` and `l`, `times` in the table, `kind` and `columns`."""
    names = database.columns
    rest = [name for name in names if name not in key]

    def packed(frame: DataFrame) -> DataFrame:
        return frame.select(
            f.struct(*[_column(name) for name in key]).alias("key"), f.struct(*map(_column, names)).alias("row")
        )

    left = packed(database).select("key", f.col("row").alias("d"))
    right = packed(table).groupBy("key").agg(f.first("row").alias("l"), f.count(f.lit(1)).alias("times"))
    columns = f.array_compact(
        f.array(*[f.when(~f.col("d")[name].eqNullSafe(f.col("l")[name]), f.lit(name)) for name in rest])
        if rest
        else f.array().cast("array<string>")
    )
    joined = left.join(right, "key", "full_outer").withColumn(
        "columns", f.when(f.col("d").isNotNull() & f.col("l").isNotNull(), columns).otherwise(f.array())
    )
    kind = (
        f.when(f.col("l").isNull(), ONLY_IN_DATABASE)
        .when(f.col("d").isNull(), ONLY_IN_TABLE)
        .when(f.col("times") > 1, REPEATED)
        .when(f.size("columns") > 0, DIFFERENT)
    )
    return joined.withColumn("kind", kind).withColumn("shown", f.to_json("key"))


def _ranges(parts: DataFrame) -> list[Range]:
    def checksum(side: str) -> Column:
        return f.bit_xor(f.when(f.col(side).isNotNull(), f.xxhash64(side)))

    found = (
        parts.groupBy(f.spark_partition_id().alias("part"))
        .agg(
            f.to_json(f.min("key")).alias("first"),
            f.to_json(f.max("key")).alias("last"),
            f.count("d").alias("in_database"),
            f.sum(f.coalesce("times", f.lit(0))).alias("in_table"),
            checksum("d").alias("d"),
            checksum("l").alias("l"),
        )
        .orderBy("part")
        .collect()
    )
    return [
        Range(
            row["first"], row["last"], row["in_database"], row["in_table"], _hexadecimal(row["d"]),
            _hexadecimal(row["l"]),
        )
        for row in found
    ]  # fmt: skip


def _hexadecimal(number: int | None) -> str:
    return f"{(number or 0) & 0xFFFFFFFFFFFFFFFF:016x}"
