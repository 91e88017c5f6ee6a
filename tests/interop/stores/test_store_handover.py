"""One store, two servers: Apache's broker serves Tianzhou's store, and the other way round.

With `TIANZHOU_INTEROP_SERVER=apache` both servers are Apache's, which shows the validity of the test itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apache import SEGMENT_SIZE
from frames import create_topic
from servers import Ports, Server, serve
from strangers import STRANGERS, Line, Program, content, produce, received
from toolchain import ToolchainMissingError

pytestmark = pytest.mark.at_once

STRANGER = STRANGERS["java-5.3.3"]
TOPIC = "handover"
QUEUES = 4
BEFORE = (("sync", 1000), ("batch", 500), ("async", 500))
AFTER = (("sync", 200), ("batch", 100))
FIRST_AFTER = sum(count for _, count in BEFORE)
OLD_GROUP = "handover_old"
NEW_GROUP = "handover_new"
SETTLE_SECONDS = 2.0
CONSUME_TIMEOUT = 120


# `test_store_kinds.py` and `test_store_continued.py` hand stores over in each run.
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param("tianzhou", "apache", marks=pytest.mark.slow),
        pytest.param("apache", "tianzhou", marks=pytest.mark.slow),
        pytest.param("tianzhou", "apache-4.9.7", marks=pytest.mark.slow),
        pytest.param("apache-4.9.7", "tianzhou", marks=pytest.mark.slow),
    ],
)
def test_store_is_handed_over(writer: str, reader: str, server_kind: str, tmp_path: Path) -> None:
    """After a clean stop another server continues with the store.

    It serves every message unchanged, at its position and under its ids, has the groups' offsets, and appends after the
    existing messages.
    """
    if server_kind == "apache":
        if (writer, reader) != ("tianzhou", "apache"):
            pytest.skip("Apache takes both parts in another case")
        writer = reader = "apache"
    data_dir, ports = tmp_path / "data", Ports.free()
    try:
        with serve(writer, data_dir, ports) as server:
            create_topic(server.namesrv, server.broker, TOPIC, QUEUES)
            before = produce(STRANGER, server.namesrv, TOPIC, 0, BEFORE)
            old = _consume(server, {OLD_GROUP: len(before)})
            _check(old[OLD_GROUP], before)
            with _program(server, "inspect", "handover_inspect") as inspector:
                stored = _pull(inspector)
            _check(received(stored), before)
        _check_layout(data_dir / "store")
        with (
            serve(reader, data_dir, ports, clean=False) as server,
            _program(server, "inspect", "handover_inspect") as inspector,
        ):
            assert _pull(inspector) == stored
            _check_lookups(inspector, before)
            after = produce(STRANGER, server.namesrv, TOPIC, FIRST_AFTER, AFTER)
            sent = before + after
            groups = _consume(server, {OLD_GROUP: len(after), NEW_GROUP: len(sent)})
            _check(groups[NEW_GROUP], sent)
            _check(groups[OLD_GROUP], after)
            everything = _pull(inspector)
            _check(received(everything), sent)
            _check_contiguous(everything)
            _check_lookups(inspector, after)
    except ToolchainMissingError as error:
        pytest.skip(str(error))


@contextmanager
def _program(server: Server, *arguments: str) -> Iterator[Program]:
    with Program(STRANGER, arguments[0], server.namesrv, *arguments[1:]) as program:
        program.await_start()
        yield program
        program.finish()


def _consume(server: Server, groups: dict[str, int]) -> dict[str, list[Line]]:
    """Let groups of one member consume until each has its expected number of messages, and a little longer."""
    specs = [f"clustering:{group}:{TOPIC}" for group in groups]
    wanted = {f"clustering-{n}": (group, count) for n, (group, count) in enumerate(groups.items())}
    with _program(server, "consume", *specs) as program:
        for name, (group, count) in wanted.items():
            program.wait_for(
                lambda lines, name=name, count=count: len(received(lines, consumer=name)) >= count,  # type: ignore[misc]
                CONSUME_TIMEOUT,
                f"group {group} got less than {count} messages",
            )
        time.sleep(SETTLE_SECONDS)
    return {group: received(program.lines, consumer=name) for name, (group, _) in wanted.items()}


def _pull(inspector: Program) -> list[Line]:
    """Return bounds and messages of each queue, with all fields that a client sees."""
    lines = inspector.ask(f"pull {TOPIC}", CONSUME_TIMEOUT)
    return [line for line in lines if line["event"] in ("queue", "received")]


def _check(lines: list[Line], sent: list[Line]) -> None:
    """Check that lines are the sent messages, each once, with content, position and ids."""
    expected = {line["i"]: line for line in sent}
    assert sorted(line["i"] for line in lines) == sorted(expected)
    for line in lines:
        made, acknowledged = content(line["i"]), expected[line["i"]]
        got = (line["bodyLength"], line["bodySha256"], line["tags"], line["keys"], line["property"])
        assert got == (made.length, made.sha256, made.tags, made.keys, made.note)
        for name in ("queueId", "queueOffset", "offsetMsgId"):
            assert line[name] == acknowledged[name], (name, line, acknowledged)
        if acknowledged["mode"] != "batch":
            assert line["uniqueKey"] == acknowledged["msgId"]


def _check_contiguous(lines: list[Line]) -> None:
    """Check that each queue starts at 0 and has no gap."""
    bounds = {line["queueId"]: (line["min"], line["max"]) for line in lines if line["event"] == "queue"}
    assert sorted(bounds) == list(range(QUEUES))
    for queue_id, (first, end) in bounds.items():
        offsets = [line["queueOffset"] for line in received(lines, queueId=queue_id)]
        assert first == 0
        assert offsets == list(range(end))


def _check_lookups(inspector: Program, sent: list[Line]) -> None:
    """Check the index: by offset id, by unique key, by key."""
    for line in sent[::25]:
        views = inspector.ask(f"view {TOPIC} {line['offsetMsgId']}")
        if line["mode"] != "batch":
            views += inspector.ask(f"unique {TOPIC} {line['msgId']}")
        views += inspector.ask(f"query {TOPIC} key-{line['i']} 32")
        assert len(views) >= 2
        _check(views[:1], [line])
        assert {view["i"] for view in views} == {line["i"]}
        assert {view["offsetMsgId"] for view in views} == {line["offsetMsgId"]}


def _check_layout(store: Path) -> None:
    """Check the files of a closed store."""
    assert not (store / "abort").exists()
    assert (store / "checkpoint").stat().st_size == 4096
    segments = sorted((store / "commitlog").iterdir())
    assert segments[0].name == "0" * 20
    assert {segment.stat().st_size for segment in segments} == {SEGMENT_SIZE}
    assert sorted(int(queue.name) for queue in (store / "consumequeue" / TOPIC).iterdir()) == list(range(QUEUES))
    assert any((store / "index").iterdir())
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        assert (store / "config" / name).stat().st_size > 0, name
