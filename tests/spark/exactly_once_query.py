"""A query as a process of its own, to be killed: topic to topic, transformed, exactly once.

Prints `started` when the query is, and ends when everything that was in the topic then is written.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as f
from quick_start import JAVA

from tianzhou.spark import session


def main(address: str, source: str, target: str, checkpoint: str, master: str) -> int:
    """Run the query to its end."""
    spark = session("killed", "test", master=master, **JAVA)
    spark.sparkContext.setLogLevel("OFF")
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
    query = (
        rows.writeStream.format("tianzhou")
        .options(namesrvAddr=address, topic=target, delivery="exactly-once", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    return 0 if query.exception() is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
