"""The Spark half of the main job: topic to rows in Parquet, and to delays per carrier and month."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianzhou.cli.flights.rows import SUMMED

FLIGHT_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour STRING"
)
LATE_MINUTES = 15


@dataclass(frozen=True)
class SinkFigures:
    """What is in Parquet: the right side of the proof."""

    rows: int
    distinct_rows: int
    sums: dict[str, int]


class FlightPipeline:
    """Two streaming queries over one topic: the rows as they are, and what they say per carrier and month.

    Args:
        spark: the session.
        namesrv: name server to read through.
        topic: the topic.
        out: folder for tables and checkpoints.
        max_offsets_per_trigger: bound of one micro-batch, so that progress is seen.
    """

    def __init__(self, spark: Any, namesrv: str, topic: str, out: Path, max_offsets_per_trigger: int = 120_000) -> None:
        self._spark = spark
        self._namesrv = namesrv
        self._topic = topic
        self._out = out
        self._limit = max_offsets_per_trigger
        self._queries: list[Any] = []
        self.rows_path = out / "flights.parquet"
        self.delays_path = out / "delays.parquet"

    def start(self) -> None:
        """Start both queries."""
        flights = self._flights()
        rows = (
            flights.writeStream.queryName("rows")
            .format("parquet")
            .option("path", str(self.rows_path))
            .option("checkpointLocation", str(self._out / "checkpoints" / "rows"))
            .start()
        )
        delays_path = str(self.delays_path)

        def replace_table(table: Any, batch_id: int) -> None:
            # Complete mode hands over the whole result each time: replacing the table by it is idempotent.
            del batch_id
            table.coalesce(1).write.mode("overwrite").parquet(delays_path)

        delays = (
            self._delays(flights)
            .writeStream.queryName("delays")
            .outputMode("complete")
            .option("checkpointLocation", str(self._out / "checkpoints" / "delays"))
            .foreachBatch(replace_table)
            .start()
        )
        self._queries = [rows, delays]

    def rows_read(self) -> int:
        """How many rows the first query has taken from the topic so far."""
        return sum(int(p["numInputRows"]) for p in self._queries[0].recentProgress) if self._queries else 0

    def check(self) -> None:
        """Raise what stopped a query, if one has stopped."""
        for query in self._queries:
            if query.exception() is not None:
                raise query.exception()

    def finish(self) -> None:
        """Wait until everything in the topic has been read and written, then stop the queries."""
        for query in self._queries:
            query.processAllAvailable()
        self.stop()

    def stop(self) -> None:
        """Stop the queries, whatever they are doing."""
        for query in self._queries:
            with contextlib.suppress(Exception):
                query.stop()

    def figures(self) -> SinkFigures:
        """Count what Parquet holds."""
        from pyspark.sql import functions as f

        table = self._spark.read.parquet(str(self.rows_path))
        row = table.agg(
            f.count("*").alias("rows"),
            f.countDistinct("row").alias("distinct_rows"),
            *[f.sum(name).alias(name) for name in SUMMED],
        ).collect()[0]
        return SinkFigures(row["rows"], row["distinct_rows"], {name: row[name] or 0 for name in SUMMED})

    def delays(self) -> list[dict[str, Any]]:
        """The aggregate table: carrier, month, flights, mean_dep_delay (minutes), late_share (0 to 1)."""
        table = self._spark.read.parquet(str(self.delays_path))
        return [row.asDict() for row in table.orderBy("carrier", "month").collect()]

    def _flights(self) -> Any:
        from pyspark.sql import functions as f

        messages = (
            self._spark.readStream.format("tianzhou")
            .option("namesrvAddr", self._namesrv)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._limit)
            .load()
        )
        return messages.select(
            f.col("properties")["row"].cast("long").alias("row"),
            "queueId",
            "queueOffset",
            "msgId",
            f.from_json(f.col("body").cast("string"), FLIGHT_SCHEMA).alias("flight"),
        ).select("row", "queueId", "queueOffset", "msgId", "flight.*")

    def _delays(self, flights: Any) -> Any:
        from pyspark.sql import functions as f

        return flights.groupBy("carrier", "month").agg(
            f.count("*").alias("flights"),
            f.avg("dep_delay").alias("mean_dep_delay"),
            f.avg((f.col("dep_delay") > LATE_MINUTES).cast("int")).alias("late_share"),
        )
