"""Computations of `benchmarks/spark.py` on Spark's reports, and wrong options."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def ended(spark, monkeypatch, capsys, *arguments: str) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["spark.py", *arguments])
    with pytest.raises(SystemExit) as end:
        spark.main()
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_each_message_waits_from_its_arrival_to_the_end_of_its_batch(measured) -> None:
    arrivals = {(0, 5): 1000, (0, 6): 1010, (1, 0): 1090, (0, 7): 1100}
    batches = [(1100.0, [(0, 5, 7), (1, 0, 1)]), (1150.0, [(0, 7, 8)])]
    assert measured.waits(batches, arrivals) == [10, 50, 90, 100]


def test_ranges_are_read_from_the_offsets_of_both_sources(measured) -> None:
    ours = {
        "endOffset": {"from": {"T@broker-a:0": 3, "T@broker-a:1": 8}, "end": {"T@broker-a:0": 5, "T@broker-a:1": 8}}
    }
    assert list(measured.Tianzhou.ranges(None, ours)) == [(0, 3, 5), (1, 8, 8)]
    theirs = {"startOffset": json.dumps({"T": {"0": 3}}), "endOffset": json.dumps({"T": {"0": 5, "1": 8}})}
    assert list(measured.Kafka.ranges(None, theirs)) == [(0, 3, 5), (1, 8, 8)]


def test_the_end_of_a_batch_is_its_beginning_and_what_it_took(measured) -> None:
    report = {"timestamp": "2026-01-02T03:04:05.678Z", "durationMs": {"triggerExecution": 22}}
    assert measured._ended_ms(report) == 1767323045700


def test_the_processors_time_of_a_process_and_its_children_grows(measured) -> None:
    before = measured.cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert measured.cpu_s(os.getpid()) > before


def test_bodies_have_the_size_and_are_orders(feed) -> None:
    for size in (256, 1024, 1025, 5000):
        orders = feed.Orders(size)
        bodies = {orders(number) for number in (0, 1, 4096, 999_999)}
        assert {len(body) for body in bodies} == {size}
        assert len(bodies) == 4
        assert all(json.loads(body)["items"] for body in bodies)
        assert orders(7) == feed.Orders(size)(7)


def test_the_filled_store_and_the_parquet_file_hold_the_same(feed, tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    feed.fill(tmp_path / "data", "T", rows=100, queues=3, body=300)
    feed.as_parquet(tmp_path / "rows.parquet", rows=100, queues=3, body=300)
    rows = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    from tianzhou.records.codec import decode_record
    from tianzhou.store.offline.scan import StoreScan

    queues = {path.name for path in (tmp_path / "data" / "store" / "consumequeue" / "T").iterdir()}
    assert queues == {"0", "1", "2"}
    records = [decode_record(bytes(raw)) for _, raw in StoreScan(tmp_path / "data" / "store").records()]
    stored = [(record.queue_id, bytes(record.body)) for record in records]
    assert stored == [(row["partition"], row["value"]) for row in rows]


def test_the_table_says_what_is_wanted_and_whether_it_is_reached(spark) -> None:
    medians = {
        "live-noop": {"tianzhou": {"krows_per_s": 330.0, "session_cpu_us": 4.0}, "kafka": {"krows_per_s": 310.0}},
        "live-noop-all": {"tianzhou": {"krows_per_s": 330.0}, "kafka": {"krows_per_s": 300.0}},
        "latency": {
            "tianzhou": {"batch_ms": 66.0, "done_ms": 120.0, "session_cpu_ms_per_batch": 44.0},
            "kafka": {"batch_ms": 60.0, "session_cpu_ms_per_batch": 40.0},
        },
        "store-noop-common": {"tianzhou": {"krows_per_s": 960.0}},
        "live-parquet-common": {"tianzhou": {"krows_per_s": 300.0}, "kafka": {"krows_per_s": 200.0}},
    }
    text = spark.table(medians).splitlines()

    def line(name: str, figure: str) -> str:
        return next(line for line in text if line.startswith(f"{name} ") and figure in line)

    assert ">= 300 yes" in line("live-noop", "rows/s")
    assert "1.06x >= 1.5 NO" in line("live-noop", "rows/s")
    assert "1.10x >= 1 yes" in line("live-noop-all", "rows/s")
    assert "<= 70 yes" in line("latency", "micro-batch, p50")
    assert "1.10x <= 0.8 NO" in line("latency", "micro-batch, p50")
    assert "1.10x <= 1 NO" in line("latency", "CPU per micro-batch")
    assert "<= 110 NO" in line("latency", "done, p50")
    assert ">= 900 yes" in line("store-noop-common", "rows/s")
    assert "x" not in line("store-noop-common", "rows/s").rpartition("-")[2]
    assert "1.50x >= 1.4 yes" in line("live-parquet-common", "rows/s")


def test_every_second_round_begins_with_the_other_side(spark) -> None:
    assert [spark.order(["tianzhou", "kafka"], number)[0] for number in range(3)] == ["tianzhou", "kafka", "tianzhou"]


def test_both_sessions_have_the_same_settings(measured) -> None:
    pytest.importorskip("pyspark")
    from tianzhou.spark.sessions.sessions import settings

    ours = settings("local")
    theirs = measured.equal_settings(ours)
    assert theirs["spark.driver.memory"] == ours["spark.driver.memory"]
    assert theirs["spark.driver.extraJavaOptions"] == ours["spark.driver.extraJavaOptions"]
    # The names of Spark 3.5 and of Kafka's columns.
    manager = theirs["spark.sql.streaming.checkpointFileManagerClass"]
    assert manager == "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    assert theirs["spark.hadoop.parquet.enable.dictionary#value"] == "false"
    left_out = {name for name in ours if name not in theirs and measured.RENAMED.get(name) not in theirs}
    assert left_out == {name for name in ours if name.startswith("spark.python.")}


def test_what_is_compared_by_seven_columns_has_seven_on_both_sides(measured) -> None:
    from pyspark.sql.types import StructType

    from tianzhou.spark.rows.schema import columns_of, kafka_schema

    wanted = measured.SCHEMAS[measured.COMMON].replace("LONG", "BIGINT")
    names = [part.split()[0] for part in wanted.split(", ")]
    assert len(names) == len(kafka_schema().names) == 7
    kinds = dict(part.split() for part in wanted.lower().split(", "))
    from tianzhou.spark.rows.schema import row_schema

    whole = {field.name: field for field in row_schema(True, True)}
    assert columns_of(StructType([whole[name] for name in names])) == tuple(names)
    assert {whole[name].dataType.simpleString() == kinds[name.lower()] for name in names} == {True}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lines", "live-nop"], "no line live-nop; there are live-noop, "),
        (["--rounds", "0"], "0: expected a whole number from 1"),
        (["--only", "pulsar"], "invalid choice"),
    ],
)
def test_options_held_wrong_are_reported(spark, monkeypatch, capsys, arguments, said) -> None:
    code, _, text = ended(spark, monkeypatch, capsys, *arguments)
    assert code == 2
    assert said in text


def test_help_has_an_example_and_the_lines(spark, monkeypatch, capsys) -> None:
    code, text, _ = ended(spark, monkeypatch, capsys, "--help")
    assert code == 0
    assert "benchmarks/spark.py --rounds 3" in text
    assert "live-parquet" in text
