"""The Spark part of the main job: rows to Parquet, late flights to a topic, delays per carrier and month."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianzhou.cli.flights.rows import LATE_MINUTES, SUMMED

FLIGHT_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour STRING"
)
MESSAGE_SCHEMA = (
    "queueId INT, queueOffset BIGINT, msgId STRING, tags STRING, keys STRING, body BINARY, "
    "properties MAP<STRING, STRING>"
)
"""The columns of a message that the queries use. No others are made."""
LATE_TOPIC = "late-flights"
BEGIN_LIMIT_S = 30.0
START_ATTEMPTS = 4
SLOW_START = "failed to connect back"


@dataclass(frozen=True)
class SinkFigures:
    """Counts of Parquet and of the topic of late flights: the right side of the proof."""

    rows: int
    distinct_rows: int
    sums: dict[str, int]
    late_rows: int
    late_distinct_rows: int
    late_minutes: int


class FlightPipeline:
    """Three streaming queries over one topic: all rows, the late flights, and the delays per month.

    All of them survive being killed: Parquet by Spark's own log of files, the late flights by the exactly-once sink,
    the table because it is always replaced completely.

    Args:
        spark: the session.
        namesrv: name server to read through.
        topic: the topic.
        out: folder for tables and checkpoints.
        max_offsets_per_trigger: maximum rows of a micro-batch, so that there is progress to show.
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
        """Start the queries, one after another."""
        flights = self._flights()
        delays_path = str(self.delays_path)

        def replace_table(table: Any, batch_id: int) -> None:
            # In complete mode the batch is the whole result, so replacing the table is idempotent.
            del batch_id
            table.coalesce(1).write.mode("overwrite").parquet(delays_path)

        self._start("rows", flights.writeStream.format("parquet").option("path", str(self.rows_path)))
        self._start(
            "late",
            self._late()
            .writeStream.format("tianzhou")
            .option("namesrvAddr", self._namesrv)
            .option("topic", LATE_TOPIC)
            .option("delivery", "exactly-once"),
        )
        self._start("delays", self._delays(flights).writeStream.outputMode("complete").foreachBatch(replace_table))

    def _start(self, name: str, writer: Any) -> None:
        """Start a query and wait until it has its source.

        Spark gives the process that finds a source ten seconds to start, whatever the load of the machine. If it was
        too slow, the query is started again.
        """
        writer = writer.queryName(name).option("checkpointLocation", str(self._out / "checkpoints" / name))
        for attempt in range(START_ATTEMPTS):
            query = writer.start()
            deadline = time.monotonic() + BEGIN_LIMIT_S
            while query.isActive and time.monotonic() < deadline and "Initializing" in query.status["message"]:
                time.sleep(0.05)
            error = query.exception()
            if error is None or SLOW_START not in str(error) or attempt == START_ATTEMPTS - 1:
                break
        self._queries.append(query)

    def rows_read(self) -> int:
        """Return the number of rows that the first query has read from the topic."""
        return sum(int(p["numInputRows"]) for p in self._queries[0].recentProgress) if self._queries else 0

    def positions(self) -> list[int]:
        """Return the position of each query in the topic, as the number of rows from its beginning.

        It is 0 before the query's first batch.
        """
        found = []
        for query in self._queries:
            progress = query.lastProgress
            end = json.loads(progress["sources"][0]["endOffset"] or "{}") if progress else {}
            found.append(_sum(end.get("end", {})))
        return found

    def check(self) -> None:
        """Raise the error of a query that has failed."""
        for query in self._queries:
            if query.exception() is not None:
                raise query.exception()

    def finish(self) -> None:
        """Wait until all messages of the topic are read and written, then stop the queries."""
        for query in self._queries:
            query.processAllAvailable()
        self.stop()

    def stop(self) -> None:
        """Stop the queries in any state."""
        for query in self._queries:
            with contextlib.suppress(Exception):
                query.stop()

    def figures(self) -> SinkFigures:
        """Count the rows in Parquet and in the topic of late flights."""
        from pyspark.sql import functions as f

        table = self._spark.read.parquet(str(self.rows_path))
        row = table.agg(
            f.count("*").alias("rows"),
            f.countDistinct("row").alias("distinct_rows"),
            *[f.sum(name).alias(name) for name in SUMMED],
        ).collect()[0]
        late = self._messages(self._spark.read, LATE_TOPIC)
        found = late.agg(
            f.count("*").alias("rows"),
            f.countDistinct("row").alias("distinct_rows"),
            f.sum("flight.dep_delay").alias("minutes"),
        ).collect()[0]
        return SinkFigures(
            row["rows"],
            row["distinct_rows"],
            {name: row[name] or 0 for name in SUMMED},
            found["rows"],
            found["distinct_rows"],
            found["minutes"] or 0,
        )

    def delays(self) -> list[dict[str, Any]]:
        """Return the aggregate table: carrier, month, flights, mean_dep_delay (minutes), late_share (0 to 1)."""
        table = self._spark.read.parquet(str(self.delays_path))
        return [row.asDict() for row in table.orderBy("carrier", "month").collect()]

    def _messages(self, reader: Any, topic: str) -> Any:
        from pyspark.sql import functions as f

        return (
            reader.format("tianzhou")
            .schema(MESSAGE_SCHEMA)
            .option("namesrvAddr", self._namesrv)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .withColumn("row", f.col("properties")["row"].cast("long"))
            .withColumn("flight", f.from_json(f.col("body").cast("string"), FLIGHT_SCHEMA))
        )

    def _stream(self) -> Any:
        return self._messages(self._spark.readStream.option("maxOffsetsPerTrigger", self._limit), self._topic)

    def _flights(self) -> Any:
        return self._stream().select("row", "queueId", "queueOffset", "msgId", "flight.*")

    def _late(self) -> Any:
        from pyspark.sql import functions as f

        late = self._stream().where(f.col("flight.dep_delay") > LATE_MINUTES)
        row = f.create_map(f.lit("row"), f.col("row").cast("string"))
        return late.select("body", "tags", "keys", row.alias("properties"))

    def _delays(self, flights: Any) -> Any:
        from pyspark.sql import functions as f

        return flights.groupBy("carrier", "month").agg(
            f.count("*").alias("flights"),
            f.avg("dep_delay").alias("mean_dep_delay"),
            f.avg((f.col("dep_delay") > LATE_MINUTES).cast("int")).alias("late_share"),
        )


def _sum(positions: Any) -> int:
    if isinstance(positions, dict):
        return sum(map(_sum, positions.values()))
    return int(positions)
