"""Opening folders that are in use, of another size, incomplete or damaged (store.md §1, §10)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_store import SEGMENT, SLOTS, by_key, fill, flip, number_of, numbers, opened, overwrite, small_store

from store_reads import read_now
from tianzhou.errors import StoreLocked, StoreUnreadable
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan

QUEUES = 3


def expected(numbers: range | list[int]) -> list[int]:
    return [n for queue_id in range(QUEUES) for n in numbers if n % QUEUES == queue_id]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a store of 200 messages, stopped cleanly."""
    with opened(small_store(tmp_path / "store")) as store:
        fill(store, 0, 200)
    return tmp_path / "store"


@pytest.fixture
def crashed(tmp_path: Path, folder: Path) -> Path:
    """Return the same store with 100 more messages, not stopped cleanly."""
    with opened(small_store(folder)) as store:
        fill(store, 200, 300)
        shutil.copytree(folder, tmp_path / "crashed")
    return tmp_path / "crashed"


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
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


def test_a_clean_start_reads_nothing_again(folder: Path) -> None:
    with opened(small_store(folder)) as store:
        assert (store.report.clean, store.report.records, store.report.notes) == (True, 0, [])
        assert (folder / "abort").read_text() == str(os.getpid())
        assert numbers(store) == expected(range(200))
        fill(store, 200, 230)
        assert numbers(store) == expected(range(230))


def test_a_crashed_store_has_everything(crashed: Path) -> None:
    with opened(small_store(crashed)) as store:
        assert not store.report.clean
        assert numbers(store) == expected(range(300))
        for number in (0, 57, 199, 200, 299):
            assert len(by_key(store, f"k{number}").parts) == 1
            assert len(by_key(store, f"u{number}").parts) == 1
        fill(store, 300, 310)
        assert numbers(store) == expected(range(310))
    assert check_store(StoreScan(crashed), slots=SLOTS).problems == []


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("behind", [0, 1, 2, 17])
def test_a_crash_between_index_entries_loses_no_key(crashed: Path, same_boot: bool, behind: int) -> None:
    """The header of an index file may be older than its entries when the process dies."""
    if not same_boot:
        (crashed / "running.json").write_text('{"pid": 1, "boot": "another"}')
    newest = max((crashed / "index").iterdir())
    data = bytearray(newest.read_bytes())
    count = int.from_bytes(data[36:40], "big")
    behind = min(behind, count - 1)
    data[36:40] = (count - behind).to_bytes(4, "big")
    newest.write_bytes(data)
    with opened(small_store(crashed)) as store:
        for number in range(0, 300, 7):
            for key in (f"k{number}", f"u{number}"):
                (part,) = by_key(store, key).parts
                assert number_of(decode_record(part)) == number
        dropped = any("index" in note for note in store.report.notes)
        assert dropped is not same_boot
        fill(store, 300, 330)
        assert len(by_key(store, "k329").parts) == 1
    assert check_store(StoreScan(crashed), slots=SLOTS).problems == []


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
        with opened(small_store(copy)) as store:
            assert numbers(store) == expected(range(300))
        assert (copy / path.relative_to(crashed)).read_bytes() == before[path]


def test_two_stores_cannot_have_one_folder(folder: Path) -> None:
    code = (
        "import sys\nfrom tianzhou.store import MessageStore, StoreSettings\nfrom tianzhou.errors import StoreLocked\n"
        "try: MessageStore(StoreSettings(store_path_root_dir=sys.argv[1])).open()\n"
        "except StoreLocked as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with opened(small_store(folder)):
        with pytest.raises(StoreLocked, match="storePathRootDir"):
            small_store(folder).open()
        command = [sys.executable, "-c", code, str(folder)]
        said = subprocess.check_output(command, text=True, env=environment, timeout=30)
        assert f"in use by process {os.getpid()}" in said
        assert "storePathRootDir" in said
    with opened(small_store(folder)):
        pass


def test_a_folder_of_another_segment_size_is_refused_with_the_key(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()}
    for changes, says in (
        ({"mapped_file_size_commit_log": 1 << 20}, f"set mappedFileSizeCommitLog={SEGMENT}"),
        ({"mapped_file_size_commit_log": 4096}, f"set mappedFileSizeCommitLog={SEGMENT}"),
        ({"mapped_file_size_consume_queue": 6_000_000}, "set mappedFileSizeConsumeQueue=400"),
        ({"mapped_file_size_consume_queue": 200}, "set mappedFileSizeConsumeQueue=400"),
    ):
        with pytest.raises(StoreUnreadable, match=says):
            small_store(folder, **changes).open()
    assert {path: path.read_bytes() for path in folder.rglob("0*") if path.is_file()} == before
    with opened(small_store(folder)):
        pass


@pytest.mark.parametrize("same_boot", [True, False])
def test_the_only_queue_file_may_be_what_a_power_failure_left_of_it(crashed: Path, same_boot: bool) -> None:
    files = sorted(path for path in (crashed / "consumequeue").rglob("0*") if path.is_file())
    for path in files[1:]:
        path.unlink()
    os.truncate(files[0], 40)
    if same_boot:  # no write is lost, so use another setting
        with pytest.raises(StoreUnreadable, match="set mappedFileSizeConsumeQueue=40"):
            small_store(crashed).open()
        return
    (crashed / "running.json").write_text('{"pid": 1, "boot": "another"}')
    with opened(small_store(crashed)) as store:
        assert any("is 40 bytes long instead of 400" in note for note in store.report.notes)
        assert numbers(store) == expected(range(300))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreadable, match=r"file.*storePathRootDir"):
        small_store(tmp_path / "file" / "store").open()


@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_of_strange_length_is_rebuilt(folder: Path, crashed: Path, clean: bool) -> None:
    target = folder if clean else crashed
    (target / "checkpoint").write_bytes(b"no checkpoint")
    with opened(small_store(target)) as store:
        assert "checkpoint is 13 bytes long, not 4096; it is rebuilt" in store.report.notes[0]
        assert numbers(store) == expected(range(300))
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
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(range(200))
        assert store.report.notes == []
    assert [path.read_text() for path in strays] == ["mine"] * len(strays)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "harm",
    [
        "all queues", "one queue", "first file", "last file", "middle file", "empty file", "short file", "index",
        "checkpoint",
    ],
)  # fmt: skip
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
    with opened(small_store(target)) as store:
        assert numbers(store) == expected(range(count))
        for number in (0, 99, count - 1):
            assert len(by_key(store, f"k{number}").parts) == 1
        if clean and harm != "checkpoint":
            assert store.report.notes
    assert check_store(StoreScan(target), slots=SLOTS).problems == []
    with opened(small_store(target)) as again:
        assert (again.report.clean, again.report.notes) == (True, [])


@pytest.mark.parametrize("keep", [0, 10, 3000])
def test_a_last_segment_that_was_cut_short_costs_only_what_was_cut(folder: Path, keep: int) -> None:
    os.truncate(segment(folder, -1), keep)
    if keep == 0:
        segment(folder, -1).unlink()
    kept = [number_of(decode_record(view)) for _, view in StoreScan(folder).records()]
    assert 0 < len(kept) < 200
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(kept)
        assert store.report.notes
        for number in (0, len(kept) - 1):
            assert len(by_key(store, f"k{number}").parts) == 1
        fill(store, len(kept), 210)
        assert numbers(store) == expected(range(210))
        for number in (0, len(kept) - 1, len(kept), 209):
            assert len(by_key(store, f"k{number}").parts) == 1
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


def test_a_missing_segment_is_refused_by_name(folder: Path) -> None:
    path = segment(folder, 1)
    path.unlink()
    with pytest.raises(StoreUnreadable, match=f"{path.name} is missing between its neighbours"):
        small_store(folder).open()


def test_a_flipped_bit_in_an_old_segment_costs_one_message(crashed: Path) -> None:
    # With the note of the previous stop, the start would not read the old segment.
    (crashed / "proved.json").unlink()
    victim = next(view for entry, view in StoreScan(crashed).records() if entry.queue_offset == 10)
    offset = decode_record(victim).physical_offset
    number = number_of(decode_record(victim))
    flip(segment(crashed, offset // SEGMENT), offset % SEGMENT + 100, 8)
    with opened(small_store(crashed)) as store:
        assert len(store.report.damaged) == 1
        assert any("hold no intact record" in note for note in store.report.notes)
        assert numbers(store) == expected([n for n in range(300) if n != number])
        assert at_once(store.lookups.record_steps(offset)) is None


def test_a_torn_tail_is_cut_off_and_does_not_come_back(crashed: Path) -> None:
    last = list(StoreScan(crashed).records())[-1][0]
    overwrite(segment(crashed, -1), last.offset % SEGMENT + 60, b"\xff" * 40)
    with opened(small_store(crashed)) as store:
        assert numbers(store) == expected(range(299))
        assert store.end_offset == last.offset
        fill(store, 299, 300)
        assert numbers(store) == expected(range(300))


def test_queues_may_begin_after_records_that_are_gone(folder: Path) -> None:
    segment(folder, 0).unlink()
    first = [number_of(decode_record(view)) for _, view in StoreScan(folder).records()]
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(first)
        assert store.min_offset("T", 0) == min(n for n in first if n % QUEUES == 0) // QUEUES
        too_small = read_now(store, "T", 0, 0, 32)
        assert (too_small.status, too_small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, store.min_offset("T", 0))
    shutil.rmtree(folder / "consumequeue")
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(first)
        assert store.min_offset("T", 0) == min(n for n in first if n % QUEUES == 0) // QUEUES


def test_a_folder_used_by_rocketmq_since_is_not_judged_by_our_note(folder: Path) -> None:
    """Apache does not change `proved.json`, so its contents are outdated."""
    note = (folder / "proved.json").read_bytes()
    with opened(small_store(folder)) as store:
        fill(store, 200, 260)
    (folder / "proved.json").write_bytes(note)
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(range(260))
        assert store.report.notes == []


def test_a_topic_deleted_and_made_again_has_its_second_life_only(folder: Path) -> None:
    with opened(small_store(folder)) as store:
        store.delete_topic("T")
        fill(store, 1000, 1040)
        assert numbers(store) == expected(range(1000, 1040))
    shutil.rmtree(folder / "consumequeue")
    (folder / "abort").write_text("1")
    with opened(small_store(folder)) as store:
        assert numbers(store) == expected(range(1000, 1040))


def test_several_directories_share_the_segments(tmp_path: Path) -> None:
    paths = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with opened(small_store(tmp_path / "store", store_path_commit_log=paths)) as store:
        fill(store, 0, 200)
    names = [path.name for part in ("one", "two") for path in (tmp_path / part).iterdir()]
    assert len(names) == len(set(names)) > 3
    assert abs(len(list((tmp_path / "one").iterdir())) - len(list((tmp_path / "two").iterdir()))) <= 1
    with opened(MessageStore(store.settings)) as store:
        assert numbers(store) == expected(range(200))
