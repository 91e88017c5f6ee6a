"""The time that pipelines with a state go by: when messages were stored, and how far the slowest queue has come.

Spark's own watermark follows the newest row of all. Of two queues of different age, all rows of the older one would be
late, and late rows are dropped. So the watermark here follows the column `slowestTimestamp` of the source, which is the
store time that every queue has reached: rows that come later are never older.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tianzhou.pipelines.topics import made_at
from tianzhou.spark.rows.schema import SLOWEST, SLOWEST_BEFORE

AT: Final = "at"
"""Column of the event time."""
STORE: Final = "store"
"""Value of `--time`: the broker's time."""
BORN: Final = "born"
"""Value of `--time`: the producer's time."""
BY_SLOWEST: Final = {"includeSlowestTimestamp": True}
"""Options of the source for streams whose watermark follows the slowest queue."""
_DELAY: Final = "spark.watermarkDelayMs"
"""Metadata by which Spark recognises the column of the event time, and knows its delay in ms."""


def delay_ms(rows: DataFrame, delay: str, column: str = SLOWEST) -> int:
    """Return the milliseconds of a time as Spark reads it, as in `10 minutes`.

    Args:
        rows: a stream with the column.
        delay: the time.
        column: name of a column of times.

    Raises:
        AnalysisException: it is no time.
    """
    found: int = rows.withWatermark(column, delay).schema[column].metadata[_DELAY]
    return found


def with_slowest_watermark(rows: DataFrame, at: Column, *, late: str, kept: str | None = None) -> DataFrame:
    """Add the event time `at`, whose watermark is the time that the slowest queue has reached, less `late`.

    Rows without the column `slowestTimestamp`, as of a batch read, get Spark's own watermark.

    Args:
        rows: messages; they lose the columns `slowestTimestamp` and `slowestBefore`.
        at: the event time.
        late: how much older than the slowest queue a message may be and still count, as in `10 seconds`.
        kept: how long `dropDuplicatesWithinWatermark` remembers a row after its event time; None for `late`.
    """
    if SLOWEST not in rows.columns:
        return rows.withColumn(AT, at).withWatermark(AT, kept or late)
    columns = [name for name in rows.columns if name not in (SLOWEST, SLOWEST_BEFORE)]
    # A row is late when it is not newer than the watermark, so one millisecond more keeps rows that are as old.
    marked = rows.withWatermark(SLOWEST, f"{delay_ms(rows, late) + 1} milliseconds")
    # Spark takes the watermark from one column and the event time from another, which bears the first one's metadata.
    return marked.select(*columns, at.alias(AT, metadata={_DELAY: delay_ms(rows, kept or late)}))


def not_behind_slowest(rows: DataFrame, at: Column) -> Column:
    """Return a time that is no older than the slowest queue was before, which its watermark does not drop."""
    return f.greatest(at, f.col(SLOWEST_BEFORE)) if SLOWEST_BEFORE in rows.columns else at


def slowest_columns(rows: DataFrame) -> list[str]:
    """Return the columns of rows that say how far the slowest queue has come."""
    return [name for name in rows.columns if name in (SLOWEST, SLOWEST_BEFORE)]


def time_of(rows: DataFrame, time: str) -> Column:
    """Return the time that `--time` names: `storeTimestamp`, or `bornTimestamp` where that is a date."""
    return f.col("storeTimestamp") if time == STORE else made_at(rows)
