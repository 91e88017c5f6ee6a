"""The event time of pipelines with a state: the store time of messages, and a watermark that follows the slowest queue.

Spark's own watermark follows the newest row of all queues. If one queue is older than another, all its rows would be
late, and Spark drops late rows. So the watermark here follows the source's column `slowestTimestamp`, the store time
that every queue has reached. Later rows are never older.
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
"""Metadata by which Spark recognises the column of the event time, with its delay in ms."""


def delay_ms(rows: DataFrame, delay: str, column: str = SLOWEST) -> int:
    """Return the milliseconds of a duration in Spark's notation, as in `10 minutes`.

    Args:
        rows: a stream with the column.
        delay: the duration.
        column: name of a column of times.

    Raises:
        AnalysisException: the text is not a duration.
    """
    found: int = rows.withWatermark(column, delay).schema[column].metadata[_DELAY]
    return found


def with_slowest_watermark(rows: DataFrame, at: Column, *, late: str, kept: str | None = None) -> DataFrame:
    """Add the event time `at`. Its watermark is the time that the slowest queue has reached, minus `late`.

    Rows without the column `slowestTimestamp`, as from a batch read, get Spark's own watermark.

    Args:
        rows: messages. The result lacks the columns `slowestTimestamp` and `slowestBefore`.
        at: the event time.
        late: time by which a message may be older than the slowest queue and still count, as in `10 seconds`.
        kept: time for which `dropDuplicatesWithinWatermark` remembers a row after its event time; None for `late`.
    """
    if SLOWEST not in rows.columns:
        return rows.withColumn(AT, at).withWatermark(AT, kept or late)
    columns = [name for name in rows.columns if name not in (SLOWEST, SLOWEST_BEFORE)]
    # A row is late unless it is newer than the watermark, so add one millisecond to include rows that are equally old.
    marked = rows.withWatermark(SLOWEST, f"{delay_ms(rows, late) + 1} milliseconds")
    # Spark computes the watermark from one column. The event time is another column with the metadata of the first.
    return marked.select(*columns, at.alias(AT, metadata={_DELAY: delay_ms(rows, kept or late)}))


def not_behind_slowest(rows: DataFrame, at: Column) -> Column:
    """Return a time that is not before the slowest queue's time at the start of the batch.

    The watermark does not drop such rows.
    """
    return f.greatest(at, f.col(SLOWEST_BEFORE)) if SLOWEST_BEFORE in rows.columns else at


def slowest_columns(rows: DataFrame) -> list[str]:
    """Return the columns of rows with the times that the slowest queue has reached."""
    return [name for name in rows.columns if name in (SLOWEST, SLOWEST_BEFORE)]


def time_of(rows: DataFrame, time: str) -> Column:
    """Return the time for `--time`: `storeTimestamp`, or `bornTimestamp` where that is a date."""
    return f.col("storeTimestamp") if time == STORE else made_at(rows)
