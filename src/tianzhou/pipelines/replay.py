"""Replay: messages of a time sent again to a topic, at a bounded rate.

Keys, tags, sharding keys and properties stay; `origin_kind=replay`, `origin_topic`, `origin_id` and `origin_place` say
what each message was. How far a replay is lies in its checkpoint: interrupted, it goes on; finished, it sends nothing.
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
    """Start sending a topic's messages again, up to what is there now.

    Args:
        topics: the cluster.
        source: the topic to read.
        target: the topic to send to, which may be the same.
        checkpoint: the folder that keeps how far it is.
        since_ms: stored at or after this time, milliseconds since the epoch; None for the oldest on.
        until_ms: stored before this time; None for all there are now.
        until_offsets: the offset behind the last message to send, by broker name and queue id; a queue that is not
            named sends nothing. None for all messages. A replay into its own topic needs it when it is run again.
        tags: a tag expression.
        where: a condition of SQL over the columns, as in `keys = 'order-7'`.
        per_second: most messages in a second, sent evenly. Exactly once, what comes in a second becomes visible
            together.
    """
    rows = topics.stream(
        source,
        startingOffsets="earliest" if since_ms is None else None,
        startingTimestamp=since_ms,
        tags=tags,
        # Bounds what comes twice after a crash, and what becomes visible at once.
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
    # One task, for the bound is that of a task.
    again = again.coalesce(1)
    if topics.exactly_once:
        return topics.start(again.mapInArrow(a_second_each, again.schema), checkpoint)
    return topics.start(again, checkpoint, maxMessagesPerSecond=per_second)


def a_second_each(
    batches: Iterable[pa.RecordBatch],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Hand the rows of a micro-batch on, but let it last a second, so that the one before has had its own.

    Args:
        batches: the rows.
        now: seconds.
        sleep: waits; takes seconds.
    """
    began, rows = now(), 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    while rows and (left := began + SECOND_S - now()) > 0:
        sleep(left)
