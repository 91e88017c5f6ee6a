"""Every golden store, written by Apache's broker: ours continues it, and Apache's continues the result.

The golden stores were written by 5.3.3 and 4.9.7, stopped or killed (`tests/golden/README.md`). Ours opens a copy with
the settings of its manifest, serves the same messages as Apache's, appends to every queue a client can send to, and
leaves unknown files unchanged: the timer's wheel and log, states of POP, of transactions, of compaction. Then a broker
of the version that wrote the store serves the same bytes at the same positions, and appends where ours ended.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from apache import ApacheBroker, ApacheNamesrv
from own import OwnBroker
from questions import Answers, Asker, Queue, await_maximum, everything
from sends import Sender
from servers import Ports

from tianzhou.records.codec import Record, decode_records
from tianzhou.store.startup.proved_note import NOTE_NAME
from tianzhou.wire.properties import decode_properties
from waiting import until

pytestmark = pytest.mark.at_once

GOLDEN = Path(__file__).parents[1].parent / "golden" / "store"
ALWAYS = ("basic-killed-4", "basic-killed-5", "timer")
"""Stores of every run; the others repeat the same for more kinds and are marked slow."""
BUSY = {"transaction", "timer", "pop"}
"""Cases in which Apache's broker adds to the queues by itself: transaction checks, timers, revivals."""
NOT_BY_CLIENTS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_", "rmq_sys_", "%LMQ%", "%RETRY%", "%DLQ%")
WRITTEN_BY_US = (
    "topics", "consumerOffset", "lmqConsumerOffset", "subscriptionGroup", "delayOffset", "consumerFilter", "stateFiles",
)  # fmt: skip
WAITING = "SCHEDULE_TOPIC_XXXX"
WHEEL = ("rmq_sys_wheel_timer", 0)
TIMED = ("F5Timer", 0)
DUE_S = 20
"""Seconds until a timer is due: enough for the stop of Apache's broker, and for the run of ours."""
POP_RETRY = "K5PopG_K5Pop"
EACH = 30
BATCHED = (b"batched 0", b"batched 1", b"batched 2")
LEAST_BYTES = 150_000
"""Enough to continue the log into another segment."""


def manifest_of(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_bytes())
    return manifest


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "store"


def settings_of(manifest: dict[str, Any]) -> dict[str, object]:
    """Return the settings of a store's broker, without those of the run that created it."""
    own = {"listenPort", "namesrvAddr", "storePathRootDir", "brokerIP1", "brokerIP2", "haListenPort"}
    kept = {key: value for key, value in manifest["brokerConf"].items() if key not in own}
    # No file may expire during the test. The pool is a way of writing, not a format, and needs memory.
    return kept | {"fileReservedTime": 87_600, "transientStorePoolEnable": "false"}


NAMES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_golden_store_is_continued_and_given_back(name: str, namesrv: ApacheNamesrv, tmp_path: Path) -> None:
    manifest = manifest_of(name)
    store, conf, port = unpacked(name, tmp_path), settings_of(manifest), Ports.free().broker
    queues = [(queue["topic"], queue["queueId"]) for queue in manifest["queues"]]
    keys = sorted({(asked["topic"], asked["key"]) for asked in manifest["queryByKey"]})
    unknown, filters = _unknown_files(store), _filters(store)
    with OwnBroker(namesrv.address, store, tmp_path / "ours", conf, port) as broker:
        with Asker(broker.address) as asker:
            _check_manifest(asker, manifest)
            keys += _append(asker, queues)
            _await_deliveries(asker, manifest)
            ours = everything(asker, queues, keys)
        broker.stop()
    assert _unknown_files(store) == unknown
    assert _filters(store) == filters
    theirs = ApacheBroker(namesrv.address, port, store, conf, tmp_path / "apache", manifest["brokerVersion"])
    try:
        theirs.start()
        with Asker(theirs.address) as asker:
            await_maximum(asker, {queue: end for queue, (_, end) in ours.bounds.items()})
            found = everything(asker, queues, keys)
            _check_same(ours, found, busy=name in BUSY, version=manifest["brokerVersion"])
            sender = Sender(asker, "theirs")
            for queue in _sendable(queues):
                place = sender.send(queue[0], queue[1], b"theirs", {"KEYS": "theirs"})
                assert name in BUSY or place.queue_offset == found.bounds[queue][1]
    finally:
        theirs.kill()


@pytest.mark.slow
def test_timers_of_apaches_are_due_after_ours_had_the_store(namesrv: ApacheNamesrv, tmp_path: Path) -> None:
    """A wheel drops timers older than seven days, so the golden store is useless here; this store is new."""
    manifest = manifest_of("timer")
    store, conf, port = tmp_path / "store", settings_of(manifest), Ports.free().broker
    theirs = ApacheBroker(namesrv.address, port, store, conf, tmp_path / "before", manifest["brokerVersion"])
    theirs.start()
    try:
        with Asker(theirs.address) as asker:
            sender = Sender(asker, "timers")
            sender.send(*TIMED, b"now", {"KEYS": "now"})
            due = {f"tk-{number}" for number in range(6)}
            for key in sorted(due):
                sender.send(*TIMED, b"later", {"KEYS": key, "TIMER_DELAY_SEC": str(DUE_S)})
            await_maximum(asker, {WHEEL: len(due)})
        theirs.stop()
    finally:
        theirs.kill()
    unknown = _unknown_files(store)
    assert any(path.startswith("timerlog/") for path in unknown)
    with OwnBroker(namesrv.address, store, tmp_path / "ours", conf, port) as broker:
        with Asker(broker.address) as asker:
            assert {decode_properties(record.properties)["KEYS"] for record in records_of(asker, WHEEL)} == due
            Sender(asker, "ours").send(*TIMED, b"ours", {"KEYS": "ours"})
        broker.stop()
    assert _unknown_files(store) == unknown
    theirs = ApacheBroker(namesrv.address, port, store, conf, tmp_path / "after", manifest["brokerVersion"])
    try:
        theirs.start()
        with Asker(theirs.address) as asker:

            def delivered() -> Counter[str]:
                return Counter(decode_properties(record.properties)["KEYS"] for record in records_of(asker, TIMED))

            until(lambda: due <= set(delivered()), "timers are delivered")
            assert delivered() == Counter([*due, "now", "ours"])
    finally:
        theirs.kill()


def records_of(asker: Asker, queue: Queue) -> list[Record]:
    """Return all records of a queue."""
    return [record for one in asker.pull(queue, *asker.bounds(queue)) for record in decode_records(one)]


def test_times_of_files_are_kept_for_4_9_7(namesrv: ApacheNamesrv, tmp_path: Path) -> None:
    """4.9.7 searches a time in the segment whose file time matches, so ours must not touch files that it does
    not write.
    """
    manifest = manifest_of("basic-clean-4")
    store, conf, port = unpacked("basic-clean-4", tmp_path), settings_of(manifest), Ports.free().broker
    with OwnBroker(namesrv.address, store, tmp_path / "ours", conf, port) as broker:
        broker.stop()
    theirs = ApacheBroker(namesrv.address, port, store, conf, tmp_path / "apache", "4.9.7")
    try:
        theirs.start()
        with Asker(theirs.address) as asker:
            for asked in manifest["offsetByTime"]:
                queue = (asked["topic"], asked["queueId"])
                assert asker.at_time(queue, int(asked["timestamp"]), asked["boundary"]) == int(asked["offset"]), asked
    finally:
        theirs.kill()


def _unknown_files(store: Path) -> dict[str, bytes]:
    """Return the contents of a store's files that ours does not know."""
    known = {store / "config" / f"{name}.json{end}" for name in WRITTEN_BY_US for end in ("", ".bak")}
    known |= {store / name for name in ("checkpoint", "abort", "abort.bak", "lock", NOTE_NAME)}
    queues = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and path not in known and path.relative_to(store).parts[0] not in queues
    }


def _filters(store: Path) -> Any:
    """Return the stored expressions of groups, including the bits of their filters; in any order."""
    return json.loads((store / "config" / "consumerFilter.json").read_bytes())


def _sendable(queues: list[Queue]) -> list[Queue]:
    return [queue for queue in queues if not queue[0].startswith(NOT_BY_CLIENTS)]


def _check_manifest(asker: Asker, manifest: dict[str, Any]) -> None:
    """Check that ours has every message at Apache's position; waiting messages may follow."""
    expected: dict[Queue, list[tuple[int, int, int]]] = {}
    for message in manifest["messages"]:
        row = (message["queueOffset"], message["commitLogOffset"], message["storeSize"])
        place = (message.get("pulledFromTopic", message["topic"]), message.get("pulledFromQueueId", message["queueId"]))
        expected.setdefault(place, []).append(row)
    answers = everything(asker, expected)
    for queue in manifest["queues"]:
        place = (queue["topic"], queue["queueId"])
        assert asker.bounds(place)[0] == queue["minOffset"]
        assert asker.bounds(place)[1] >= queue["maxOffset"]
    for place, rows in expected.items():
        records = answers.decoded(place)
        served = [(record.queue_offset, record.physical_offset, record.size) for record in records]
        assert served[: len(rows)] == sorted(rows), place


def _append(asker: Asker, queues: list[Queue]) -> list[tuple[str, str]]:
    """Send to every queue that accepts messages, and into light and retry queues in their usual way; return
    the keys.
    """
    sender, keys = Sender(asker, "ours"), []
    sendable = _sendable(queues)
    light = sorted({topic for topic, _ in queues if topic.startswith("%LMQ%")})
    size = LEAST_BYTES // (EACH * len(sendable))
    for queue in sendable:
        for number in range(EACH):
            key = f"ours-{queue[1]}-{number}"
            properties = {"KEYS": key, "TAGS": f"tag{number % 3}"}
            if light:
                properties["INNER_MULTI_DISPATCH"] = ",".join(light[: number % (len(light) + 1)]) or light[0]
            place = sender.send(*queue, f"{key} ".encode() * (1 + size * (number % 3) // len(key)), properties)
            keys += [(queue[0], key)] if number % 7 == 0 else []
        sender.batch(*queue, BATCHED)
    for group in _retried(queues):
        sender.send_back(place.log_offset, sendable[-1][0], group, level=1)
    return keys


def _retried(queues: list[Queue]) -> list[str]:
    """Return groups with a retry topic; that of a POP group has its topic after the name."""
    return sorted({topic.removeprefix("%RETRY%") for topic, _ in queues if topic.startswith("%RETRY%")} - {POP_RETRY})


def _await_deliveries(asker: Asker, manifest: dict[str, Any]) -> None:
    """Wait until all waiting messages have arrived, each once; all of them are overdue."""
    came = manifest["delayOffsets"]["offsetTable"]
    wanted = {(queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in manifest["queues"]}
    if manifest["case"] == "pop":
        # The broker continued for a moment after the query.
        wanted = {queue: end for queue, end in wanted.items() if queue[0] == "K5Pop"}
    for message in manifest["messages"]:
        if message["topic"] == WAITING and message["queueOffset"] >= came.get(str(message["queueId"] + 1), 0):
            real = message["properties"]
            wanted[real["REAL_TOPIC"], int(real["REAL_QID"])] += 1
    for queue in _sendable(list(wanted)):
        wanted[queue] += EACH + len(BATCHED)
    for group in _retried(list(wanted)):
        wanted[f"%RETRY%{group}", 0] += 1
        wanted[WAITING, 0] += 1
    wanted = {queue: end for queue, end in wanted.items() if not queue[0].startswith("%LMQ%")}
    await_maximum(asker, wanted)
    assert {queue: asker.bounds(queue)[1] for queue in wanted} == wanted


def _check_same(ours: Answers, theirs: Answers, *, busy: bool, version: str) -> None:
    for queue, records in ours.records.items():
        assert theirs.records[queue][: len(records)] == records, queue
        assert theirs.bounds[queue][0] == ours.bounds[queue][0]
    for asked, records in ours.keys.items():
        assert theirs.keys[asked] == records or (busy and set(records) <= set(theirs.keys[asked])), asked
    if not busy:
        assert theirs.bounds == ours.bounds
        if version == "5.3.3":
            assert _comparable(theirs) == _comparable(ours)


def _comparable(answers: Answers) -> dict[tuple[Queue, int, str], int]:
    """Return answers about times; for BatchCQ queues 5.3.3 answers 0 for UPPER between two records, ours does not."""
    return {
        (queue, timestamp, boundary): offset
        for (queue, timestamp, boundary), offset in answers.times.items()
        if boundary == "LOWER" or queue[0] != "J5Batch"
    }
