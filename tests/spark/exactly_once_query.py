"""A query that transforms messages from topic to topic exactly once, in its own process, which a test can kill.

The process prints `started` when the query runs, and runs until it is killed.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from quick_start import JAVA

from tianzhou.spark import session

MAX_STARTS = 6
"""Maximum number of times that the process starts the query: a worker that a test kills may end the query."""


def begin(spark: Any, address: str, source: str, target: str, checkpoint: str, *, available_now: bool) -> Any:
    """Start the query from topic to topic.

    Args:
        spark: the session.
        address: the name server.
        source: topic to read.
        target: topic to write.
        checkpoint: the folder of the query's progress.
        available_now: whether the query ends after it has written the messages that the topic contains now.
    """
    rows = (
        spark.readStream.format("tianzhou")
        .options(namesrvAddr=address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
        .select(
            f.concat(f.lit("row-"), f.col("body").cast("string")).alias("body"),
            f.concat(f.lit("k"), f.col("body").cast("string")).alias("keys"),
            f.col("tags"),
        )
        .repartition(2)
    )
    writer = rows.writeStream.format("tianzhou").options(
        namesrvAddr=address, topic=target, delivery="exactly-once", checkpointLocation=checkpoint
    )
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def main(address: str, source: str, target: str, checkpoint: str, master: str) -> int:
    """Run the query in a session of this process. Start it again from its checkpoint when it fails.

    Args:
        address: the name server.
        source: the topic that is read.
        target: the topic that is written.
        checkpoint: the folder of the query's progress.
        master: the master of the session.
    """
    spark = session("killed", "test", master=master, **JAVA)
    spark.sparkContext.setLogLevel("OFF")
    for start in range(MAX_STARTS):
        query = begin(spark, address, source, target, checkpoint, available_now=False)
        if start == 0:
            print("started", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(error, file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
