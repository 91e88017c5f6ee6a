"""Archive: topics to Parquet by topic and day, each message exactly once, before the brokers delete it.

Spark's own file sink lists the files of each micro-batch in `_spark_metadata`, so a batch that is run again after a
crash replaces its own files. Delta and Iceberg tables store the batch in their own log. The archive's position is in
its checkpoint, from which the next run continues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tianzhou.pipelines.topics import WHOLE, Topics, started
from tianzhou.spark.source.offsets import Positions, from_json

FIGURES = "archived"


def archive(
    topics: Topics,
    names: Sequence[str],
    to: str,
    *,
    checkpoint: str | None = None,
    follow: bool = False,
    every: str = "10 seconds",
    most: int = 500_000,
    skip_lost: bool = False,
    lake: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start writing topics to Parquet.

    Args:
        topics: the cluster.
        names: the topics.
        to: the folder of the tables; `topic=…/day=…` are below it. For an Iceberg table, the folder of the checkpoint.
        checkpoint: the folder of the query's checkpoint; None for `_checkpoint` below `to`.
        follow: whether to continue with later messages, instead of ending with the present ones.
        every: interval between two micro-batches when following. Each writes new files.
        most: maximum messages in a micro-batch, which limits memory and the work to repeat after a crash.
        skip_lost: whether to skip messages that were deleted before they were archived, instead of failing.
        lake: options of `format("tianzhou_lake")`, for a Delta or Iceberg table instead of Parquet by topic and day.
    """
    rows = topics.stream(
        *names,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=most,
        failOnDataLoss=str(not skip_lost).lower(),
        **WHOLE,
    )
    rows = rows.withColumn("day", f.to_date("storeTimestamp")).observe(
        FIGURES, f.count(f.lit(1)).alias("rows"), f.sum(f.length("body")).alias("bytes")
    )
    if lake is None:
        writer = rows.writeStream.format("parquet").partitionBy("topic", "day").option("path", to)
    else:
        # The catalog names an Iceberg table, not a folder.
        place = {} if lake.get("tableFormat") == "iceberg" else {"path": to}
        writer = rows.writeStream.format("tianzhou_lake").options(**{**lake, **place})
    return started(writer, checkpoint or f"{to}/_checkpoint", follow=follow, every=every)


@dataclass
class Archived:
    """The progress of an archive. Call it with each progress of its query.

    Attributes:
        rows: number of messages that this run has written.
        bytes: size of their bodies in bytes.
        positions: the next offset of each queue.
    """

    rows: int = 0
    bytes: int = 0
    positions: Positions = field(default_factory=dict)

    def __call__(self, progress: Any) -> None:
        """Add the figures of one micro-batch."""
        figures = progress.observedMetrics.get(FIGURES)
        if figures is not None:
            self.rows += figures["rows"] or 0
            self.bytes += figures["bytes"] or 0
        end = progress.sources[0].endOffset
        if end and end != "null":
            self.positions = from_json(json.loads(end))[1]
