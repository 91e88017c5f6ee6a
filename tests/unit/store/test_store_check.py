"""Findings of `store check`; `store repair` fixes them and loses no more than was damaged."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from small_store import SEGMENT, number_of, numbers, opened, overwrite, small_store

from tianzhou.errors import StoreLocked
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.check_report import CheckReport, Kind
from tianzhou.store.offline.index_files import index_entries
from tianzhou.store.offline.repair import RebuildQueue, plan
from tianzhou.store.offline.repairer import Repairer, repair
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import tags_code

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "store"
Damage = Callable[[Path], object]
QUEUES = 3
COUNT = 300


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        keys, uniq, tag = f"k{number} shared", f"7F00000100001234567800{number:010X}", f"t{number % 5}"
        record = NewRecord("T", number % QUEUES, b"%d " % number * 50, b"", keys=keys, uniq_key=uniq)
        record.tags_code = tags_code(tag)
        record.properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{uniq}\x02TAGS\x01{tag}\x02".encode()
        store.append(record)


def numbers_in(folder: Path) -> set[int]:
    """Return the numbers of all messages that consumers can read."""
    with opened(small_store(folder)) as store:
        return set(numbers(store))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "store"
    with opened(small_store(folder)) as store:
        fill(store, 0, COUNT)
    folder.joinpath("config").mkdir()
    table = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}}}
    folder.joinpath("config", "topics.json").write_text(json.dumps(table))
    folder.joinpath("config", "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:100,1:50}}}')
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def place_of(folder: Path, number: int) -> tuple[Path, int, int]:
    """Return file, position and length of a message's record."""
    for entry, view in StoreScan(folder).records(check_crc=False):
        if number_of(decode_record(view)) == number:
            start = entry.offset - entry.offset % SEGMENT
            return folder / "commitlog" / f"{start:020d}", entry.offset - start, entry.size
    raise AssertionError(number)


def queue_file(folder: Path, queue_id: int, number: int) -> Path:
    return sorted((folder / "consumequeue" / "T" / str(queue_id)).iterdir())[number]


def kinds(report: CheckReport) -> set[Kind]:
    return {problem.kind for problem in report.problems}


def test_a_whole_store_is_sound(folder: Path) -> None:
    done: list[int] = []
    report = check_store(StoreScan(folder), progress=done.append)
    assert (report.sound, report.notes, report.clean, report.in_use) == (True, [], True, False)
    assert (report.records, report.units, report.queues) == (COUNT, COUNT, QUEUES)
    assert report.index_entries == 3 * COUNT
    assert done == sorted(done)
    assert done[-1] >= report.log_end
    assert plan(report).steps == ()


def test_a_store_in_use_is_reported(folder: Path) -> None:
    with opened(small_store(folder)):
        report = check_store(StoreScan(folder))
        assert report.in_use
        assert report.sound
        with pytest.raises(StoreLocked):
            repair(folder)


def in_record(number: int, position: int, data: bytes) -> Damage:
    """Return a damage: other bytes at a position of a message's record."""

    def damage(folder: Path) -> None:
        path, at, _ = place_of(folder, number)
        overwrite(path, at + position, data)

    return damage


def in_queue(queue_id: int, number: int, position: int, data: bytes) -> Damage:
    """Return a damage: other bytes at a position of a queue's file."""
    return lambda folder: overwrite(queue_file(folder, queue_id, number), position, data)


def in_index(position: int, data: bytes) -> Damage:
    """Return a damage: other bytes at a position of the oldest index file."""
    return lambda folder: overwrite(min((folder / "index").iterdir()), position, data)


def lost_queue(folder: Path) -> None:
    (folder / "proved.json").unlink()
    shutil.rmtree(folder / "consumequeue" / "T" / "1")


def log_file(folder: Path, number: int) -> Path:
    return sorted((folder / "commitlog").iterdir())[number]


def offsets_ahead(folder: Path) -> None:
    (folder / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:101,1:50}}}')


LOST_RECORD = {Kind.DAMAGED, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}
LOST_END = {Kind.LOST_END, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}
NO_FILE = {Kind.QUEUE_FILE, Kind.UNIT_MISSING}
body_byte, last_record = in_record(150, 100, b"\xff"), in_record(COUNT - 1, 100, b"\xff")
# The damage, findings that must appear, findings that may appear, and the number of lost messages.
DAMAGE: dict[str, tuple[Damage, set[Kind], set[Kind], int]] = {
    "body byte": (body_byte, LOST_RECORD, set(), 1),
    "magic": (in_record(150, 4, b"\0\0\0\0"), LOST_RECORD, set(), 1),
    "last record": (last_record, LOST_END, set(), 1),
    "first record": (in_record(0, 0, bytes(20)), LOST_RECORD, set(), 1),
    "end of a log file": (lambda f: overwrite(log_file(f, 2), SEGMENT - 1500, bytes(1500)), LOST_RECORD, set(), 6),
    "wrong unit": (
        in_queue(1, 2, 40, struct.pack(">qiq", 77, 300, 5)), {Kind.UNIT_WRONG, Kind.UNIT_DANGLING}, set(), 0
    ),
    "other tag": (in_queue(1, 2, 52, struct.pack(">q", 12345)), {Kind.UNIT_WRONG}, set(), 0),
    "lost units": (in_queue(2, -1, 0, bytes(400)), {Kind.UNIT_MISSING}, set(), 0),
    "lost queue": (lost_queue, {Kind.QUEUE_MISSING}, set(), 0),
    "short queue file": (lambda f: os.truncate(queue_file(f, 0, 1), 100), NO_FILE, set(), 0),
    "lost queue file": (lambda f: queue_file(f, 0, 1).unlink(), NO_FILE, set(), 0),
    "hash in the index": (
        in_index(40 + 200 + 20 * 30, b"\1\2\3\4"), {Kind.INDEX_ENTRY, Kind.INDEX_LACKS}, {Kind.INDEX_FILE}, 0
    ),
    "slots of the index": (in_index(40, bytes(100)), {Kind.INDEX_FILE}, set(), 0),
    "lost index file": (lambda f: sorted((f / "index").iterdir())[1].unlink(), {Kind.INDEX_LACKS}, set(), 0),
    "short log file": (
        lambda f: os.truncate(log_file(f, 1), SEGMENT - 5000), {Kind.LOG_FILE, Kind.UNIT_DANGLING},
        {Kind.DAMAGED, Kind.INDEX_ENTRY}, 20,
    ),
    "lost log file": (
        lambda f: log_file(f, 1).unlink(), {Kind.LOG_FILE, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 60
    ),
    "checkpoint ahead": (
        lambda f: overwrite(f / "checkpoint", 0, struct.pack(">q", 1 << 45)), {Kind.CHECKPOINT}, set(), 0
    ),
    "short checkpoint": (lambda f: (f / "checkpoint").write_bytes(b"12345"), {Kind.CHECKPOINT}, set(), 0),
    "offsets ahead": (offsets_ahead, {Kind.OFFSET}, set(), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_mended(folder: Path, name: str) -> None:
    damage, wanted, allowed, most_lost = DAMAGE[name]
    damage(folder)
    found = kinds(check_store(StoreScan(folder)))
    assert wanted <= found <= wanted | allowed
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert plan(check_store(StoreScan(folder))).steps
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    outcome = repair(folder)
    assert (outcome.report.problems, outcome.hopeless) == ([], ())
    assert outcome.done
    assert outcome.copies is not None
    assert any(outcome.copies.iterdir())
    report = check_store(StoreScan(folder))
    assert report.problems == []
    assert plan(report).steps == ()
    again = repair(folder)
    assert (again.done, again.copies) == ([], None)

    kept = numbers_in(folder)
    assert len(set(range(COUNT)) - kept) <= most_lost
    if most_lost == 1:
        assert len(kept) == COUNT - 1
    assert check_store(StoreScan(folder)).problems == []


def test_offsets_are_not_given_twice_after_a_loss_at_the_end(folder: Path) -> None:
    last_record(folder)
    repair(folder)
    with opened(small_store(folder)) as store:
        queue_id = (COUNT - 1) % QUEUES
        assert store.max_offset("T", queue_id) == COUNT // QUEUES
        fill(store, COUNT, COUNT + QUEUES)
        assert store.max_offset("T", queue_id) == COUNT // QUEUES + 1
    assert numbers_in(folder) == set(range(COUNT + QUEUES)) - {COUNT - 1}


def test_the_copies_can_be_put_back(folder: Path) -> None:
    path, at, size = place_of(folder, 150)
    body_byte(folder)
    damaged = path.read_bytes()[at : at + size]
    outcome = repair(folder)
    assert outcome.copies is not None
    (copy,) = (outcome.copies / "commitlog").iterdir()
    assert copy.name.startswith(f"{int(path.name) + at:020d}-")
    assert copy.read_bytes().startswith(damaged)
    assert json.loads((outcome.copies / "steps.json").read_text()) == outcome.done


def test_what_a_crash_leaves_is_expected_and_a_torn_tail_is_cut(folder: Path, tmp_path: Path) -> None:
    with opened(small_store(folder)) as store:
        fill(store, COUNT, COUNT + 20)
        crashed = Path(shutil.copytree(folder, tmp_path / "crashed"))
    path, at, size = place_of(crashed, COUNT + 19)
    overwrite(path, at + size // 2, bytes(size - size // 2))
    overwrite(queue_file(crashed, 0, -1), 340, bytes(60))
    report = check_store(StoreScan(crashed))
    assert not report.clean
    assert report.problems == []
    assert {note.kind for note in report.notes} >= {Kind.TAIL}
    outcome = repair(crashed)
    assert any("torn tail" in step for step in outcome.done)
    assert outcome.report.tail is None
    assert numbers_in(crashed) == set(range(COUNT + 19))


def test_a_deleted_topic_is_no_problem(folder: Path) -> None:
    with opened(small_store(folder)) as store:
        store.delete_topic("T")
        folder.joinpath("config", "consumerOffset.json").unlink()
        fill(store, 0, 9)
    report = check_store(StoreScan(folder))
    assert report.problems == []
    assert report.former_records == COUNT
    assert report.units == 9


def test_wrong_numbers_lead_to_a_plan_without_touching_anything() -> None:
    report = CheckReport()
    report.add(Kind.UNIT_MISSING, "queue T/0: 1 record has no unit")
    report.bad_queues.add(("T", 0))
    assert plan(report).steps == (RebuildQueue("T", 0),)


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz")))
def test_apaches_own_stores_are_sound(name: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    report = check_store(StoreScan(tmp_path / "store"))
    assert report.problems == []
    assert report.clean == ("killed" not in name)
    assert report.records > 0
    assert report.index_entries > 0
    assert plan(report).steps == ()


@pytest.mark.parametrize("name", ["basic-clean-5", "basic-clean-4", "bcq", "lmq", "propcrc", "expired", "longtopic"])
def test_apaches_queues_and_index_can_be_rebuilt(name: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "store"
    scan = StoreScan(folder)
    before = check_store(scan)
    units = {queue: [u for u in scan.units(*queue) if u.physical_offset >= before.log_begin] for queue in scan.queues()}
    report = CheckReport(clean=True, segments=before.segments, log_begin=before.log_begin, log_end=before.log_end)
    report.bad_queues |= set(units)
    report.bad_batches |= {(d.parent.name, int(d.name)) for d in folder.glob("batchconsumequeue/*/*")}
    report.index_wrong = True
    kept = tmp_path / "kept"
    Repairer(folder, kept).carry_out(plan(report), report)
    after = check_store(scan)
    assert after.problems == []
    assert (after.records, after.units) == (before.records, before.units)
    again = {queue: [u for u in scan.units(*queue) if not u.blank] for queue in scan.queues()}
    assert again == {queue: found for queue, found in units.items() if found}
    old = [(e.key_hash, e.physical_offset) for h in StoreScan(kept).index_headers() for e in index_entries(h)]
    new = [(e.key_hash, e.physical_offset) for h in scan.index_headers() for e in index_entries(h)]
    assert new == [entry for entry in old if entry[1] >= before.log_begin]


@pytest.mark.parametrize("properties", [b"", b"A\x01b\x02"])
@pytest.mark.parametrize("at", [-20, -12, -5, -1])
def test_a_changed_crc_of_a_record_is_found_in_its_name_too(tmp_path: Path, properties: bytes, at: int) -> None:
    with opened(small_store(tmp_path, enabled_append_prop_crc=True)) as store:
        for _ in range(3):
            store.append(NewRecord("T", 0, b"body", properties))
        place, size, _ = store.queue_unit("T", 0, 1)
    assert check_store(StoreScan(tmp_path)).problems == []
    (segment,) = (tmp_path / "commitlog").iterdir()
    overwrite(segment, place + size + at, bytes([segment.read_bytes()[place + size + at] ^ 2]))
    found = [problem.kind for problem in check_store(StoreScan(tmp_path)).problems]
    assert Kind.DAMAGED in found
