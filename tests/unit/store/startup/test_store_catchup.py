"""The index is rebuilt while the store serves (store.md §8, §10.4)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from small_store import by_key, fill, flip, number_of, opened, small_store

from store_probe import StoreProbe, catch_up_slowly, retry_catch_up_after
from tianzhou.errors import StoreError
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.index.index import Index
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.check_report import Kind
from tianzhou.store.offline.index_files import index_entries
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.startup.proved_note import read_note
from waiting import until_async

COUNT = 400
SLOTS = 50
small = partial(small_store, flush_interval_consume_queue=10, flush_interval_commit_log=10)
put = partial(fill, queues=2, repeat=40)


def found(store: MessageStore, number: int) -> bool:
    """Whether the index finds a message by both keys."""
    several = [
        [number_of(decode_record(part)) for part in by_key(store, key, limit=64).parts]
        for key in (f"k{number}", f"u{number}")
    ]
    return all(number in one for one in several)


def assert_sound(folder: Path, count: int) -> None:
    """Check that all keys are in the index, in the order of the log."""
    scan = StoreScan(folder)
    assert check_store(scan, slots=SLOTS).problems == []
    offsets = [entry.physical_offset for header in scan.index_headers() for entry in index_entries(header, SLOTS)]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == count


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a store after a power failure, with an unusable index."""
    with opened(small(tmp_path / "live")) as store:
        put(store, 0, COUNT // 2)
    with opened(small(tmp_path / "live")) as store:
        put(store, COUNT // 2, COUNT)
        shutil.copytree(tmp_path / "live", tmp_path / "store")
    (tmp_path / "store" / "running.json").unlink()
    shutil.rmtree(tmp_path / "store" / "index")
    return tmp_path / "store"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatch one record per loop iteration."""
    catch_up_slowly(monkeypatch)


def behind(store: MessageStore) -> int:
    assert StoreProbe(store).catch_up is not None
    return StoreProbe(store).catch_up.behind


@pytest.mark.usefixtures("slow")
async def test_queues_serve_while_the_index_is_made(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tianzhou.store")
    async with small(folder) as store:
        assert [store.max_offset("T", queue_id) for queue_id in (0, 1)] == [COUNT // 2] * 2
        assert behind(store) > 10_000
        await until_async(lambda: behind(store) < 80_000)
        put(store, COUNT, COUNT + 10)
        await until_async(lambda: store.max_offset("T", 0) == COUNT // 2 + 5)
        assert behind(store) > 10_000
        assert found(store, 3)
        assert not found(store, COUNT - 1)
        assert not found(store, COUNT + 9)
        assert sum("is answered without messages behind" in text for text in caplog.messages) == 1
        await until_async(lambda: not behind(store))
        assert all(found(store, number) for number in range(COUNT + 10))
        put(store, COUNT + 10, COUNT + 20)
        await until_async(lambda: found(store, COUNT + 19))
        await until_async(lambda: any("the index is complete" in text for text in caplog.messages))
    assert_sound(folder, COUNT + 20)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ["stopped", "killed", "power"])
def test_catching_up_goes_on_after_any_end(folder: Path, end: str, tmp_path: Path) -> None:
    async def main(where: Path, goal: int) -> int:
        async with small(where) as store:
            begun_at = behind(store)
            await until_async(lambda: behind(store) < goal)
            put(store, COUNT, COUNT + 1)
            StoreProbe(store).dispatch_all()
            if end != "stopped":
                shutil.copytree(where, tmp_path / "next")
                if end == "power":
                    (tmp_path / "next" / "running.json").unlink()
        return begun_at

    full = asyncio.run(main(folder, 60_000))
    if end == "stopped":
        note = read_note(folder)
        assert note is not None
        assert 0 < note.indexed < note.log_end
        report = check_store(StoreScan(folder), slots=SLOTS)
        # The next start handles it.
        assert (report.problems, {problem.kind for problem in report.notes}) == ([], {Kind.INDEX_LACKS})
        folder.rename(tmp_path / "next")
        begun_at = asyncio.run(main(tmp_path / "next", 1))
    else:
        with opened(small(tmp_path / "next")) as store:
            begun_at = behind(store)
            assert found(store, 0)
    assert begun_at < full
    with opened(small(tmp_path / "next")) as store:
        assert store.report.notes == []
        assert all(found(store, number) for number in range(COUNT + 1))


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stopped", [False, True])
async def test_entries_that_another_broker_adds_behind_the_gap_are_rebuilt(
    folder: Path, tmp_path: Path, *, stopped: bool
) -> None:
    """RocketMQ does not notice the gap: it continues to index at the log's end."""

    async with small(folder) as store:
        await until_async(lambda: behind(store) < 60_000)
        assert behind(store) > 10_000
        if not stopped:
            shutil.copytree(folder, tmp_path / "next")
    where = folder if stopped else tmp_path / "next"
    note = (where / "proved.json").read_bytes()
    (where / "proved.json").unlink()
    with opened(small(where, message_index_enable=False)) as other:
        put(other, COUNT, COUNT + 100)
    index = Index(small(where).settings)
    index.load(drop_after=None, store_time=None)
    for entry, view in StoreScan(where).records():
        number = number_of(decode_record(view))
        if number >= COUNT:
            index.put("T", f"u{number}", f"k{number}", entry.offset, entry.store_timestamp)
    index.close()
    (where / "proved.json").write_bytes(note)
    (where / "lock").write_bytes(b"lock")
    with opened(small(where)) as store:
        assert any("when another broker added to it" in text for text in store.report.notes)
        assert all(found(store, number) for number in range(COUNT + 100))
    assert_sound(where, COUNT + 100)


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_what_was_in_a_missing_index_file_comes_back(folder: Path, stop: str, which: int) -> None:
    with opened(small(folder)) as store:
        assert found(store, 0)
        StoreProbe(store).flush_log()
        if stop == "killed":
            with asyncio.Runner() as loop:
                loop.run(StoreProbe(store).flush_queues(thorough=True))
            shutil.copytree(folder, folder.with_name("next"))
    if stop == "killed":
        folder = folder.with_name("next")
    files = sorted((folder / "index").iterdir())
    assert len(files) > 4
    files[which].unlink()
    with opened(small(folder)) as store:
        assert any("index" in text for text in store.report.notes)
        assert all(found(store, number) for number in range(COUNT))
    assert_sound(folder, COUNT)


def test_an_index_that_was_switched_off_for_a_while_is_completed(folder: Path) -> None:
    with opened(small(folder)) as store:
        assert found(store, COUNT - 1)
    with opened(small(folder, message_index_enable=False)) as store:
        put(store, COUNT, COUNT + 50)
        assert by_key(store, "k3").parts == []
    with opened(small(folder)) as store:
        put(store, COUNT + 50, COUNT + 60)
        assert all(found(store, number) for number in range(COUNT + 60))
    assert_sound(folder, COUNT + 60)


def test_records_without_keys_are_not_gone_over_at_every_start(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    with opened(small(folder)) as store:
        put(store, 0, 20)
        for _ in range(200):
            store.append(NewRecord("T", 0, b"no keys " * 20, b""))
    with opened(small(folder)) as store:
        shutil.copytree(folder, tmp_path / "killed")
    for where in (folder, tmp_path / "killed"):
        with opened(small(where)) as store:
            assert StoreProbe(store).catch_up is None


@pytest.mark.usefixtures("slow")
async def test_segments_may_expire_under_way(folder: Path) -> None:
    async with small(folder) as store:
        await until_async(lambda: behind(store) < 100_000)
        for path in (folder / "commitlog").iterdir():
            os.utime(path, (0, 0))
        store.delete_expired()
        await until_async(lambda: not behind(store) and store.begin_offset > 60_000)
        first = next(number_of(decode_record(view)) for _, view in StoreScan(folder).records())
        assert all(found(store, number) for number in range(first, COUNT))


def test_damaged_records_get_no_entries(folder: Path) -> None:
    victim = decode_record(next(view for entry, view in StoreScan(folder).records() if entry.queue_offset == 50))
    number, place = int(victim.body.split()[0]), victim.physical_offset
    flip(sorted((folder / "commitlog").iterdir())[place // 16_384], place % 16_384 + 100, 8)
    with opened(small(folder)) as store:
        assert [found(store, n) for n in (number - 1, number, number + 1)] == [True, False, True]


async def test_a_disk_that_refuses_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retry_catch_up_after(monkeypatch, 0.01)

    store = small(folder)
    store.open()
    refusals = 5

    def refuse() -> object:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise OSError(28, "No space left on device")
        return begin()

    begin = StoreProbe(store).begin_index_files_by(monkeypatch, refuse)
    async with store:
        await until_async(lambda: not behind(store))
        assert refusals < 0
        assert all(found(store, number) for number in range(COUNT))


async def test_a_query_beside_the_loop_waits_for_nothing(folder: Path) -> None:
    async with small(folder) as store:
        await asyncio.sleep(0)
        try:
            result = await store.find(store.lookups.key_steps("T", "k1", 10))
        except StoreError as error:  # pragma: no cover - reports the error
            pytest.fail(str(error))
        assert len(result.parts) <= 1
        await until_async(lambda: not behind(store))
        assert len((await store.find(store.lookups.key_steps("T", "k1", 10))).parts) == 1
