"""Figures of message trace: duration and success of sends and handlers, by topic and group.

Clients with `trace=True` (`enableMsgTrace` in Java) write their sends and deliveries to the topic RMQ_SYS_TRACE_TOPIC.
Records end with U+0002, fields with U+0001 (wire.md §13). Spark splits them, without a Python step per message.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tianzhou.model.names import TRACE_TOPIC
from tianzhou.pipelines.topics import Topics, text_body

PERCENTILES = (0.5, 0.95, 0.99)


def records(topics: Topics, *, topic: str = TRACE_TOPIC, **options: Any) -> DataFrame:
    """Return the records of the trace topic, one per row: `kind` and `fields`.

    Args:
        topics: the cluster.
        topic: the trace topic.
        options: options of the source, as in `startingTimestamp`.
    """
    record = f.explode(f.split(text_body(), "\x02")).alias("record")
    fields = f.split("record", "\x01")
    return (
        topics.table(topic, **options)
        .select(record)
        .where(f.col("record") != "")
        .select(fields[0].alias("kind"), fields.alias("fields"))
    )


def _field(number: int, kind: str = "string") -> Column:
    # Older clients write fewer fields, and "null" for missing values.
    return f.nullif(f.try_element_at("fields", f.lit(number + 1)), f.lit("null")).try_cast(kind)


def sends(traced: DataFrame) -> DataFrame:
    """Return the sends: group, topic, id, time, duration in ms, and whether the send was acknowledged."""
    return traced.where("kind = 'Pub'").select(
        _field(3).alias("group"),
        _field(4).alias("topic"),
        _field(5).alias("msgId"),
        _field(1, "bigint").alias("began"),
        _field(10, "bigint").alias("ms"),
        _field(13, "boolean").alias("ok"),
    )


def deliveries(traced: DataFrame) -> DataFrame:
    """Return the deliveries: group, topic, id, time, duration of the handler in ms, and whether it succeeded.

    A delivery's record does not contain its topic. The topic is that of the send with the same id, null if that was not
    traced.
    """
    before = traced.where("kind = 'SubBefore'").select(
        _field(4).alias("request"),
        _field(5).alias("msgId"),
        _field(1, "bigint").alias("began"),
        _field(3).alias("group"),
    )
    after = traced.where("kind = 'SubAfter'").select(
        _field(1).alias("request"),
        _field(2).alias("msgId"),
        _field(3, "bigint").alias("ms"),
        _field(4, "boolean").alias("ok"),
    )
    sent = sends(traced).groupBy("msgId").agg(f.first("topic").alias("topic"), f.min("began").alias("sent"))
    return (
        before.join(after, ["request", "msgId"])
        .join(sent, "msgId", "left")
        .select("group", "topic", "msgId", "began", "ms", "ok", (f.col("began") - f.col("sent")).alias("waited"))
    )


def figures(rows: DataFrame, *more: Column) -> DataFrame:
    """Return count, success rate and percentiles of the duration in ms, by topic and group."""
    return (
        rows.groupBy("topic", "group")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.avg(f.coalesce("ok", f.lit(False)).cast("int")).alias("success"),
            *_percentiles("ms"),
            f.max("ms").alias("max_ms"),
            *more,
        )
        .orderBy("topic", "group")
    )


def _percentiles(column: str) -> list[Column]:
    return [f.percentile(column, f.lit(p)).alias(f"p{p * 100:.0f}_{column}") for p in PERCENTILES]


def send_figures(traced: DataFrame) -> DataFrame:
    """Return figures of sends by topic and producer group."""
    return figures(sends(traced))


def delivery_figures(traced: DataFrame) -> DataFrame:
    """Return figures of deliveries by topic and consumer group. `p50_waited` is the ms from send to handler."""
    return figures(deliveries(traced), f.percentile("waited", f.lit(0.5)).alias("p50_waited"))
