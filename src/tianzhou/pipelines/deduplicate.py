"""Deduplication: a topic without repetitions, as another topic.

Of messages that are equal by key, id or property, the first one is sent, and others within the time are left out. The
query's state contains each message until the slowest queue has reached the message's store time plus `within`. So a
message is left out only if an equal one was sent, however old its queue is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.errors import ConfigError
from tianzhou.pipelines.event_time import BY_SLOWEST, not_behind_slowest, with_slowest_watermark
from tianzhou.pipelines.topics import WHOLE, Topics, sent_again, text_body

BY = "id, keys, body, property:NAME or json:PATH"


def equal_by(by: str) -> Column:
    """Return the column that equal messages have in common.

    Args:
        by: `id` (the unique key from its producer), `keys`, `body`, `property:NAME`, or `json:PATH` for the value at a
            path of a JSON body, as in `json:$.order.id`.

    Raises:
        ConfigError: `by` has another form.
    """
    kind, _, name = by.partition(":")
    if by == "id":
        return f.col("msgId")
    if by == "keys":
        return f.nullif(f.col("keys"), f.lit(""))
    if by == "body":
        return f.sha2("body", 256)
    if kind == "property" and name:
        return f.col("properties")[name]
    if kind == "json" and name.startswith("$"):
        return f.get_json_object(text_body(), name)
    raise ConfigError(f"--by {by}: expected {BY}, with a path like $.order.id")


def deduplicated(rows: DataFrame, by: str, within: str) -> DataFrame:
    """Return the first of each set of equal messages.

    Args:
        rows: a stream of messages, read with `includeSlowestTimestamp=true`.
        by: see `equal_by`.
        within: minimum time for which the state contains a message, as in `10 minutes`, by store times.
    """
    # A message without a value to compare is equal to no other message.
    place = f.concat_ws("@", "topic", "brokerName", "queueId", "queueOffset")
    same = f.coalesce(f.concat(f.lit("="), equal_by(by)), place)
    at = not_behind_slowest(rows, f.col("storeTimestamp"))
    marked = with_slowest_watermark(rows.withColumn("same", same), at, late="0 seconds", kept=within)
    return marked.dropDuplicatesWithinWatermark(["same"])


def deduplicate(
    topics: Topics,
    source: str,
    target: str,
    checkpoint: str,
    *,
    by: str = "id",
    within: str = "10 minutes",
    follow: bool = False,
    most: int = 100_000,
) -> StreamingQuery:
    """Start copying a topic without repetitions.

    Args:
        topics: the cluster.
        source: the topic to read, from its oldest message on.
        target: the topic to send to.
        checkpoint: the folder of the query's checkpoint, with its positions and the state.
        by: see `equal_by`.
        within: see `deduplicated`.
        follow: whether to continue with later messages.
        most: maximum messages in a micro-batch.

    Raises:
        ConfigError: `by` is malformed, or the topics are the same.
    """
    if source == target:
        raise ConfigError(f"--to {target}: is the topic that is read; what is sent there would be read again")
    rows = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=most, **WHOLE, **BY_SLOWEST)
    again = sent_again(deduplicated(rows, by, within), "deduplicated", f.lit(target))
    return topics.start(again, checkpoint, follow=follow)
