"""What `benchmarks/spark.py` computes from what Spark reports, and what its options do when held wrong."""

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
        "latency": {"tianzhou": {"batch_ms": 66.0, "done_ms": 120.0}},
        "latency-equal": {"kafka": {"batch_ms": 220.0}},
        "live-parquet": {"kafka": {"krows_per_s": 200.0}},
        "live-parquet-common": {"tianzhou": {"krows_per_s": 260.0}},
    }
    text = spark.table(medians).splitlines()

    def line(name: str, figure: str) -> str:
        return next(line for line in text if line.startswith(f"{name} ") and figure in line)

    assert ">= 300 yes" in line("live-noop", "rows/s")
    assert "1.06x >= 1.1 NO" in line("live-noop", "rows/s")
    assert "<= 70 yes" in line("latency", "micro-batch, p50")
    assert "<= 110 NO" in line("latency", "done, p50")
    assert "0.30x" in line("latency-equal", "micro-batch, p50")
    assert "1.30x >= 1.2 yes" in line("live-parquet-common", "rows/s")


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
