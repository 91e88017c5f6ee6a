"""The index is made anew while the store serves (store.md §8, §10.4)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.errors import StoreError
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.dispatch import catchup
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.index.index import Index
from tianzhou.store.offline.check_report import Kind
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.startup.proved_note import read_note

COUNT = 400
SLOTS = 50


def settings_for(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder),
        "mapped_file_size_commit_log": 16_384,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": SLOTS,
        "max_index_num": 100,
        "flush_interval_consume_queue": 10,
        "flush_interval_commit_log": 10,
    }
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        record = NewRecord("T", number % 2, b"%d " % number * 40, b"", keys=f"k{number}", uniq_key=f"u{number}")
        record.properties = f"KEYS\x01{record.keys}\x02UNIQ_KEY\x01{record.uniq_key}\x02".encode()
        store.append(record)


def found(store: MessageStore, number: int) -> bool:
    """Whether both keys of a message lead to it."""
    several = [
        [int(decode_record(part).body.split()[0]) for part in at_once(store.lookups.key_steps("T", key, 64)).parts]
        for key in (f"k{number}", f"u{number}")
    ]
    return all(number in one for one in several)


def assert_sound(folder: Path, count: int) -> None:
    """All keys are in the index, in the order of the log."""
    scan = StoreScan(folder)
    assert scan.check(slots=SLOTS).problems == []
    offsets = [entry.physical_offset for header in scan.index_headers() for entry in scan.index_entries(header, SLOTS)]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == count


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that was killed by a loss of power; its index is of no use."""
    store = MessageStore(settings_for(tmp_path / "live"))
    store.open()
    fill(store, 0, COUNT // 2)
    store.close_now()
    store = MessageStore(settings_for(tmp_path / "live"))
    store.open()
    fill(store, COUNT // 2, COUNT)
    shutil.copytree(tmp_path / "live", tmp_path / "store")
    store.close_now()
    (tmp_path / "store" / "running.json").unlink()
    shutil.rmtree(tmp_path / "store" / "index")
    return tmp_path / "store"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record per turn of the loop."""
    monkeypatch.setattr(catchup, "_STEP_RECORDS", 1)
    monkeypatch.setattr(catchup, "_SLICE_SECONDS", 0.0)


def behind(store: MessageStore) -> int:
    assert store._upkeep.catch_up is not None
    return store._upkeep.catch_up.behind


@pytest.mark.usefixtures("slow")
def test_queues_serve_while_the_index_is_made(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        caplog.set_level(logging.INFO, "tianzhou.store")
        async with MessageStore(settings_for(folder)) as store:
            assert [store.max_offset("T", queue_id) for queue_id in (0, 1)] == [COUNT // 2] * 2
            assert behind(store) > 10_000
            await until(lambda: behind(store) < 80_000)
            fill(store, COUNT, COUNT + 10)
            await until(lambda: store.max_offset("T", 0) == COUNT // 2 + 5)
            assert behind(store) > 10_000
            assert found(store, 3)
            assert not found(store, COUNT - 1)
            assert not found(store, COUNT + 9)
            assert sum("is answered without messages behind" in text for text in caplog.messages) == 1
            await until(lambda: not behind(store))
            assert all(found(store, number) for number in range(COUNT + 10))
            fill(store, COUNT + 10, COUNT + 20)
            await until(lambda: found(store, COUNT + 19))
            await until(lambda: any("the index is complete" in text for text in caplog.messages))

    asyncio.run(main())
    assert_sound(folder, COUNT + 20)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ["stopped", "killed", "power"])
def test_catching_up_goes_on_after_any_end(folder: Path, end: str, tmp_path: Path) -> None:
    async def main(where: Path, goal: int) -> int:
        async with MessageStore(settings_for(where)) as store:
            begun_at = behind(store)
            await until(lambda: behind(store) < goal)
            fill(store, COUNT, COUNT + 1)
            store._dispatcher.drain()
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
        report = StoreScan(folder).check(slots=SLOTS)
        # The next start sees to it.
        assert (report.problems, {problem.kind for problem in report.notes}) == ([], {Kind.INDEX_LACKS})
        folder.rename(tmp_path / "next")
    begun_at = asyncio.run(main(tmp_path / "next", 1)) if end == "stopped" else 0
    if end != "stopped":
        store = MessageStore(settings_for(tmp_path / "next"))
        store.open()
        begun_at = behind(store)
        assert found(store, 0)
        store.close_now()
    assert begun_at < full
    store = MessageStore(settings_for(tmp_path / "next"))
    assert store.open().notes == []
    assert all(found(store, number) for number in range(COUNT + 1))
    store.close_now()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stopped", [False, True])
def test_entries_that_another_broker_adds_behind_the_gap_are_made_anew(
    folder: Path, tmp_path: Path, *, stopped: bool
) -> None:
    """RocketMQ knows nothing of the gap: it goes on indexing at the log's end."""

    async def main() -> None:
        async with MessageStore(settings_for(folder)) as store:
            await until(lambda: behind(store) < 60_000)
            assert behind(store) > 10_000
            if not stopped:
                shutil.copytree(folder, tmp_path / "next")

    asyncio.run(main())
    where = folder if stopped else tmp_path / "next"
    note = (where / "proved.json").read_bytes()
    (where / "proved.json").unlink()
    other = MessageStore(settings_for(where, message_index_enable=False))
    other.open()
    fill(other, COUNT, COUNT + 100)
    other.close_now()
    index = Index(settings_for(where))
    index.load(drop_after=None, store_time=None)
    for entry, view in StoreScan(where).records():
        number = int(decode_record(view).body.split()[0])
        if number >= COUNT:
            index.put("T", f"u{number}", f"k{number}", entry.offset, entry.store_timestamp)
    index.close()
    (where / "proved.json").write_bytes(note)
    (where / "lock").write_bytes(b"lock")
    store = MessageStore(settings_for(where))
    assert any("when another broker added to it" in text for text in store.open().notes)
    assert all(found(store, number) for number in range(COUNT + 100))
    store.close_now()
    assert_sound(where, COUNT + 100)


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_what_was_in_a_missing_index_file_comes_back(folder: Path, stop: str, which: int) -> None:
    store = MessageStore(settings_for(folder))
    store.open()
    assert found(store, 0)
    store._flusher.flush_now()
    if stop == "clean":
        store.close_now()
    else:
        with asyncio.Runner() as loop:
            loop.run(store._upkeep._flush_queues(thorough=True))
        shutil.copytree(folder, folder.with_name("next"))
        store.close_now()
        folder = folder.with_name("next")
    files = sorted((folder / "index").iterdir())
    assert len(files) > 4
    files[which].unlink()
    store = MessageStore(settings_for(folder))
    assert any("index" in text for text in store.open().notes)
    assert all(found(store, number) for number in range(COUNT))
    store.close_now()
    assert_sound(folder, COUNT)


def test_an_index_that_was_switched_off_for_a_while_is_completed(folder: Path) -> None:
    store = MessageStore(settings_for(folder))
    store.open()
    assert found(store, COUNT - 1)
    store.close_now()
    store = MessageStore(settings_for(folder, message_index_enable=False))
    store.open()
    fill(store, COUNT, COUNT + 50)
    assert at_once(store.lookups.key_steps("T", "k3", 10)).parts == []
    store.close_now()
    store = MessageStore(settings_for(folder))
    store.open()
    fill(store, COUNT + 50, COUNT + 60)
    assert all(found(store, number) for number in range(COUNT + 60))
    store.close_now()
    assert_sound(folder, COUNT + 60)


def test_records_without_keys_are_not_gone_over_at_every_start(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    store = MessageStore(settings_for(folder))
    store.open()
    fill(store, 0, 20)
    for _ in range(200):
        store.append(NewRecord("T", 0, b"no keys " * 20, b""))
    store.close_now()
    store = MessageStore(settings_for(folder))
    store.open()
    shutil.copytree(folder, tmp_path / "killed")
    store.close_now()
    for where in (folder, tmp_path / "killed"):
        store = MessageStore(settings_for(where))
        store.open()
        assert store._upkeep.catch_up is None
        store.close_now()


@pytest.mark.usefixtures("slow")
async def test_segments_may_expire_under_way(folder: Path) -> None:
    async with MessageStore(settings_for(folder)) as store:
        await until(lambda: behind(store) < 100_000)
        for path in (folder / "commitlog").iterdir():
            os.utime(path, (0, 0))
        store.delete_expired()
        await until(lambda: not behind(store) and store.begin_offset > 60_000)
        first = next(int(decode_record(view).body.split()[0]) for _, view in StoreScan(folder).records())
        assert all(found(store, number) for number in range(first, COUNT))


def test_damaged_records_get_no_entries(folder: Path) -> None:
    victim = decode_record(next(view for entry, view in StoreScan(folder).records() if entry.queue_offset == 50))
    number, place = int(victim.body.split()[0]), victim.physical_offset
    segment = sorted((folder / "commitlog").iterdir())[place // 16_384]
    data = bytearray(segment.read_bytes())
    data[place % 16_384 + 100] ^= 8
    segment.write_bytes(data)
    store = MessageStore(settings_for(folder))
    store.open()
    assert [found(store, n) for n in (number - 1, number, number + 1)] == [True, False, True]
    store.close_now()


async def test_a_disk_that_refuses_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "_RETRY_SECONDS", 0.01)

    store = MessageStore(settings_for(folder))
    store.open()
    index, refusals = store._index, 5
    assert index is not None
    begin = index._begin

    def refuse() -> object:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise OSError(28, "No space left on device")
        return begin()

    monkeypatch.setattr(type(index), "_begin", lambda _: refuse())
    async with store:
        await until(lambda: not behind(store))
        assert refusals < 0
        assert all(found(store, number) for number in range(COUNT))


async def test_a_query_beside_the_loop_waits_for_nothing(folder: Path) -> None:
    async with MessageStore(settings_for(folder)) as store:
        await asyncio.sleep(0)
        try:
            result = await store.find(store.lookups.key_steps("T", "k1", 10))
        except StoreError as error:  # pragma: no cover - names what went wrong
            pytest.fail(str(error))
        assert len(result.parts) <= 1
        await until(lambda: not behind(store))
        assert len((await store.find(store.lookups.key_steps("T", "k1", 10))).parts) == 1
