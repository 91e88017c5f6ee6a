"""Messages whose producer time is outside the range of dates: every pipeline reads them without an error."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

from odd_sends import ODD_TIMES_MS, send_born
from tianzhou.model.timestamps import MAX_TIME_MS, MIN_TIME_MS
from tianzhou.pipelines.success_rate import success_rates

EVERYTHING = {"includeProperties": True, "includeMetadata": True}
AHEAD_MS = (MAX_TIME_MS, 4_102_444_800_000)
"""The last date, and the year 2100: too far ahead of the time at which the message is stored."""
NULL_MS = (*ODD_TIMES_MS, *AHEAD_MS)
EDGES_MS = (MIN_TIME_MS, -1)


@pytest.fixture
def odd(server: Any, topic: str) -> list[int]:
    """Send messages to queue 0 and return their producers' times, in the order of the messages."""
    times = [1_700_000_000_123, *NULL_MS, *EDGES_MS]
    for number, at_ms in enumerate(times):
        server.run(send_born(server.address, topic, at_ms, b"%d" % number, properties=f"TAGS\x01A\x02n\x01{number}"))
    return times


def prove(rows: list[Any], times: list[int]) -> None:
    """Compare rows with the producers' times of their messages."""
    rows = sorted(rows, key=lambda row: row["queueOffset"])
    assert [row["queueOffset"] for row in rows] == list(range(len(times)))
    for row, at_ms in zip(rows, times, strict=True):
        kept = row["properties"].get("BORN_TIMESTAMP_MS")
        assert row["properties"]["n"] == str(row["queueOffset"])
        if at_ms in NULL_MS or at_ms == 2**62:
            assert (row["bornTimestamp"], kept) == (None, str(at_ms))
        else:
            assert (round(row["bornTimestamp"].timestamp() * 1000), kept) == (at_ms, None)
        assert row["storeTimestamp"].year == dt.datetime.now(dt.UTC).year


def test_rows_are_collected_from_both_sources(spark: Any, server: Any, source: Any, topic: str, odd: list[int]) -> None:
    prove(source(spark.read, **EVERYTHING).load().collect(), odd)
    folder = {"storePath": str(server.folder), "subscribe": topic}
    prove(spark.read.format("tianzhou_store").options(**folder, **EVERYTHING).load().collect(), odd)
    lean = source(spark.read).load().collect()
    assert [row["bornTimestamp"] is None for row in sorted(lean, key=lambda row: row["queueOffset"])] == [
        at_ms in NULL_MS for at_ms in odd
    ]


def test_python_functions_of_a_stream_get_them(spark: Any, source: Any, odd: list[int], tmp_path: Path) -> None:
    year = f.udf(lambda at: None if at is None else at.year, "int")
    stream = source(spark.readStream, startingOffsets="earliest", **EVERYTHING).load()
    rows: list[Any] = []
    query = (
        stream.withColumn("year", year("bornTimestamp"))
        .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    prove(rows, odd)
    assert [row["year"] for row in sorted(rows, key=lambda row: row["queueOffset"])][-2:] == [1, 1969]


def test_an_archive_has_them_and_goes_on(
    spark: Any, server: Any, topic: str, pipeline: Any, odd: list[int], tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    assert pipeline("archive", topic, "--to", str(to))["rows"] == len(odd)
    server.run(send_born(server.address, topic, 2**62, b"later", properties=f"n\x01{len(odd)}\x02"))
    assert pipeline("archive", topic, "--to", str(to))["rows"] == 1
    prove(spark.read.parquet(str(to)).collect(), [*odd, 2**62])


def test_a_copy_by_the_sink_is_a_message_as_any(
    spark: Any, server: Any, source: Any, odd: list[int], tmp_path: Path
) -> None:
    copy = server.create(f"copy-{tmp_path.name}"[-60:])
    rows = source(spark.read, **EVERYTHING).load().drop("topic", "queueId", "brokerName")
    rows.write.format("tianzhou").mode("append").options(namesrvAddr=server.address, topic=copy).save()
    found = server.messages(copy)
    assert sorted(message.properties["n"] for message in found) == sorted(map(str, range(len(odd))))
    assert not any("BORN_TIMESTAMP_MS" in message.properties for message in found)


def test_orders_and_rates_go_by_the_brokers_time_then(
    spark: Any, server: Any, source: Any, topic: str, pipeline: Any, tmp_path: Path
) -> None:
    payments, to = server.create(f"{topic}-payments"), server.create(f"{topic}-outcomes")
    for number, at_ms in enumerate(NULL_MS):
        body = json.dumps({"status": "ok", "order": f"o{number}"}).encode()
        for name in (topic, payments):
            server.run(send_born(server.address, name, at_ms, body))
    rates = success_rates(
        source(spark.read).load(), status="$.status", good="ok", by=None, window="1 hour", late="0 seconds"
    )
    assert sum(row["messages"] for row in rates.collect()) == len(NULL_MS)
    args = ["timeouts", topic, payments, "--to", to, "--timeout", "60", "--late", "0 seconds"]
    for time in ("store", "born"):
        found = pipeline(*args, "--time", time, "--checkpoint", str(tmp_path / time))
        assert (found["sent"], found["late"]) == (len(NULL_MS), 0)
    assert {message.tags for message in server.messages(to)} == {"paid"}
