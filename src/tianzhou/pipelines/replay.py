"""Replay: messages of a period sent again to a topic, at a limited rate.

Keys, tags, sharding keys and properties are preserved. `origin_kind=replay`, `origin_topic`, `origin_id` and
`origin_place` identify the original message. The position of a replay is in its checkpoint: an interrupted replay
continues from it, and a finished one sends no messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.pipelines.topics import WHOLE, Topics, sent_again

if TYPE_CHECKING:
    import pyarrow as pa

SECOND_S = 1.0

KIND = "replay"


def replay(
    topics: Topics,
    source: str,
    target: str,
    checkpoint: str,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    until_offsets: Mapping[tuple[str, int], int] | None = None,
    tags: str | None = None,
    where: str | None = None,
    per_second: int | None = None,
) -> StreamingQuery:
    """Start sending a topic's messages again, up to the present ends of its queues.

    Args:
        topics: the cluster.
        source: the topic to read.
        target: the topic to send to, which may be the same.
        checkpoint: the folder of the query's checkpoint.
        since_ms: earliest store time, milliseconds since the epoch; None for the oldest message.
        until_ms: store time before which messages are sent; None for all present messages.
        until_offsets: the offset after the last message to send, by broker name and queue id. Queues without an offset
            are not sent. None for all messages. A repeated replay into its own topic needs it.
        tags: a tag expression.
        where: a condition of SQL over the columns, as in `keys = 'order-7'`.
        per_second: maximum messages per second, sent evenly. With exactly-once delivery, the messages of a second
            become visible together.
    """
    rows = topics.stream(
        source,
        startingOffsets="earliest" if since_ms is None else None,
        startingTimestamp=since_ms,
        tags=tags,
        # Limits the messages that are repeated after a crash, or that become visible together.
        maxOffsetsPerTrigger=per_second,
        **WHOLE,
    )
    if until_ms is not None:
        rows = rows.where(f.col("storeTimestamp") < f.timestamp_millis(f.lit(until_ms)))
    if until_offsets is not None:
        ends = [f.lit(one) for (broker, queue), end in until_offsets.items() for one in (f"{queue}@{broker}", f"{end}")]
        end = f.create_map(*ends)[f.format_string("%d@%s", "queueId", "brokerName")]
        rows = rows.where(f.col("queueOffset") < end.cast("bigint"))
    if where is not None:
        rows = rows.where(where)
    again = sent_again(rows, KIND, f.lit(target))
    if per_second is None:
        return topics.start(again, checkpoint)
    # Use one task, because the limit applies to each task.
    again = again.coalesce(1)
    if topics.exactly_once:
        return topics.start(again.mapInArrow(a_second_each, again.schema), checkpoint)
    return topics.start(again, checkpoint, maxMessagesPerSecond=per_second)


def a_second_each(
    batches: Iterable[pa.RecordBatch],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a micro-batch, and let it last a second, so that batches do not exceed the rate.

    Args:
        batches: the rows.
        now: returns the seconds of a clock.
        sleep: waits for a number of seconds.
    """
    began, rows = now(), 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    while rows and (left := began + SECOND_S - now()) > 0:
        sleep(left)
