"""A measured Spark session: `spark.py` starts one for each side and sends it commands line by line.

The session runs in two environments, ours and that of Spark's Kafka source, so it needs only the standard library and
PySpark, and our own package only on our side. Commands come as lines of JSON on stdin; answers go to stdout, and
Spark's own output to stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

MASTER = "local[2]"
ENOUGH_BATCHES = 20
"""Micro-batches that a stream completes before the measurement, and during it."""
PATIENCE_S = 60
BOTH = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
RENAMED = {
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.parquet.enable.dictionary#body": "spark.hadoop.parquet.enable.dictionary#value",
    "spark.hadoop.parquet.enable.dictionary#queueOffset": "spark.hadoop.parquet.enable.dictionary#offset",
}
"""Settings and values of our session, mapped to the names of Spark 3.5 and of Kafka's columns."""
FETCH_WAIT = {"kafka.fetch.max.wait.ms": "20"}
"""Kafka's brokers hold a fetch for 500 ms while there is little to send; ours answer a source immediately."""
DEFAULT, COMMON, ALL, OFFSETS = "default", "common", "all", "offsets"
SCHEMAS = {
    COMMON: (
        "topic STRING, queueId INT, queueOffset LONG, storeTimestamp TIMESTAMP, keys STRING, body BINARY, sysFlag INT"
    ),
    OFFSETS: "queueOffset LONG",
}
"""Selections of our columns by name: the seven that Kafka's source also has, and a single one."""
ROW = (
    "topic STRING, brokerName STRING, queueId INT, queueOffset LONG, tags STRING, keys STRING, body BINARY, "
    "bornTimestamp TIMESTAMP, storeTimestamp TIMESTAMP"
)
"""The nine default columns of a query."""
FLOOR_ROWS, FLOOR_TASKS, FLOOR_BODY = 3300, 4, 1024
EVERYTHING = {"includeProperties": "true", "includeMetadata": "true"}


class Tianzhou:
    """Our sources in our session."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        from tianzhou.spark import session

        self.given = given
        conf: dict[str, object] = {
            **BOTH,
            "spark.local.dir": given["scratch"],
            "spark.sql.warehouse.dir": given["scratch"],
        }
        self.spark = session("benchmark", "local", master=MASTER, **conf)

    def table(self, source: str, columns: str = DEFAULT, topic: str | None = None, *, empty: bool = False) -> Any:
        """Return the table to read: `live` from the broker, `store` from its files, `floor` from a prepared batch; no
        rows when `empty`.
        """
        if source == "floor":
            reader = self.spark.read.format(floor(self.spark)).schema(ROW)
            return reader.option("rows", 0 if empty else self.given["rows"]).load()
        reader = self._options(self.spark.read, source, columns, topic or self.given["topic"])
        return (reader.option("startingTimestamp", tomorrow_ms()) if empty else reader).load()

    def stream(self, columns: str, topic: str) -> Any:
        """Return the stream of messages that arrive from now on."""
        return self._options(self.spark.readStream, "live", columns, topic).load()

    def _options(self, reader: Any, source: str, columns: str, topic: str) -> Any:
        if columns == ALL:
            reader = reader.options(**EVERYTHING)
        elif columns in SCHEMAS:
            reader = reader.schema(SCHEMAS[columns])
        if source == "live":
            return reader.format("tianzhou").option("namesrvAddr", self.given["address"]).option("subscribe", topic)
        return reader.format("tianzhou_store").option("storePath", self.given["store"]).option("subscribe", topic)

    def arrivals(self, topic: str) -> Any:
        """Return queue, offset and arrival time of every message in a topic."""
        table = self.table("live", COMMON, topic)
        return table.selectExpr("queueId", "queueOffset", "unix_millis(storeTimestamp)")

    def ranges(self, source: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
        """Yield queue and offsets of a micro-batch, from Spark's progress report."""
        batch = offset(source["endOffset"])
        for queue, end in batch["end"].items():
            yield int(queue.rpartition(":")[2]), batch["from"].get(queue, end), end


def floor(spark: Any) -> str:
    """Register the cheapest possible Python source, which repeats one prepared batch; return its name."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    # Defined here, so that Spark pickles the classes by value: the workers cannot import this file.
    class Again(DataSourceReader):
        def __init__(self, schema: StructType, rows: int) -> None:
            self.schema, self.rows = schema, rows

        def partitions(self) -> list[InputPartition]:
            return [
                InputPartition(self.rows // FLOOR_TASKS + (number < self.rows % FLOOR_TASKS))
                for number in range(FLOOR_TASKS)
            ]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from tianzhou.spark.rows.schema import arrow_schema

            schema = arrow_schema(self.schema)
            times = pa.array([1_700_000_000_000_000] * FLOOR_ROWS, schema.field("bornTimestamp").type)
            values = {
                "topic": "Orders", "brokerName": "broker-a", "queueId": 1, "queueOffset": 1, "tags": "created",
                "keys": "000000000001", "body": b"x" * FLOOR_BODY,
            }  # fmt: skip
            columns = [
                pa.array([values[field.name]] * FLOOR_ROWS, field.type) if field.name in values else times
                for field in schema
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            for begin in range(0, partition.value, FLOOR_ROWS):
                yield batch.slice(0, min(FLOOR_ROWS, partition.value - begin))

    class Floor(DataSource):
        @classmethod
        def name(cls) -> str:
            return "floor"

        def reader(self, schema: StructType) -> Again:
            return Again(schema, int(self.options["rows"]))

    spark.dataSource.register(Floor)
    return Floor.name()


class Kafka:
    """Spark's own source for Kafka, in a session with the settings of ours."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        from pyspark.sql import SparkSession

        self.given = given
        conf = {
            **BOTH,
            **equal_settings(given["settings"]),
            "spark.master": MASTER,
            "spark.local.dir": given["scratch"],
            "spark.sql.warehouse.dir": given["scratch"],
        }
        builder = SparkSession.builder.appName("benchmark").config("spark.jars", ",".join(given["jars"]))
        for name, value in conf.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()

    def table(self, source: str, columns: str = DEFAULT, topic: str | None = None, *, empty: bool = False) -> Any:
        """Return the table to read; Kafka's source has only `live` with its seven columns, whatever `columns` is."""
        if source != "live":
            raise ValueError(f"Spark's Kafka source has no {source}")
        reader = self._options(self.spark.read, topic or self.given["topic"])
        if empty:
            behind = {"startingTimestamp": str(tomorrow_ms()), "startingOffsetsByTimestampStrategy": "latest"}
            return reader.options(**behind).load()
        return reader.option("startingOffsets", "earliest").load()

    def stream(self, columns: str, topic: str) -> Any:
        """Return the stream of messages that arrive from now on."""
        return self._options(self.spark.readStream, topic).load()

    def _options(self, reader: Any, topic: str) -> Any:
        where = {"kafka.bootstrap.servers": self.given["address"], "subscribe": topic}
        return reader.format("kafka").options(**where, **FETCH_WAIT)

    def fill(self, path: str) -> dict[str, float]:
        """Write rows of a Parquet file into the topic: the same keys, bodies and partitions as ours."""
        rows = self.spark.read.parquet(path).select("key", "value", "partition")
        options = {"kafka.bootstrap.servers": self.given["address"], "topic": self.given["topic"]}
        rows.write.format("kafka").options(**options).option("kafka.linger.ms", "20").option(
            "kafka.batch.size", "262144"
        ).save()
        return {}

    def arrivals(self, topic: str) -> Any:
        """Return partition, offset and log append time of every message in a topic."""
        return self.table("live", topic=topic).selectExpr("partition", "offset", "unix_millis(timestamp)")

    def ranges(self, source: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
        """Yield partition and offsets of a micro-batch, from Spark's progress report."""
        starts = offset(source["startOffset"])
        for topic, ends in offset(source["endOffset"]).items():
            for partition, end in ends.items():
                yield int(partition), starts.get(topic, {}).get(partition, end), end


def equal_settings(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of our session for one of Spark 3.5 with Kafka's source.

    Settings of Python workers are left out, because that source has none.
    """
    kept = {name: value for name, value in ours.items() if not name.startswith("spark.python.")}
    return {RENAMED.get(name, name): RENAMED.get(value, value) for name, value in kept.items()}


def tomorrow_ms() -> int:
    """Return a time in the future, at which no message has arrived yet."""
    return int((time.time() + 86_400) * 1000)


def offset(value: Any) -> Any:
    """Return a source's offset, which some Spark versions report as text."""
    return (json.loads(value) if isinstance(value, str) else value) or {}


# --- measurements


def cpu_s(root: int) -> float:
    """Return user and system seconds of a process and all its descendants, including ended ones."""
    fields, children = {}, {}  # type: dict[int, list[str]], dict[int, list[int]]
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            found = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        fields[int(entry)] = found
        children.setdefault(int(found[1]), []).append(int(entry))
    total, todo = 0, [root]
    while todo:
        process = todo.pop()
        if process in fields:
            total += sum(map(int, fields[process][11:15]))
            todo += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


class Meter:
    """Elapsed time, and processor time of the session and of its broker, from entering to leaving."""

    def __init__(self, broker: int) -> None:
        self._processes = (os.getpid(), broker)

    def __enter__(self) -> Self:
        self._cpu = [cpu_s(process) for process in self._processes]
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.session_s, self.broker_s = (
            cpu_s(process) - before for process, before in zip(self._processes, self._cpu, strict=True)
        )

    def per_row(self, rows: int, start_s: float) -> dict[str, float]:
        """Return the rows a second, with and without the query's start time, and the processor time per row."""
        return {
            "krows_per_s": rows / self.seconds / 1000,
            "running_krows_per_s": rows / (self.seconds - start_s) / 1000 if self.seconds > start_s else 0.0,
            "seconds": self.seconds,
            "start_s": start_s,
            "session_cpu_us": self.session_s / rows * 1e6,
            "broker_cpu_us": self.broker_s / rows * 1e6,
        }


def count(side: Any, given: Mapping[str, Any]) -> dict[str, float]:
    """Return the number of rows of a source."""
    return {"rows": side.table(given["source"]).count()}


def _thrown_away(table: Any) -> None:
    table.write.format("noop").mode("overwrite").save()


def started(side: Any, given: Mapping[str, Any]) -> float:
    """Return the duration of the same query without rows, in seconds."""
    began = time.perf_counter()
    _thrown_away(side.table(given["source"], given["columns"], empty=True))
    return time.perf_counter() - began


def noop(side: Any, given: Mapping[str, Any]) -> dict[str, float]:
    """Measure from the creation of the source until all rows are read and discarded."""
    start_s = started(side, given)
    with Meter(side.given["broker"]) as meter:
        _thrown_away(side.table(given["source"], given["columns"]))
    return meter.per_row(side.given["rows"], start_s)


def parquet(side: Any, given: Mapping[str, Any]) -> dict[str, float]:
    """Measure from the creation of the source until all rows are in Parquet files; check and remove the files."""
    target = Path(side.given["scratch"], "rows.parquet")
    shutil.rmtree(target, ignore_errors=True)
    start_s = started(side, given)
    try:
        with Meter(side.given["broker"]) as meter:
            table = side.table(given["source"], given["columns"])
            table.write.option("compression", "snappy").mode("overwrite").parquet(str(target))
        written = side.spark.read.parquet(str(target)).count()
        if written != side.given["rows"]:
            raise ValueError(f"{written} rows were written, not {side.given['rows']}")
        size = sum(file.stat().st_size for file in target.glob("*.parquet"))
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return {**meter.per_row(side.given["rows"], start_s), "bytes_per_row": size / side.given["rows"]}


def waits(
    batches: Sequence[tuple[float, Sequence[tuple[int, int, int]]]], arrivals: Mapping[tuple[int, int], int]
) -> list[float]:
    """Return the milliseconds from the arrival of each message to the end of its micro-batch, ascending.

    Args:
        batches: end of each batch in ms, and its ranges: queue, first offset, offset behind the last.
        arrivals: arrival of each message in ms, by queue and offset.
    """
    return sorted(
        done - arrivals[queue, number]
        for done, ranges in batches
        for queue, first, end in ranges
        for number in range(first, end)
    )


def latency(side: Any, given: Mapping[str, Any]) -> dict[str, float]:
    """Follow a topic while a producer sends to it; return the durations of micro-batches, and of messages until the end
    of their batch.
    """
    topic, columns = given["steady"], given["columns"]
    checkpoint = Path(side.given["scratch"], f"checkpoint-{time.time_ns()}")
    writer = side.stream(columns, topic).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        begin = time.monotonic()
        while time.monotonic() - begin < given["settle"] or len(_done(query)) < ENOUGH_BATCHES:
            if time.monotonic() - begin > PATIENCE_S or not query.isActive:
                raise ValueError(f"{len(_done(query))} micro-batches in {PATIENCE_S} s: {query.exception()}")
            time.sleep(0.1)
        from_ms = time.time() * 1000
        batches: list[Any] = []
        with Meter(side.given["broker"]) as meter:
            time.sleep(given["secs"])
            while len(batches) < ENOUGH_BATCHES and time.time() * 1000 - from_ms < PATIENCE_S * 1000:
                batches = [batch for batch in _done(query) if _ended_ms(batch) - _took_ms(batch) >= from_ms]
                time.sleep(0.1)
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    if len(batches) < ENOUGH_BATCHES:
        raise ValueError(f"only {len(batches)} micro-batches in {PATIENCE_S} s")
    arrived = {(row[0], row[1]): row[2] for row in side.arrivals(topic).collect()}
    late = waits([(_ended_ms(batch), list(side.ranges(batch["sources"][0]))) for batch in batches], arrived)
    return {
        "batches": len(batches),
        "messages": len(late),
        "batch_ms": statistics.median(map(_took_ms, batches)),
        "done_ms": statistics.median(late),
        "done_p99_ms": late[int(len(late) * 0.99)],
        "session_cpu_ms_per_batch": meter.session_s * 1000 / len(batches),
        **{f"{name}_ms": statistics.median(b["durationMs"].get(name, 0) for b in batches) for name in PHASES},
    }


PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets")
"""The phases of a micro-batch in Spark's progress reports."""


def _done(query: Any) -> list[Any]:
    """Return the progress reports of micro-batches with rows."""
    reports = (json.loads(report.json()) for report in query._jsq.recentProgress())
    return [report for report in reports if report["numInputRows"] and "addBatch" in report["durationMs"]]


def _took_ms(batch: Mapping[str, Any]) -> float:
    return float(batch["durationMs"]["triggerExecution"])


def _ended_ms(batch: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000 + _took_ms(batch)


MEASURES: dict[str, Callable[[Any, Mapping[str, Any]], dict[str, float]]] = {
    "count": count,
    "noop": noop,
    "parquet": parquet,
    "latency": latency,
    "fill": lambda side, given: side.fill(given["path"]),
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Spark and Java print to stdout, which is for answers only
    given = json.loads(sys.argv[1])
    side: Any = {"tianzhou": Tianzhou, "kafka": Kafka}[given["side"]](given)
    side.spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"spark": side.spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            result: dict[str, Any] = MEASURES[command["measure"]](side, command)
        except Exception as error:  # noqa: BLE001 - one line that fails must not keep the others from being measured
            print(error, file=sys.stderr, flush=True)
            result = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"}
        print(json.dumps(result), file=answers, flush=True)
    side.spark.stop()


if __name__ == "__main__":
    main()
