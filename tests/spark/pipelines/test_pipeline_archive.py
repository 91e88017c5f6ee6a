"""`tianzhou pipeline archive`: every message once, in Parquet, by topic and day."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from quick_start import QUERY_LIMIT_S

sys.path.append(str(Path(__file__).resolve().parents[2]))

from process_tree import children
from tianzhou.pipelines.archive import archive
from tianzhou.pipelines.archive_checkpoint import held_checkpoint
from tianzhou.pipelines.topics import Topics

MOST_CPU_S = 180
"""Maximum processor seconds of a start and two batches: six times the usual. Elapsed time has no such limit."""
LIMIT_S = 1200


def bodies(spark, folder) -> Counter[str]:
    return Counter(row[0] for row in spark.read.parquet(str(folder)).selectExpr("CAST(body AS STRING)").collect())


def test_topics_become_tables_and_the_next_run_goes_on(spark, server, topic, pipeline, tmp_path):
    other = server.create(f"{topic}-other")
    server.send(topic, range(50), tags="A", keys=lambda n: f"k{n}")
    server.send(other, [f"o{n}" for n in range(20)])
    to = tmp_path / "archive"

    first = pipeline("archive", topic, other, "--to", str(to), "--most", "30")
    assert (first["rows"], first["not_archived_yet"]) == (70, 0)
    assert first["bytes"] == sum(len(str(n)) for n in range(50)) + sum(len(f"o{n}") for n in range(20))
    assert first["hours_before_loss"] == first["kept_by_brokers_h"]
    assert bodies(spark, to) == Counter([*map(str, range(50)), *(f"o{n}" for n in range(20))])
    table = spark.read.parquet(str(to))
    assert {row[0] for row in table.select("topic").distinct().collect()} == {topic, other}
    assert dt.datetime.now(dt.UTC).date() - table.agg({"day": "max"}).first()[0] <= dt.timedelta(days=1)
    row = table.where("keys = 'k7'").first()
    assert (row["tags"], bytes(row["body"]), row["properties"]["KEYS"]) == ("A", b"7", "k7")

    server.send(topic, range(50, 60))
    second = pipeline("archive", topic, other, "--to", str(to))
    assert (second["rows"], second["not_archived_yet"]) == (10, 0)
    third = pipeline("archive", topic, other, "--to", str(to))
    assert (third["rows"], third["not_archived_yet"]) == (0, 0)
    assert bodies(spark, to) == Counter([*map(str, range(60)), *(f"o{n}" for n in range(20))])


def places(spark, to: Path) -> Counter[tuple[str, int, int]]:
    """Return the source positions of an archive's messages, as Spark reads it."""
    return Counter(map(tuple, spark.read.parquet(str(to)).select("topic", "queueId", "queueOffset").collect()))


def test_one_archive_runs_with_a_checkpoint(server, topic, cli, tmp_path):
    server.send(topic, range(3))
    args = ["pipeline", "archive", topic, "--to", str(tmp_path / "a")]
    with held_checkpoint(str(tmp_path / "a"), None):
        code, _, err = cli(*args)
    assert code == 2
    assert f"--checkpoint {tmp_path / 'a' / '_checkpoint'}: another archive runs with it; wait, or give" in err
    assert cli(*args)[0] == 0
    # With a separate checkpoint, Spark would skip every batch whose number is already in the table.
    code, _, err = cli(*args, "--checkpoint", str(tmp_path / "b"))
    assert code == 2
    assert f"--to {tmp_path / 'a'}: has files up to batch 0 of another checkpoint than {tmp_path / 'b'}" in err


def test_messages_that_are_gone_are_named(spark, server, topic, cli, tmp_path):
    """A topic that was created again has other messages than those already read."""
    to = tmp_path / "a"
    args = ["pipeline", "archive", topic, "--to", str(to)]
    server.send(topic, range(5), queue=0)
    assert cli(*args)[0] == 0
    server.delete(topic)
    server.create(topic)
    server.send(topic, range(2), queue=0)
    code, out, err = cli(*args)
    assert (code, out) == (1, "")
    assert f"{topic}@broker-a:0 holds other messages than those that were read up to offset 5" in err
    assert cli(*args, "--skip-lost")[0] == 0
    server.send(topic, range(3), queue=0)
    assert cli(*args)[0] == 0
    assert places(spark, to) == Counter([(topic, 0, n) for n in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)])


def test_without_a_broker(spark, own_server, pipeline, tmp_path):
    """The store of a stopped broker, or its copy, is archived from its files."""
    own_server.create("left")
    own_server.send("left", range(30))
    own_server.restart()
    found = pipeline("archive", "left", "--to", str(tmp_path / "a"), "--store", str(tmp_path / "server"))
    assert found["rows"] == 30
    assert bodies(spark, tmp_path / "a") == Counter(map(str, range(30)))


def test_following_takes_what_is_sent_later(spark, server, topic, tmp_path):
    to = tmp_path / "archive"
    query = archive(Topics(spark, server.address), [topic], str(to), follow=True, every="100 milliseconds")
    try:
        for part in range(3):
            server.send(topic, range(part * 10, part * 10 + 10))
            query.processAllAvailable()
    finally:
        query.stop()
    assert bodies(spark, to) == Counter(map(str, range(30)))


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and all its descendants, including ended ones, in seconds."""
    total = 0.0
    with contextlib.suppress(OSError):
        figures = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += sum(map(int, figures[11:15])) / os.sysconf("SC_CLK_TCK")
    return total + sum(map(cpu_s, children(pid)))


@pytest.mark.slow
def test_the_command_follows_until_it_is_stopped(server, topic, tmp_path):
    """As on the page, in a separate process; a second run continues."""
    dataset = pytest.importorskip("pyarrow.dataset")
    root, to, sent = Path(__file__).resolve().parents[3], tmp_path / "archive", 0
    for run in range(2):
        said = tmp_path / f"{run}.err"
        args = ["pipeline", "archive", topic, "--to", str(to), "--follow", "--every", "1 second", "-n", server.address]
        with said.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tianzhou", *args],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": str(root / "src")},
            )

        def until(text, process=process, said=said):
            deadline = time.monotonic() + LIMIT_S
            while text not in said.read_text(encoding="utf-8"):
                assert process.poll() is None, said.read_text(encoding="utf-8")
                assert cpu_s(process.pid) < MOST_CPU_S, said.read_text(encoding="utf-8")
                assert time.monotonic() < deadline, said.read_text(encoding="utf-8")
                time.sleep(0.1)

        try:
            for part in range(2):
                server.send(topic, range(sent, sent + 10))
                sent += 10
                until(f"archived {10 + 10 * part} messages so far")
            assert said.read_text(encoding="utf-8").startswith("starting Spark\n")
            assert (
                f"following {topic}: what comes is written to {to} every 1 second, until Ctrl-C\n" in said.read_text()
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    found = dataset.dataset(to, format="parquet").to_table(columns=["body"])
    assert sorted(int(body.as_py()) for body in found.column("body")) == list(range(sent))


def test_text_output_is_for_people(server, topic, cli, tmp_path):
    server.send(topic, range(3))
    code, out, err = cli("pipeline", "archive", topic, "--to", str(tmp_path / "archive"))
    assert code == 0, err
    assert "rows               3\n" in out
    assert "not_archived_yet   0\n" in out


@pytest.mark.parametrize(
    ("args", "text", "code"),
    [
        (["no-such-topic", "--to", "{to}"], "topic no-such-topic does not exist; tianzhou topic list", 2),
        (["{topic}", "--to", "{to}", "--conf", "memory=4g"], "--conf memory=4g: write spark.something=value", 2),
        (["{topic}", "--to", "{to}", "--every", "soon", "--follow"], "soon", 1),
        (["{topic}", "--to", "{to}", "--most", "0"], "--most", 2),
        (["{topic}", "--to", "{to}", "--format", "csv"], "--format csv: expected parquet, delta or iceberg", 2),
        (["{topic}", "--to", "{to}", "--lake", "a=b"], "--lake a=b: is for --format delta and iceberg", 2),
        (["{topic}", "--to", "{to}", "--store", "nowhere"], "--store nowhere: no such folder", 2),
    ],
)
def test_mistakes_are_explained(topic, cli, tmp_path, args, text, code):
    args = [arg.format(topic=topic, to=tmp_path / "archive") for arg in args]
    found, _, err = cli("pipeline", "archive", *args)
    assert found == code
    assert text in err
    assert "Traceback" not in err


def test_a_checkpoint_of_something_else_is_refused(spark, server, topic, cli, tmp_path):
    """A folder with the progress of another kind of source is no checkpoint to resume from."""
    rate = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rate.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination(QUERY_LIMIT_S)
    server.send(topic, range(3))
    code, _, err = cli("pipeline", "archive", topic, "--to", str(tmp_path / "a"), "--checkpoint", str(tmp_path / "c"))
    assert code != 0
    assert "Traceback" not in err
