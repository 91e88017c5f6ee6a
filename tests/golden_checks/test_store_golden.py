"""Stores of Apache RocketMQ, opened by ours: the same queries get Apache's answers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden_stores import check_body, check_keys, check_record, manifest_of, settings_of, unpacked

from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.pulled import to_message

CLEAN = (
    "basic-clean-5", "basic-clean-4", "delay", "transaction", "retry-dlq", "order", "longtopic", "expired", "propcrc",
    "timer", "cqext",
)  # fmt: skip
KILLED = ("basic-killed-5", "basic-killed-4", "basic-killed-pool")


@dataclass
class Case:
    """An opened copy of a golden store, and its manifest."""

    name: str
    manifest: dict[str, Any]
    settings: StoreSettings
    store: MessageStore


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every archive unpacked, once; tests work on copies."""
    root = tmp_path_factory.mktemp("golden-stores")
    for name in CLEAN + KILLED:
        unpacked(name, root / name)
    return root


def copy_of(originals: Path, name: str, target: Path) -> StoreSettings:
    shutil.copytree(originals / name / "store", target / "store")
    return settings_of(name, target / "store")


@pytest.fixture(params=CLEAN + KILLED)
def case(request: pytest.FixtureRequest, originals: Path, tmp_path: Path) -> Iterator[Case]:
    name: str = request.param
    settings = copy_of(originals, name, tmp_path)
    store = MessageStore(settings)
    store.open()
    yield Case(name, manifest_of(name), settings, store)
    store.close_now()


def test_opening_finds_what_apache_found(case: Case) -> None:
    assert case.store.report.clean == (case.manifest["stop"] == "clean")
    if case.store.report.clean:
        assert case.store.report.dispatched == 0
    assert case.store.report.damaged == []
    for queue in case.manifest["queues"]:
        topic, queue_id = queue["topic"], queue["queueId"]
        assert case.store.min_offset(topic, queue_id) == queue["minOffset"]
        assert case.store.max_offset(topic, queue_id) == queue["maxOffset"]
    assert sorted(case.store.topics()) == sorted({queue["topic"] for queue in case.manifest["queues"]})


def test_every_message_is_at_its_place(case: Case) -> None:
    assert case.manifest["messages"]
    for expected in case.manifest["messages"]:
        result = read_now(case.store, expected["topic"], expected["queueId"], expected["queueOffset"], 1)
        assert result.status is GetStatus.FOUND
        assert result.next_offset == expected["queueOffset"] + 1
        (part,) = result.parts
        record = decode_record(part, check_crc=True)
        check_record(record, expected)
        (message,) = to_message(record, "broker-a")
        check_body(message.body, expected)


def test_reading_a_queue_through_gives_all_of_it_in_order(case: Case) -> None:
    wanted: dict[tuple[str, int], list[int]] = {}
    for message in case.manifest["messages"]:
        wanted.setdefault((message["topic"], message["queueId"]), []).append(message["commitLogOffset"])
    for (topic, queue_id), offsets in wanted.items():
        found = []
        position = case.store.min_offset(topic, queue_id)
        while True:
            result = read_now(case.store, topic, queue_id, position, 32)
            if result.status is not GetStatus.FOUND:
                break
            assert result.count == len(result.parts) <= 32
            assert len(result.records) == sum(len(part) for part in result.parts)
            found += [decode_record(part).physical_offset for part in result.parts]
            position = result.next_offset
        assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
        assert found == sorted(offsets)


def test_keys_are_found_as_apache_finds_them(case: Case) -> None:
    assert case.manifest["queryByKey"]
    check_keys(case.store, case.manifest)


def test_times_lead_to_offsets(case: Case) -> None:
    stored: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for message in case.manifest["messages"]:
        place = (message["queueOffset"], message["storeTimestamp"])
        stored.setdefault((message["topic"], message["queueId"]), []).append(place)
    for asked in case.manifest["offsetByTime"]:
        topic, queue_id, timestamp = asked["topic"], asked["queueId"], int(asked["timestamp"])
        upper = asked["boundary"] == "UPPER"
        offset = at_once(case.store.lookups.offset_steps(topic, queue_id, timestamp, upper=upper))
        messages = sorted(stored.get((topic, queue_id), []))
        if messages:
            at_or_after = [number for number, when in messages if when >= timestamp]
            up_to = [number for number, when in messages if when <= timestamp]
            lower_answer = at_or_after[0] if at_or_after else messages[-1][0] + 1
            upper_answer = up_to[-1] if up_to else messages[0][0]
            assert offset == (upper_answer if upper else lower_answer)
        if case.manifest["brokerVersion"] == "5.3.3":
            # 4.9.7 uses file times and nearest neighbours; 5.3.3's rule is ours (store.md §14.2).
            assert str(offset) == asked["offset"]


def test_records_are_found_by_their_offset(case: Case) -> None:
    for asked in case.manifest["viewById"]:
        record = at_once(case.store.lookups.record_steps(asked["offset"]))
        if asked["code"] != 0:
            assert record is None
        else:
            assert record is not None
            assert len(record) == asked["recordLength"]
            assert hashlib.sha256(record).hexdigest() == asked["recordSha256"]


def test_opening_and_stopping_changes_no_message_byte(case: Case, originals: Path) -> None:
    case.store.close_now()
    folder, original = Path(case.settings.store_path_root_dir), originals / case.name / "store"
    compared = ["commitlog", "consumequeue"] + (["index"] if case.manifest["stop"] == "clean" else [])
    for part in compared:
        before = {path.relative_to(original): path.read_bytes() for path in original.joinpath(part).rglob("[0-9]*")
                  if path.is_file()}  # fmt: skip
        after = {path.relative_to(folder): path.read_bytes() for path in folder.joinpath(part).rglob("[0-9]*")
                 if path.is_file()}  # fmt: skip
        if case.name in KILLED and part == "commitlog":
            # A segment that was allocated ahead and never begun is no part of the log.
            before = {path: content for path, content in before.items() if any(content)}
        assert after == before
    assert not (folder / "abort").exists()


def test_a_second_start_is_a_clean_one(case: Case) -> None:
    end = case.store.end_offset
    maxima = {(t, q): case.store.max_offset(t, q) for t in case.store.topics() for q in case.store.queues(t)}
    case.store.close_now()
    again = MessageStore(case.settings)
    report = again.open()
    assert (report.clean, report.end, report.dispatched, report.notes) == (True, end, 0, [])
    assert {(t, q): again.max_offset(t, q) for t in again.topics() for q in again.queues(t)} == maxima
    again.close_now()


@pytest.mark.parametrize("name", CLEAN + KILLED)
def test_the_scanner_finds_a_sound_store_and_touches_nothing(name: str, originals: Path) -> None:
    folder = originals / name / "store"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    report = check_store(StoreScan(folder), slots=100)
    assert report.problems == []
    assert report.records >= len(manifest_of(name)["messages"])
    assert report.index_entries > 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
