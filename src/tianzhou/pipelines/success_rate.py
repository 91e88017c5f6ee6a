"""Success rate: the part of a topic's messages that report success, per window of time.

An example to copy: `{"status": "ok", "merchant": "m1"}` in, one row per window and group out. The tag may contain the
result instead of a field of JSON. A window counts messages by their store time, or by the producer's time. It is final
once the watermark has passed it, so each window is sent once.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.errors import ConfigError
from tianzhou.pipelines.conditions import TAG_SEPARATOR, check_good
from tianzhou.pipelines.event_time import AT, BY_SLOWEST, STORE, slowest_columns, time_of, with_slowest_watermark
from tianzhou.pipelines.topics import Topics, text_body


def success_rates(
    rows: DataFrame,
    *,
    status: str = "$.status",
    good: str,
    by: str | None,
    window: str,
    late: str,
    time: str = STORE,
    tags: Collection[str] = (),
) -> DataFrame:
    """Return one row per window and group: number of messages, number of successes, and the rate.

    Args:
        rows: messages. A stream for the time STORE must be read with `includeSlowestTimestamp=true`.
        status: JSON path of the result, as in `$.status`.
        good: the value that means success.
        by: JSON path of the group, None for one group.
        window: length of a window, as in `1 minute`.
        late: time by which a message may be later than others and still count.
        time: STORE or BORN: the time that determines a message's window.
        tags: the tags that are results, instead of a field of JSON. Messages with other tags do not count.

    Raises:
        ConfigError: a path does not begin with `$`, or `good` is not among the tags.
    """
    for option, path in (("--status", status), ("--group-by", by)):
        if path is not None and not path.startswith("$"):
            raise ConfigError(f"{option} {path}: expected a JSON path like $.status")
    if tags:
        check_good(tags, good)
        rows = rows.where(f.col("tags").isin(*tags))
    outcome = f.col("tags") if tags else f.get_json_object(text_body(), status)
    key = f.get_json_object(text_body(), by) if by is not None else f.lit(None).cast("string")
    if time == STORE:
        chosen = rows.select("storeTimestamp", key.alias("group"), outcome.alias("outcome"), *slowest_columns(rows))
        marked = with_slowest_watermark(chosen, f.col("storeTimestamp"), late=late)
    else:
        marked = rows.select(time_of(rows, time).alias(AT), key.alias("group"), outcome.alias("outcome")).withWatermark(
            AT, late
        )
    return (
        marked.groupBy(f.window(AT, window).alias("window"), "group")
        .agg(
            f.count(f.lit(1)).alias("messages"),
            # A message without a result is not a success.
            f.count_if(f.coalesce(f.col("outcome") == good, f.lit(False))).alias("succeeded"),
        )
        .select(
            f.col("window.start").alias("start"),
            f.col("window.end").alias("end"),
            "group",
            "messages",
            "succeeded",
            (f.col("succeeded") / f.col("messages")).alias("rate"),
        )
    )


def success_rate(
    topics: Topics,
    source: str,
    to: str,
    checkpoint: str,
    *,
    status: str = "$.status",
    good: str = "ok",
    by: str | None = None,
    window: str = "1 minute",
    late: str = "10 seconds",
    time: str = STORE,
    tags: Collection[str] = (),
    follow: bool = False,
) -> StreamingQuery:
    """Start counting. Finished windows become JSON messages of a topic.

    Args:
        topics: the cluster.
        source: the topic to read, from its oldest message on.
        to: the topic of the windows; their key is the group.
        checkpoint: the folder of the query's checkpoint.
        status: see `success_rates`.
        good: see `success_rates`.
        by: see `success_rates`.
        window: see `success_rates`.
        late: see `success_rates`.
        time: see `success_rates`.
        tags: see `success_rates`.
        follow: whether to continue with later messages.

    Raises:
        ConfigError: a path does not begin with `$`, or `good` is not among the tags.
    """
    # Let brokers filter by tag. Otherwise the stream would read messages with other tags and drop them.
    wanted = TAG_SEPARATOR.join(tags) or None
    options = BY_SLOWEST if time == STORE else {}
    rows = topics.stream(source, startingOffsets="earliest", tags=wanted, **options)
    rates = success_rates(rows, status=status, good=good, by=by, window=window, late=late, time=time, tags=tags)
    lines = rates.select(f.to_json(f.struct("*")).alias("body"), f.coalesce("group", f.lit("")).alias("keys"))
    return topics.start(lines, checkpoint, topic=to, follow=follow)
