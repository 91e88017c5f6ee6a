"""What `store check` finds, and that `store repair` mends it and loses no more than was damaged."""

from __future__ import annotations

import json
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.errors import StoreLocked
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord, StoreSettings
from tianzhou.store.offline.check_report import CheckReport, Kind
from tianzhou.store.offline.repair import RebuildQueue, plan
from tianzhou.store.offline.repairer import repair
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import tags_code

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "store"
SEGMENT = 16_384
QUEUES = 3
COUNT = 300


def settings_for(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder),
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 50,
        "max_index_num": 200,
    }
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        keys, uniq, tag = f"k{number} shared", f"7F00000100001234567800{number:010X}", f"t{number % 5}"
        record = NewRecord("T", number % QUEUES, b"%d " % number * 50, b"", keys=keys, uniq_key=uniq)
        record.tags_code = tags_code(tag)
        record.properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{uniq}\x02TAGS\x01{tag}\x02".encode()
        store.append(record)


def numbers_in(folder: Path) -> set[int]:
    """The messages consumers can read."""
    store = MessageStore(settings_for(folder))
    store.open()
    found = set()
    for queue_id in range(QUEUES):
        position = max(store.min_offset("T", queue_id), 0)
        while position < store.max_offset("T", queue_id):
            result = store.get("T", queue_id, position, 32)
            if result.status is GetStatus.FOUND:
                records = [decode_record(part, check_crc=True) for part in result.parts]
                found |= {int(record.body.split()[0]) for record in records}
            position = max(result.next_offset, position + 1)
    store.close_now()
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "store"
    store = MessageStore(settings_for(folder))
    store.open()
    fill(store, 0, COUNT)
    store.close_now()
    folder.joinpath("config").mkdir()
    table = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}}}
    folder.joinpath("config", "topics.json").write_text(json.dumps(table))
    folder.joinpath("config", "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:100,1:50}}}')
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def place_of(folder: Path, number: int) -> tuple[Path, int, int]:
    """File, position and length of a message's record."""
    for entry, view in StoreScan(folder).records(check_crc=False):
        if int(decode_record(view).body.split()[0]) == number:
            start = entry.offset - entry.offset % SEGMENT
            return folder / "commitlog" / f"{start:020d}", entry.offset - start, entry.size
    raise AssertionError(number)


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def queue_file(folder: Path, queue_id: int, number: int) -> Path:
    return sorted((folder / "consumequeue" / "T" / str(queue_id)).iterdir())[number]


def kinds(report: CheckReport) -> set[Kind]:
    return {problem.kind for problem in report.problems}


def test_a_whole_store_is_sound(folder: Path) -> None:
    done: list[int] = []
    report = StoreScan(folder).check(progress=done.append)
    assert (report.sound, report.notes, report.clean, report.in_use) == (True, [], True, False)
    assert (report.records, report.units, report.queues) == (COUNT, COUNT, QUEUES)
    assert report.index_entries == 3 * COUNT
    assert done == sorted(done)
    assert done[-1] >= report.log_end
    assert plan(report).steps == ()


def test_a_store_in_use_is_told(folder: Path) -> None:
    store = MessageStore(settings_for(folder))
    store.open()
    report = StoreScan(folder).check()
    assert report.in_use
    assert report.sound
    with pytest.raises(StoreLocked):
        repair(folder)
    store.close_now()


def body_byte(folder: Path) -> None:
    path, at, _ = place_of(folder, 150)
    write(path, at + 100, b"\xff")


def magic(folder: Path) -> None:
    path, at, _ = place_of(folder, 150)
    write(path, at + 4, b"\0\0\0\0")


def last_record(folder: Path) -> None:
    path, at, _ = place_of(folder, COUNT - 1)
    write(path, at + 100, b"\xff")


def first_record(folder: Path) -> None:
    path, at, _ = place_of(folder, 0)
    write(path, at, bytes(20))


def end_of_file(folder: Path) -> None:
    path = sorted((folder / "commitlog").iterdir())[2]
    write(path, SEGMENT - 1500, bytes(1500))


def wrong_unit(folder: Path) -> None:
    write(queue_file(folder, 1, 2), 40, struct.pack(">qiq", 77, 300, 5))


def other_tag(folder: Path) -> None:
    write(queue_file(folder, 1, 2), 52, struct.pack(">q", 12345))


def lost_units(folder: Path) -> None:
    write(queue_file(folder, 2, -1), 0, bytes(400))


def lost_queue(folder: Path) -> None:
    (folder / "proved.json").unlink()
    shutil.rmtree(folder / "consumequeue" / "T" / "1")


def short_queue_file(folder: Path) -> None:
    with queue_file(folder, 0, 1).open("r+b") as file:
        file.truncate(100)


def lost_queue_file(folder: Path) -> None:
    queue_file(folder, 0, 1).unlink()


def index_hash_byte(folder: Path) -> None:
    newest = min((folder / "index").iterdir())
    write(newest, 40 + 200 + 20 * 30, b"\x01\x02\x03\x04")


def index_slot(folder: Path) -> None:
    newest = min((folder / "index").iterdir())
    write(newest, 40, bytes(100))


def lost_index_file(folder: Path) -> None:
    sorted((folder / "index").iterdir())[1].unlink()


def short_log_file(folder: Path) -> None:
    path = sorted((folder / "commitlog").iterdir())[1]
    with path.open("r+b") as file:
        file.truncate(SEGMENT - 5000)


def lost_log_file(folder: Path) -> None:
    sorted((folder / "commitlog").iterdir())[1].unlink()


def checkpoint_ahead(folder: Path) -> None:
    write(folder / "checkpoint", 0, struct.pack(">q", 1 << 45))


def checkpoint_short(folder: Path) -> None:
    (folder / "checkpoint").write_bytes(b"12345")


def offsets_ahead(folder: Path) -> None:
    (folder / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:101,1:50}}}')


DAMAGE: list[tuple[Callable[[Path], None], set[Kind], set[Kind], int]] = [
    # what is done, what must be found, what may be found as well, how many messages are lost
    (body_byte, {Kind.DAMAGED, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 1),
    (magic, {Kind.DAMAGED, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 1),
    (last_record, {Kind.LOST_END, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 1),
    (first_record, {Kind.DAMAGED, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 1),
    (end_of_file, {Kind.DAMAGED, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 6),
    (wrong_unit, {Kind.UNIT_WRONG, Kind.UNIT_DANGLING}, set(), 0),
    (other_tag, {Kind.UNIT_WRONG}, set(), 0),
    (lost_units, {Kind.UNIT_MISSING}, set(), 0),
    (lost_queue, {Kind.QUEUE_MISSING}, set(), 0),
    (short_queue_file, {Kind.QUEUE_FILE, Kind.UNIT_MISSING}, set(), 0),
    (lost_queue_file, {Kind.QUEUE_FILE, Kind.UNIT_MISSING}, set(), 0),
    (index_hash_byte, {Kind.INDEX_ENTRY, Kind.INDEX_LACKS}, {Kind.INDEX_FILE}, 0),
    (index_slot, {Kind.INDEX_FILE}, set(), 0),
    (lost_index_file, {Kind.INDEX_LACKS}, set(), 0),
    (short_log_file, {Kind.LOG_FILE, Kind.UNIT_DANGLING}, {Kind.DAMAGED, Kind.INDEX_ENTRY}, 20),
    (lost_log_file, {Kind.LOG_FILE, Kind.UNIT_DANGLING, Kind.INDEX_ENTRY}, set(), 60),
    (checkpoint_ahead, {Kind.CHECKPOINT}, set(), 0),
    (checkpoint_short, {Kind.CHECKPOINT}, set(), 0),
    (offsets_ahead, {Kind.OFFSET}, set(), 0),
]


@pytest.mark.parametrize("case", DAMAGE, ids=lambda case: case[0].__name__)
def test_damage_is_found_and_mended(
    folder: Path, case: tuple[Callable[[Path], None], set[Kind], set[Kind], int]
) -> None:
    damage, wanted, allowed, most_lost = case
    damage(folder)
    found = kinds(StoreScan(folder).check())
    assert wanted <= found <= wanted | allowed
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert plan(StoreScan(folder).check()).steps
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    outcome = repair(folder)
    assert (outcome.report.problems, outcome.hopeless) == ([], ())
    assert outcome.done
    assert outcome.kept is not None
    assert any(outcome.kept.iterdir())
    report = StoreScan(folder).check()
    assert report.problems == []
    assert plan(report).steps == ()
    again = repair(folder)
    assert (again.done, again.kept) == ([], None)

    kept = numbers_in(folder)
    assert len(set(range(COUNT)) - kept) <= most_lost
    if most_lost == 1:
        assert len(kept) == COUNT - 1
    assert StoreScan(folder).check().problems == []


def test_offsets_are_not_given_twice_after_a_loss_at_the_end(folder: Path) -> None:
    last_record(folder)
    repair(folder)
    store = MessageStore(settings_for(folder))
    store.open()
    queue_id = (COUNT - 1) % QUEUES
    assert store.max_offset("T", queue_id) == COUNT // QUEUES
    fill(store, COUNT, COUNT + QUEUES)
    assert store.max_offset("T", queue_id) == COUNT // QUEUES + 1
    store.close_now()
    assert numbers_in(folder) == set(range(COUNT + QUEUES)) - {COUNT - 1}


def test_the_copies_can_be_put_back(folder: Path) -> None:
    path, at, size = place_of(folder, 150)
    body_byte(folder)
    damaged = path.read_bytes()[at : at + size]
    outcome = repair(folder)
    assert outcome.kept is not None
    (copy,) = (outcome.kept / "commitlog").iterdir()
    assert copy.name.startswith(f"{int(path.name) + at:020d}-")
    assert copy.read_bytes().startswith(damaged)
    assert json.loads((outcome.kept / "steps.json").read_text()) == outcome.done


def test_what_a_crash_leaves_is_expected_and_a_torn_tail_is_cut(folder: Path, tmp_path: Path) -> None:
    store = MessageStore(settings_for(folder))
    store.open()
    fill(store, COUNT, COUNT + 20)
    crashed = Path(shutil.copytree(folder, tmp_path / "crashed"))
    store.close_now()
    path, at, size = place_of(crashed, COUNT + 19)
    write(path, at + size // 2, bytes(size - size // 2))
    write(queue_file(crashed, 0, -1), 340, bytes(60))
    report = StoreScan(crashed).check()
    assert not report.clean
    assert report.problems == []
    assert {note.kind for note in report.notes} >= {Kind.TAIL}
    outcome = repair(crashed)
    assert any("torn tail" in step for step in outcome.done)
    assert outcome.report.tail is None
    assert numbers_in(crashed) == set(range(COUNT + 19))


def test_a_deleted_topic_is_no_problem(folder: Path) -> None:
    store = MessageStore(settings_for(folder))
    store.open()
    store.delete_topic("T")
    folder.joinpath("config", "consumerOffset.json").unlink()
    fill(store, 0, 9)
    store.close_now()
    report = StoreScan(folder).check()
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
    report = StoreScan(tmp_path / "store").check()
    assert report.problems == []
    assert report.clean == ("killed" not in name)
    assert report.records > 0
    assert report.index_entries > 0
    assert plan(report).steps == ()


@pytest.mark.parametrize("name", ["basic-clean-5", "basic-clean-4", "bcq", "lmq", "propcrc", "expired", "longtopic"])
def test_apaches_queues_and_index_can_be_made_anew(name: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "store"
    scan = StoreScan(folder)
    before = scan.check()
    units = {queue: [u for u in scan.units(*queue) if u.physical_offset >= before.log_begin] for queue in scan.queues()}
    report = CheckReport(clean=True, segments=before.segments, log_begin=before.log_begin, log_end=before.log_end)
    report.bad_queues |= set(units)
    report.bad_batches |= {(d.parent.name, int(d.name)) for d in folder.glob("batchconsumequeue/*/*")}
    report.index_wrong = True
    from tianzhou.store.offline.repairer import Repairer

    kept = tmp_path / "kept"
    Repairer(folder, kept).carry_out(plan(report), report)
    after = scan.check()
    assert after.problems == []
    assert (after.records, after.units) == (before.records, before.units)
    again = {queue: [u for u in scan.units(*queue) if not u.blank] for queue in scan.queues()}
    assert again == {queue: found for queue, found in units.items() if found}
    old = [(e.key_hash, e.physical_offset) for h in StoreScan(kept).index_headers() for e in scan.index_entries(h)]
    new = [(e.key_hash, e.physical_offset) for h in scan.index_headers() for e in scan.index_entries(h)]
    assert new == [entry for entry in old if entry[1] >= before.log_begin]
