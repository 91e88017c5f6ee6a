"""`tianzhou bench` as users run it: each command briefly, interrupted, against a server and with its own."""

from __future__ import annotations

import asyncio
import csv
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Tianzhou, serve

from tianzhou import sync
from tianzhou.bench.runner import Run
from tianzhou.bench.spec import BenchKind, BenchRole, LoadSpec, Payload
from waiting import WITHIN_S, until

RUN_LIMIT_S = 2 * WITHIN_S
WORKLOAD = """
name: a moment of everything
topics: 2
partitionsPerTopic: 2
keyDistributor: KEY_ROUND_ROBIN
messageSize: 200
payloadFile: payload/body.data
subscriptionsPerTopic: 2
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 400
testDurationMinutes: 1
warmupDurationMinutes: 0
producerRates: 5
"""


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bench")
    with serve(folder) as server:
        yield server.ready()["namesrv"]
        server.process.send_signal(signal.SIGTERM)
        server.wait()


def bench(folder: Path, namesrv: str, *args: object) -> tuple[dict[str, Any], str]:
    """Return the JSON document of a run, and its stderr."""
    with Tianzhou(folder, "bench", *args, "-o", "json", namesrv=namesrv) as process:
        code = process.wait(RUN_LIMIT_S)
        assert code == 0, process.err
        process.assert_no_traceback()
        return json.loads(process.out), process.err


def own_groups(namesrv: str) -> list[str]:
    with sync.Admin(namesrv) as admin:
        return [name for name in admin.groups.names(system=True) if name.startswith("bench-")]


def test_produce_as_fast_as_can_be_in_two_processes(tmp_path: Path, namesrv: str) -> None:
    args = ("produce", "fast", "--count", 3000, "--warm-up", 0, "--processes", 2, "--size", 100, "--queues", 3)
    found, _ = bench(tmp_path, namesrv, *args)
    sent = found["send"]
    # A broker on a busy machine may refuse some sends; refused ones are counted, and not repeated.
    assert sent["messages"] + sent["errors"] == 3000
    assert sent["bytes"] == 100 * sent["messages"]
    assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    assert len(found["processes"]) == 2
    assert sum(one["messages"] for one in found["seconds"]) == sent["messages"]
    with sync.Admin(namesrv) as admin:
        stats = admin.topics.stats("fast")
    assert len(stats.offset_table) == 3
    assert sent["messages"] <= sum(at.max_offset for at in stats.offset_table.values()) <= 3000
    (tmp_path / "earlier.json").write_text(json.dumps(found))
    again, _ = bench(tmp_path, namesrv, *args, "--batch", 10, "--compare", "earlier.json")
    assert again["send"]["messages"] + again["send"]["errors"] == 3000
    assert again["compare"]["send"]["messages_per_second"] > 0


@pytest.mark.parametrize("way", [("--pull",), ("--consume-batch", 16, "--consumers", 2, "--processes", 2)])
def test_consume_what_is_there(tmp_path: Path, namesrv: str, way: tuple[object, ...]) -> None:
    topic = f"stored-{len(way)}"
    found, _ = bench(tmp_path, namesrv, "consume", topic, "--fill", 2000, "--size", 100, *way)
    # A batch with a late reply is stored once more.
    assert 2000 <= found["receive"]["messages"] <= 2400
    assert found["receive"]["bytes"] == 100 * found["receive"]["messages"]
    assert found["receive"]["latency_ms"] is None
    assert own_groups(namesrv) == []


def test_latency_of_an_own_server_with_files(tmp_path: Path) -> None:
    with Tianzhou(
        tmp_path, "bench", "latency", "--embedded", "--embedded-dir", tmp_path, "--rate", 200, "--seconds", 1,
        "--warm-up", 1, "--csv", "seconds.csv", "--png", "seconds.png",
    ) as process:  # fmt: skip
        assert process.wait(RUN_LIMIT_S) == 0, process.err
        header, sent, received = process.out.splitlines()
        assert "p99.9 ms" in header
        messages, errors = map(int, sent.split()[1:3])
        # 200 in the measured second; the last ones of the warm-up may get their reply in it.
        assert 200 <= messages + errors <= 400
        assert int(received.split()[1]) >= messages / 2
        assert "(warm-up)" in process.err
        assert "the embedded server" in process.err
    rows = list(csv.DictReader((tmp_path / "seconds.csv").read_text().splitlines()))
    assert {row["role"] for row in rows} == {"send", "receive"}
    sums = {role: sum(int(row["messages"]) for row in rows if row["role"] == role) for role in ("send", "receive")}
    assert 0 < sums["send"] <= sums["receive"] <= 400
    assert (tmp_path / "seconds.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("tianzhou-bench-*")) == []


def test_a_workload_file(tmp_path: Path, namesrv: str) -> None:
    (tmp_path / "workloads").mkdir()
    (tmp_path / "payload").mkdir()
    (tmp_path / "workloads" / "w.yaml").write_text(WORKLOAD)
    (tmp_path / "payload" / "body.data").write_bytes(b"b" * 150)
    found, said = bench(tmp_path, namesrv, "mixed", "load", "--workload", "workloads/w.yaml", "--seconds", 1)
    sent = found["send"]
    assert (sent["messages"] + sent["errors"], sent["bytes"]) == (400, 150 * sent["messages"])
    assert 2 * sent["messages"] <= found["receive"]["messages"] <= 800
    assert found["given"]["topics"] == ["load-000", "load-001"]
    assert "producerRates is no key of a workload and is left out; did you mean producerRate?" in said
    assert own_groups(namesrv) == []


def test_consumers_wait_for_a_backlog(namesrv: str) -> None:
    said: list[str] = []
    received_then: list[int] = []

    def say(text: str) -> None:
        said.append(text)
        received_then.append(run.series[BenchRole.receive].seen)

    given = LoadSpec(
        BenchKind.mixed,
        ("behind",),
        rate=1_000,
        seconds=0.2,
        payload=Payload(100),
        backlog_bytes=60_000,
        groups=2,
        queues=2,
    )
    run = Run(given.checked(), None, lambda run, second: None, say)
    asyncio.run(run.measure(namesrv))
    assert [text.partition(" ")[0] for text in said] == ["topic", "a", "the"]
    # 600 for both groups together before the first was consumed, and at the end all.
    assert received_then[1] == 0
    sent, received = run.series[BenchRole.send].seen, run.series[BenchRole.receive].seen
    assert sent >= 300
    assert received >= 2 * sent
    assert run.notes == []


def test_interrupted_it_shows_what_was_measured(tmp_path: Path, namesrv: str) -> None:
    with Tianzhou(
        tmp_path, "bench", "mixed", "stopped", "--rate", 500, "--seconds", 600, "--warm-up", 0, namesrv=namesrv
    ) as process:
        until(lambda: "received" in process.err, within_s=RUN_LIMIT_S)
        code, _ = process.interrupt()
        assert code == 130
        _, sent, received = process.out.splitlines()
        assert int(sent.split()[1]) > 0
        assert int(received.split()[1]) > 0
        assert "interrupted: the figures are of what was measured until then" in process.err
        process.assert_no_traceback()
    assert own_groups(namesrv) == []


def test_a_topic_nobody_can_write_is_named_and_not_measured(tmp_path: Path, namesrv: str) -> None:
    with sync.Admin(namesrv) as admin:
        admin.topics.create("locked", read_queue_nums=1, write_queue_nums=1, perm=4)
    with Tianzhou(tmp_path, "bench", "produce", "locked", "--seconds", 1, namesrv=namesrv) as process:
        assert process.wait(RUN_LIMIT_S) == 1
        assert "topic locked has no queue that can be written now" in process.err
        process.assert_no_traceback()
