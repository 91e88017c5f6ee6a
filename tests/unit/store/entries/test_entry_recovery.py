"""Opening a DLedger store after stops and crashes, with a torn end, with damage inside, without its index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from group_of_one import all_entries, commit, copied, entries_of, group_store, lead
from small_store import SEGMENT, fill, flip, number_of, numbers, opened, read_queue, small_store

from store_probe import use_boot_id
from tianzhou.records.entry import HEADER_SIZE, UNIT_SIZE
from tianzhou.records.layout import MAGIC_BLANK, SIZE_MAGIC
from tianzhou.store import NewRecord, PutStatus
from tianzhou.store.entries.member_files import EntryCheckpoint, EntryMarks, Loss
from waiting import until_async

MEMBER = "dledger-n0"


def written(folder: Path, count: int = 40, *, committed: int | None = None) -> list[bytes]:
    """Return the entries of a stopped store, beginning with the one that opens the term."""
    with opened(group_store(folder)) as store:
        lead(store, 1)
        fill(store, 0, count)
        commit(store, committed)
        return all_entries(store)


def units(folder: Path, count: int) -> bytes:
    with (folder / MEMBER / "index" / f"{0:020d}").open("rb") as file:
        return file.read(count * UNIT_SIZE)


def put(path: Path, position: int, byte: int) -> None:
    """Change a byte of a sparse file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([byte]))


def test_a_clean_stop_keeps_everything(tmp_path: Path) -> None:
    before = written(tmp_path, 150)
    store = group_store(tmp_path)
    report = store.open()
    assert (report.clean, report.records, report.impaired) == (True, 0, "")
    assert all_entries(store) == before
    assert entries_of(store).committed_index == 150
    assert sorted(numbers(store)) == list(range(150))
    lead(store, 2)
    fill(store, 150, 160)
    commit(store)
    assert [record.queue_offset for record in read_queue(store)] == list(range(54))
    store.close_now()


@pytest.mark.parametrize("lost", ["checkpoint", "index", "../checkpoint", "../proved.json", "../consumequeue"])
def test_what_is_made_of_the_log_is_made_anew(tmp_path: Path, lost: str) -> None:
    before = written(tmp_path, 150)
    there = units(tmp_path, 151)
    path = tmp_path / MEMBER / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with opened(group_store(tmp_path)) as store:
        assert all_entries(store) == before
        commit(store)
        assert sorted(numbers(store)) == list(range(150))
    assert units(tmp_path, 151) == there


def test_after_a_crash_of_the_process_nothing_is_lost(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "store")) as store:
        lead(store, 1)
        fill(store, 0, 100)
        commit(store, 70)
        before = all_entries(store)
        left = copied(tmp_path / "store", tmp_path / "left")
    with opened(group_store(left)) as store:
        entries = entries_of(store)
        assert not store.report.clean
        assert all_entries(store) == before
        assert entries.loss.lost == ""
        # Messages in queues were committed, whatever the checkpoint's value.
        assert entries.committed_index == 70
        assert sorted(numbers(store)) == list(range(70))
        commit(store)
        assert sorted(numbers(store)) == list(range(100))


def test_what_is_not_committed_is_in_no_queue_after_a_stop(tmp_path: Path) -> None:
    written(tmp_path, 40, committed=20)
    with opened(group_store(tmp_path)) as store:
        assert entries_of(store).end_index == 40
        assert sorted(numbers(store)) == list(range(20))
        lead(store, 2)
        fill(store, 40, 43)
        commit(store)
        assert [number_of(record) for record in read_queue(store)] == list(range(0, 43, 3))


def test_a_log_that_ends_anywhere_ends_with_its_last_whole_entry(tmp_path: Path) -> None:
    """For each byte at which the last entries can be torn, all entries that the group acknowledged before are
    present.
    """
    before = written(tmp_path / "store", 12)
    ends = [sum(map(len, before[: count + 1])) for count in range(len(before))]
    data = tmp_path / "store" / MEMBER / "data" / f"{0:020d}"
    whole = data.read_bytes()
    (tmp_path / "store" / "abort").touch()
    for at in [*range(ends[-3], ends[-2], 17), *range(ends[-2], ends[-2] + 58, 3), ends[-1] - 1]:
        left = copied(tmp_path / "store", tmp_path / "left")
        (left / MEMBER / "data" / data.name).write_bytes(whole[:at] + bytes(SEGMENT - at))
        count = sum(end <= at for end in ends)
        with opened(group_store(left)) as store:
            entries = entries_of(store)
            assert entries.end_index == count - 1, at
            assert all_entries(store) == before[:count]
            assert entries.committed_index == count - 1
            assert f"it had {len(before) - 1}" in entries.loss.lost
            assert sorted(numbers(store)) == list(range(count - 1))
            entries.append_raw(b"".join(before[count:]))
            commit(store)
            assert sorted(numbers(store)) == list(range(12))
        shutil.rmtree(left)


@pytest.mark.parametrize("where", ["header", "body"])
def test_damage_inside_cuts_the_log_and_is_remembered(tmp_path: Path, where: str) -> None:
    before = written(tmp_path, 40)
    at = sum(map(len, before[:20])) + (10 if where == "header" else HEADER_SIZE + 120)
    flip(tmp_path / MEMBER / "data" / f"{0:020d}", at, 4)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "proved.json").unlink()
    for _ in range(2):
        with opened(group_store(tmp_path)) as store:
            entries = entries_of(store)
            assert entries.end_index == 19
            assert store.report.impaired == entries.loss.lost
            assert "entries follow it" in entries.loss.lost
            assert sorted(numbers(store)) == list(range(19))
    with opened(group_store(tmp_path)) as store:
        entries_of(store).append_raw(b"".join(before[20:]))
        commit(store)
        entries_of(store).mended()
        assert sorted(numbers(store)) == list(range(40))
    with opened(group_store(tmp_path)) as store:
        assert entries_of(store).loss.lost == ""
        assert all_entries(store) == before


def test_a_plain_store_becomes_one_of_a_group(tmp_path: Path) -> None:
    with opened(small_store(tmp_path)) as store:
        fill(store, 0, 100)
        end = store.end_offset
    with opened(group_store(tmp_path)) as store:
        divided = entries_of(store).end_position
        assert (entries_of(store).begin_index, divided) == (-1, -(-end // SEGMENT) * SEGMENT)
        assert sorted(numbers(store)) == list(range(100))
        lead(store, 1)
        fill(store, 100, 200)
        commit(store)
        assert entries_of(store).position_of(0) == divided
    blank = (tmp_path / "commitlog" / f"{divided - SEGMENT:020d}").read_bytes()
    assert SIZE_MAGIC.unpack_from(blank, end % SEGMENT) == (divided - end, MAGIC_BLANK)
    for crash in (False, True):
        if crash:
            (tmp_path / "abort").touch()
            (tmp_path / "proved.json").unlink()
            (tmp_path / "checkpoint").unlink()
        with opened(group_store(tmp_path)) as store:
            assert entries_of(store).begin_index == 0
            assert sorted(numbers(store)) == list(range(200))
            assert [record.queue_offset for record in read_queue(store)] == list(range(67))


def test_expired_plain_segments_leave_the_entries(tmp_path: Path) -> None:
    with opened(small_store(tmp_path)) as store:
        fill(store, 0, 100)
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 100, 200)
        commit(store)
        first = entries_of(store).position_of(0)
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    with opened(group_store(tmp_path)) as store:
        assert (store.begin_offset, entries_of(store).begin_index) == (first, 0)
        assert sorted(numbers(store)) == list(range(100, 200))
        assert store.append(NewRecord("T", 0, b"", b"")).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_file_of_the_index_that_is_short_is_made_anew(tmp_path: Path) -> None:
    before = written(tmp_path)
    file = tmp_path / MEMBER / "index" / f"{0:020d}"
    os.truncate(file, 400)
    with opened(group_store(tmp_path)) as store:
        assert all_entries(store) == before


def test_a_unit_that_is_wrong_is_made_anew(tmp_path: Path) -> None:
    before = written(tmp_path)
    put(tmp_path / MEMBER / "index" / f"{0:020d}", UNIT_SIZE * 40 + 7, 1)
    with opened(group_store(tmp_path)) as store:
        assert all_entries(store) == before


async def test_old_segments_go_but_for_what_is_not_committed(tmp_path: Path) -> None:
    async with group_store(tmp_path, flush_interval_commit_log=10, flush_commit_log_least_pages=0) as store:
        entries = entries_of(store)
        entries.lead(1)
        entries.append_opening(1, 5)
        commit(store)
        await entries.served()
        store.flags.opened()
        fill(store, 0, 200)
        commit(store, 100)
        begin = entries.position_of(100) // SEGMENT * SEGMENT
        await until_async(lambda: store.flushed.value >= store.end_offset)
        for path in (tmp_path / MEMBER / "data").iterdir():
            os.utime(path, (0, 0))
        store.delete_expired()
        await until_async(lambda: store.begin_offset == begin)
        assert entries.position_of(entries.begin_index) == begin
        commit(store)
        await until_async(lambda: store.dispatch_behind_bytes == 0)
        last = begin + SEGMENT
        store.delete_expired()
        await until_async(lambda: store.begin_offset >= last)
    with opened(group_store(tmp_path)) as store:
        assert entries_of(store).loss.lost == ""
        assert entries_of(store).end_index == 200
        assert max(numbers(store)) == 199


@pytest.mark.parametrize(
    ("boot", "abort", "changes", "impaired"),
    [
        ("one", None, {}, False),  # its process died
        ("two", None, {}, True),
        ("two", b"", {}, True),  # the marker's text is missing, too
        ("two", b"4711", {}, False),  # Apache's broker used the folder since
        ("two", None, {"flush_disk_type": "SYNC_FLUSH"}, False),
    ],
)
def test_who_lost_its_power_may_have_lost_entries(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    boot: str,
    abort: bytes | None,
    changes: dict[str, str],
    impaired: bool,
) -> None:
    kernel = tmp_path / "boot_id"
    kernel.write_text("one\n")
    use_boot_id(monkeypatch, kernel)
    with opened(group_store(tmp_path / "before")) as store:
        lead(store, 1)
        fill(store, 0, 9)
        left = copied(tmp_path / "before", tmp_path / "after")
    kernel.write_text(f"{boot}\n")
    if abort is not None:
        (left / "abort").write_bytes(abort)
    for _ in range(2):  # it stays so after a clean stop
        with opened(group_store(left, **changes)) as store:
            assert ("lost its power" in entries_of(store).loss.lost) is impaired


@pytest.fixture
def power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Return a function that copies an open store in the state after a power failure."""
    kernel = tmp_path / "boot_id"
    kernel.write_text("one\n")
    use_boot_id(monkeypatch, kernel)

    def cut(store: Path) -> Path:
        left = copied(store, tmp_path / "left")
        kernel.write_text("two\n")
        return left

    return cut


def half_gone(folder: Path, raw: list[bytes], index: int) -> None:
    """Remove the second half of an entry, as if it had not reached the disk."""
    at = sum(map(len, raw[:index])) + len(raw[index]) // 2
    with (folder / MEMBER / "data" / f"{0:020d}").open("r+b") as file:
        file.seek(at)
        file.write(bytes(len(raw[index]) - len(raw[index]) // 2))


def test_what_was_synced_last_is_certain_the_rest_is_in_doubt(
    tmp_path: Path, power_cut: Callable[[Path], Path]
) -> None:
    with opened(group_store(tmp_path / "store")) as store:
        lead(store, 1)
        fill(store, 0, 20)
        commit(store, 12)
        EntryCheckpoint(tmp_path / "store" / MEMBER).write(EntryMarks(20, 12, 8))
        left = power_cut(tmp_path / "store")
    with opened(group_store(left)) as store:
        entries = entries_of(store)
        assert entries.loss.doubted_from == 9
        # Entries that may be damaged are hidden until the group confirms them.
        assert entries.committed_index == 8
        assert sorted(numbers(store)) == list(range(8))
    with opened(group_store(left)) as store:  # the store still knows it after a clean stop
        entries = entries_of(store)
        assert entries.loss.doubted_from == 9
        assert entries.committed_index == 8
        commit(store)
        assert sorted(numbers(store)) == list(range(20))
        entries.mended()
        assert entries.marks.synced_index == 20
    with opened(group_store(left)) as store:
        assert entries_of(store).loss == Loss()
        assert entries_of(store).committed_index == 20


@pytest.mark.parametrize(("broken", "lost"), [(14, False), (6, True)])
def test_with_sync_flush_only_what_was_synced_counts_as_lost(
    tmp_path: Path, power_cut: Callable[[Path], Path], broken: int, *, lost: bool
) -> None:
    sync = {"flush_disk_type": "SYNC_FLUSH"}
    with opened(group_store(tmp_path / "store", **sync)) as store:
        lead(store, 1)
        fill(store, 0, 20)
        commit(store, 8)
        before = all_entries(store)
        EntryCheckpoint(tmp_path / "store" / MEMBER).write(EntryMarks(20, 8, 8))
        left = power_cut(tmp_path / "store")
    half_gone(left, before, broken)
    with opened(group_store(left, **sync)) as store:
        entries = entries_of(store)
        assert entries.end_index == broken - 1
        assert bool(entries.loss.lost) is lost
        assert entries.loss.doubted_from is None
        entries.append_raw(b"".join(before[broken:]))
        commit(store)
        assert sorted(numbers(store)) == list(range(20))


def test_a_cut_takes_back_what_the_checkpoint_calls_synced(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 20)
        commit(store, 8)
        entries_of(store).write_checkpoint()
        checkpoint = EntryCheckpoint(tmp_path / MEMBER)
        assert checkpoint.read().synced_index is not None
        checkpoint.write(EntryMarks(20, 8, 20))
    with opened(group_store(tmp_path)) as store:
        entries_of(store).cut_from(15)
        assert EntryCheckpoint(tmp_path / MEMBER).read().synced_index == 14
