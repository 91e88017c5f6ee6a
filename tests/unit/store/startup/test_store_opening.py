"""Opening folders that are in use, of another size, incomplete or damaged (store.md §1, §10)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tianzhou.errors import StoreLocked, StoreUnreadable
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.scan import StoreScan

SEGMENT = 16_384
QUEUES = 3


def settings_for(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder),
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 50,
        "max_index_num": 100,
    }
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        record = NewRecord("T", number % QUEUES, b"%d " % number * 50, b"", keys=f"k{number}", uniq_key=f"u{number}")
        record.properties = f"KEYS\x01{record.keys}\x02UNIQ_KEY\x01{record.uniq_key}\x02".encode()
        store.append(record)


def bodies(store: MessageStore) -> list[int]:
    """The numbers of all messages that can be read, by queue and then order."""
    numbers = []
    for queue_id in range(QUEUES):
        position = max(store.min_offset("T", queue_id), 0)
        while (result := store.get("T", queue_id, position, 32)).next_offset != position:
            numbers += [int(decode_record(part, check_crc=True).body.split()[0]) for part in result.parts]
            position = result.next_offset
    return numbers


def expected(numbers: range | list[int]) -> list[int]:
    return [n for queue_id in range(QUEUES) for n in numbers if n % QUEUES == queue_id]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of 200 messages, stopped cleanly."""
    store = MessageStore(settings_for(tmp_path / "store"))
    store.open()
    fill(store, 0, 200)
    store.close_now()
    return tmp_path / "store"


@pytest.fixture
def crashed(tmp_path: Path, folder: Path) -> Path:
    """The same store with 100 more messages, and no good-bye."""
    store = MessageStore(settings_for(folder))
    store.open()
    fill(store, 200, 300)
    shutil.copytree(folder, tmp_path / "crashed")
    store.close_now()
    return tmp_path / "crashed"


def reopened(folder: Path) -> MessageStore:
    store = MessageStore(settings_for(folder))
    store.open()
    return store


def segment(folder: Path, number: int) -> Path:
    return sorted((folder / "commitlog").iterdir())[number]


def test_a_clean_stop_leaves_whole_files_and_no_marker(folder: Path) -> None:
    assert not (folder / "abort").exists()
    assert (folder / "abort.bak").read_bytes() == b""
    assert (folder / "lock").read_bytes() == b"lock"
    assert (folder / "checkpoint").stat().st_size == 4096
    assert {path.stat().st_size for path in (folder / "commitlog").iterdir()} == {SEGMENT}
    assert {path.stat().st_size for path in (folder / "consumequeue").rglob("0*") if path.is_file()} == {400}
    assert {path.stat().st_size for path in (folder / "index").iterdir()} == {40 + 50 * 4 + 100 * 20}
    assert StoreScan(folder).check(slots=50).problems == []


def test_a_clean_start_reads_nothing_again(folder: Path) -> None:
    store = reopened(folder)
    assert (store.report.clean, store.report.records, store.report.notes) == (True, 0, [])
    assert (folder / "abort").read_text() == str(os.getpid())
    assert bodies(store) == expected(range(200))
    fill(store, 200, 230)
    assert bodies(store) == expected(range(230))
    store.close_now()


def test_a_crashed_store_has_everything(crashed: Path) -> None:
    store = reopened(crashed)
    assert not store.report.clean
    assert bodies(store) == expected(range(300))
    for number in (0, 57, 199, 200, 299):
        assert len(at_once(store.lookups.key_steps("T", f"k{number}", 10)).parts) == 1
        assert len(at_once(store.lookups.key_steps("T", f"u{number}", 10)).parts) == 1
    fill(store, 300, 310)
    assert bodies(store) == expected(range(310))
    store.close_now()
    assert StoreScan(crashed).check(slots=50).problems == []


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("behind", [0, 1, 2, 17])
def test_a_crash_between_index_entries_loses_no_key(crashed: Path, same_boot: bool, behind: int) -> None:
    """The header of an index file may be a little older than its entries when the process dies."""
    if not same_boot:
        (crashed / "running.json").write_text('{"pid": 1, "boot": "another"}')
    newest = max((crashed / "index").iterdir())
    data = bytearray(newest.read_bytes())
    count = int.from_bytes(data[36:40], "big")
    behind = min(behind, count - 1)
    data[36:40] = (count - behind).to_bytes(4, "big")
    newest.write_bytes(data)
    store = reopened(crashed)
    for number in range(0, 300, 7):
        for key in (f"k{number}", f"u{number}"):
            (part,) = at_once(store.lookups.key_steps("T", key, 10)).parts
            assert int(decode_record(part).body.split()[0]) == number
    dropped = any("index" in note for note in store.report.notes)
    assert dropped is not same_boot
    fill(store, 300, 330)
    assert len(at_once(store.lookups.key_steps("T", "k329", 10)).parts) == 1
    store.close_now()
    assert StoreScan(crashed).check(slots=50).problems == []


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_torn_queue_unit_is_made_again(crashed: Path, same_boot: bool) -> None:
    if not same_boot:
        (crashed / "running.json").unlink()
    before = {path: path.read_bytes() for path in (crashed / "consumequeue").rglob("0*") if path.is_file()}
    number = 299
    path = crashed / "consumequeue" / "T" / str(number % QUEUES) / f"{number // QUEUES // 20 * 400:020d}"
    at = number // QUEUES % 20 * 20
    for cut in range(1, 21):
        torn = bytearray(before[path])
        torn[at + 20 - cut : at + 20] = b"\xff" * cut if cut <= 8 else bytes(cut)
        path.write_bytes(torn)
        copy = crashed.with_name(f"torn-{cut}")
        shutil.copytree(crashed, copy)
        store = reopened(copy)
        assert bodies(store) == expected(range(300))
        store.close_now()
        assert (copy / path.relative_to(crashed)).read_bytes() == before[path]


def test_two_stores_cannot_have_one_folder(folder: Path) -> None:
    first = reopened(folder)
    with pytest.raises(StoreLocked, match="storePathRootDir"):
        MessageStore(settings_for(folder)).open()
    code = (
        "import sys\nfrom tianzhou.store import MessageStore, StoreSettings\nfrom tianzhou.errors import StoreLocked\n"
        "try: MessageStore(StoreSettings(store_path_root_dir=sys.argv[1])).open()\n"
        "except StoreLocked as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=30,
        check=True,
    ).stdout
    assert f"in use by process {os.getpid()}" in said
    assert "storePathRootDir" in said
    first.close_now()
    reopened(folder).close_now()


def test_a_folder_of_another_segment_size_is_refused_with_the_key(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()}
    for changes, says in (
        ({"mapped_file_size_commit_log": 1 << 20}, f"set mappedFileSizeCommitLog={SEGMENT}"),
        ({"mapped_file_size_commit_log": 4096}, f"set mappedFileSizeCommitLog={SEGMENT}"),
        ({"mapped_file_size_consume_queue": 6_000_000}, "set mappedFileSizeConsumeQueue=400"),
        ({"mapped_file_size_consume_queue": 200}, "set mappedFileSizeConsumeQueue=400"),
    ):
        with pytest.raises(StoreUnreadable, match=says):
            MessageStore(settings_for(folder, **changes)).open()
    assert {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()} == before
    reopened(folder).close_now()


@pytest.mark.parametrize("same_boot", [True, False])
def test_the_only_queue_file_may_be_what_a_power_failure_left_of_it(crashed: Path, same_boot: bool) -> None:
    files = sorted(path for path in (crashed / "consumequeue").rglob("0*") if path.is_file())
    for path in files[1:]:
        path.unlink()
    os.truncate(files[0], 40)
    if same_boot:  # nothing that was written is lost, so another setting has
        with pytest.raises(StoreUnreadable, match="set mappedFileSizeConsumeQueue=40"):
            reopened(crashed)
        return
    (crashed / "running.json").write_text('{"pid": 1, "boot": "another"}')
    store = reopened(crashed)
    assert any("is 40 bytes long instead of 400" in note for note in store.report.notes)
    assert bodies(store) == expected(range(300))
    store.close_now()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreadable, match=r"file.*storePathRootDir"):
        MessageStore(settings_for(tmp_path / "file" / "store")).open()


@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_of_strange_length_is_made_anew(folder: Path, crashed: Path, clean: bool) -> None:
    target = folder if clean else crashed
    (target / "checkpoint").write_bytes(b"no checkpoint")
    store = reopened(target)
    assert "checkpoint is 13 bytes long, not 4096; it is made anew" in store.report.notes[0]
    assert bodies(store) == expected(range(300))
    store.close_now()
    assert (target / "checkpoint").stat().st_size == 4096


def test_stray_files_are_left_alone(folder: Path) -> None:
    strays = [
        folder / "commitlog" / "notes.txt",
        folder / "commitlog" / "00000000000000000000.bak",
        folder / "consumequeue" / "README",
        folder / "consumequeue" / "T" / "old" / "x",
        folder / "consumequeue" / "T" / "0" / "tmp",
        folder / "index" / "index.tmp",
        folder / "unknown" / "file",
    ]
    for path in strays:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    store = reopened(folder)
    assert bodies(store) == expected(range(200))
    assert store.report.notes == []
    store.close_now()
    assert [path.read_text() for path in strays] == ["mine"] * len(strays)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "harm",
    [
        "all queues",
        "one queue",
        "first file",
        "last file",
        "middle file",
        "empty file",
        "short file",
        "index",
        "checkpoint",
    ],
)
def test_what_the_log_can_restore_is_restored(folder: Path, crashed: Path, clean: bool, harm: str) -> None:
    target, count = folder if clean else crashed, 300
    queue = target / "consumequeue" / "T" / "1"
    files = sorted(queue.iterdir())
    match harm:
        case "all queues":
            shutil.rmtree(target / "consumequeue")
        case "one queue":
            shutil.rmtree(queue)
        case "first file":
            files[0].unlink()
        case "last file":
            files[-1].unlink()
        case "middle file":
            files[1].unlink()
        case "empty file":
            files[-2].write_bytes(b"")
        case "short file":
            os.truncate(files[1], 123)
        case "index":
            shutil.rmtree(target / "index")
        case "checkpoint":
            (target / "checkpoint").unlink()
    store = reopened(target)
    assert bodies(store) == expected(range(count))
    for number in (0, 99, count - 1):
        assert len(at_once(store.lookups.key_steps("T", f"k{number}", 10)).parts) == 1
    if clean and harm != "checkpoint":
        assert store.report.notes
    store.close_now()
    assert StoreScan(target).check(slots=50).problems == []
    again = reopened(target)
    assert (again.report.clean, again.report.notes) == (True, [])
    again.close_now()


@pytest.mark.parametrize("keep", [0, 10, 3000])
def test_a_last_segment_that_was_cut_short_costs_only_what_was_cut(folder: Path, keep: int) -> None:
    os.truncate(segment(folder, -1), keep)
    if keep == 0:
        segment(folder, -1).unlink()
    kept = [int(decode_record(view).body.split()[0]) for _, view in StoreScan(folder).records()]
    assert 0 < len(kept) < 200
    store = reopened(folder)
    assert bodies(store) == expected(kept)
    assert store.report.notes
    for number in (0, len(kept) - 1):
        assert len(at_once(store.lookups.key_steps("T", f"k{number}", 10)).parts) == 1
    fill(store, len(kept), 210)
    assert bodies(store) == expected(range(210))
    for number in (0, len(kept) - 1, len(kept), 209):
        assert len(at_once(store.lookups.key_steps("T", f"k{number}", 10)).parts) == 1
    store.close_now()
    assert StoreScan(folder).check(slots=50).problems == []


def test_a_missing_segment_is_refused_by_name(folder: Path) -> None:
    path = segment(folder, 1)
    path.unlink()
    with pytest.raises(StoreUnreadable, match=f"{path.name} is missing between its neighbours"):
        reopened(folder)


def test_a_flipped_bit_in_an_old_segment_costs_one_message(crashed: Path) -> None:
    # With the note of the stop before, the start would not read the old segment.
    (crashed / "proved.json").unlink()
    victim = next(view for entry, view in StoreScan(crashed).records() if entry.queue_offset == 10)
    offset = decode_record(victim).physical_offset
    number = int(decode_record(victim).body.split()[0])
    with segment(crashed, offset // SEGMENT).open("r+b") as file:
        file.seek(offset % SEGMENT + 100)
        byte = file.read(1)
        file.seek(offset % SEGMENT + 100)
        file.write(bytes([byte[0] ^ 8]))
    store = reopened(crashed)
    assert len(store.report.damaged) == 1
    assert any("hold no intact record" in note for note in store.report.notes)
    assert bodies(store) == expected([n for n in range(300) if n != number])
    assert at_once(store.lookups.record_steps(offset)) is None
    store.close_now()


def test_a_torn_tail_is_cut_off_and_does_not_come_back(crashed: Path) -> None:
    last = list(StoreScan(crashed).records())[-1][0]
    with segment(crashed, -1).open("r+b") as file:
        file.seek(last.offset % SEGMENT + 60)
        file.write(b"\xff" * 40)
    store = reopened(crashed)
    assert bodies(store) == expected(range(299))
    assert store.end_offset == last.offset
    fill(store, 299, 300)
    assert bodies(store) == expected(range(300))
    store.close_now()


def test_queues_may_begin_after_records_that_are_gone(folder: Path) -> None:
    segment(folder, 0).unlink()
    first = [int(decode_record(view).body.split()[0]) for _, view in StoreScan(folder).records()]
    store = reopened(folder)
    assert bodies(store) == expected(first)
    assert store.min_offset("T", 0) == min(n for n in first if n % QUEUES == 0) // QUEUES
    too_small = store.get("T", 0, 0, 32)
    assert (too_small.status, too_small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, store.min_offset("T", 0))
    store.close_now()
    shutil.rmtree(folder / "consumequeue")
    store = reopened(folder)
    assert bodies(store) == expected(first)
    assert store.min_offset("T", 0) == min(n for n in first if n % QUEUES == 0) // QUEUES
    store.close_now()


def test_a_folder_used_by_rocketmq_since_is_not_judged_by_our_note(folder: Path) -> None:
    """Apache leaves `proved.json` as it is; what it says is then of the past."""
    note = (folder / "proved.json").read_bytes()
    store = reopened(folder)
    fill(store, 200, 260)
    store.close_now()
    (folder / "proved.json").write_bytes(note)
    store = reopened(folder)
    assert bodies(store) == expected(range(260))
    assert store.report.notes == []
    store.close_now()


def test_a_topic_deleted_and_made_again_has_its_second_life_only(folder: Path) -> None:
    store = reopened(folder)
    store.delete_topic("T")
    fill(store, 1000, 1040)
    assert bodies(store) == expected(range(1000, 1040))
    store.close_now()
    shutil.rmtree(folder / "consumequeue")
    (folder / "abort").write_text("1")
    store = reopened(folder)
    assert bodies(store) == expected(range(1000, 1040))
    store.close_now()


def test_several_directories_share_the_segments(tmp_path: Path) -> None:
    paths = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    settings = settings_for(tmp_path / "store", store_path_commit_log=paths)
    store = MessageStore(settings)
    store.open()
    fill(store, 0, 200)
    store.close_now()
    names = [path.name for part in ("one", "two") for path in (tmp_path / part).iterdir()]
    assert len(names) == len(set(names)) > 3
    assert abs(len(list((tmp_path / "one").iterdir())) - len(list((tmp_path / "two").iterdir()))) <= 1
    store = MessageStore(settings)
    store.open()
    assert bodies(store) == expected(range(200))
    store.close_now()
