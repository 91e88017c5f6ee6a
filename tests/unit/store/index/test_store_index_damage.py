"""Index files that lead in circles or are of another length: noticed, named, made anew behind serving."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from tianzhou.store import MessageStore, NewRecord, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER_SIZE
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import index_hash

SLOTS, ENTRIES, COUNT = 1, 40, 100
"""One slot: every chain goes through all entries of its file."""


def settings_for(folder: Path, **changes: object) -> StoreSettings:
    values: dict[str, object] = {
        "store_path_root_dir": str(folder), "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 4000, "max_hash_slot_num": SLOTS, "max_index_num": ENTRIES,
    }  # fmt: skip
    return StoreSettings(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = MessageStore(settings_for(tmp_path))
    store.open()
    for number in range(COUNT):
        key = f"k{number}"
        store.append(NewRecord("T", 0, b"%d " % number, f"KEYS\x01{key}\x02".encode(), keys=key))
    store.close_now()
    return tmp_path


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "index").iterdir())


def lead(path: Path, entry: int, previous: int) -> None:
    """Have an entry lead to another one."""
    at = HEADER_SIZE + 4 * SLOTS + ENTRY_SIZE * entry
    with path.open("r+b") as file:
        file.seek(at)
        key_hash, offset, seconds, _ = ENTRY.unpack(file.read(ENTRY_SIZE))
        file.seek(at)
        file.write(ENTRY.pack(key_hash, offset, seconds, previous))


def found(store: MessageStore) -> int:
    return sum(len(at_once(store.lookups.key_steps("T", f"k{number}", 8)).parts) == 1 for number in range(COUNT))


@pytest.mark.parametrize("circle", [[(20, 20)], [(20, 30)], [(5, 20), (20, 5)], [(20, 1 << 30)], [(20, -7)]])
def test_a_query_of_a_chain_that_leads_nowhere_ends_and_the_file_is_made_anew(
    folder: Path, circle: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    path = files_of(folder)[1]
    for entry, previous in circle:
        lead(path, entry, previous)
    store = MessageStore(settings_for(folder))
    store.open()
    at_once(store.lookups.key_steps("T", "no such key", 8))  # goes through every chain of the slot
    assert f"index file {path} is damaged" in caplog.text
    assert found(store) == COUNT
    store.close_now()
    assert StoreScan(folder).check(slots=SLOTS).problems == []


async def test_a_running_store_makes_a_damaged_file_anew_and_goes_on_indexing(folder: Path) -> None:
    lead(files_of(folder)[0], 20, 25)
    async with MessageStore(settings_for(folder)) as store:
        async with asyncio.timeout(10):
            await store.find(store.lookups.key_steps("T", "no such key", 8))
            store.append(NewRecord("T", 0, b"later", b"KEYS\x01later\x02", keys="later"))
            assert store._upkeep.catch_up is not None
            while not store._upkeep.catch_up.done:
                await asyncio.sleep(0.001)
        assert found(store) == COUNT
        assert len(at_once(store.lookups.key_steps("T", "later", 8)).parts) == 1
    assert StoreScan(folder).check(slots=SLOTS).problems == []
    again = MessageStore(settings_for(folder))
    again.open()
    assert again.report.notes == []
    assert found(again) == COUNT
    again.close_now()


async def test_a_file_that_is_damaged_while_the_index_catches_up_is_made_anew_as_well(folder: Path) -> None:
    lead(files_of(folder)[0], 20, 25)
    files_of(folder)[2].unlink()
    async with MessageStore(settings_for(folder)) as store:
        async with asyncio.timeout(10):
            await store.find(store.lookups.key_steps("T", "no such key", 8))
            while store._upkeep.catch_up is None or not store._upkeep.catch_up.done:
                await asyncio.sleep(0.001)
        assert found(store) == COUNT
    assert StoreScan(folder).check(slots=SLOTS).problems == []


def test_a_start_after_the_death_of_a_broker_that_made_its_index_anew_finds_all_keys(folder: Path) -> None:
    lead(files_of(folder)[1], 20, 25)
    store = MessageStore(settings_for(folder))
    store.open()
    store._upkeep._begin_catch_up = lambda index, position: None  # type: ignore[method-assign]  # it dies before
    at_once(store.lookups.key_steps("T", "no such key", 8))
    assert len(files_of(folder)) == 1
    store._release()
    again = MessageStore(settings_for(folder))
    again.open()
    assert found(again) == COUNT
    again.close_now()
    assert StoreScan(folder).check(slots=SLOTS).problems == []


def lengthen_first(folder: Path) -> StoreSettings:
    os.truncate(files_of(folder)[0], 5000)
    return settings_for(folder)


def shorten_last(folder: Path) -> StoreSettings:
    os.truncate(files_of(folder)[-1], 100)
    return settings_for(folder)


def other_settings(folder: Path) -> StoreSettings:
    return settings_for(folder, max_index_num=ENTRIES + 20)


def only_file(folder: Path) -> StoreSettings:
    for path in files_of(folder)[1:]:
        path.unlink()
    os.truncate(files_of(folder)[0], 64)
    return settings_for(folder)


@pytest.mark.parametrize("change", [lengthen_first, shorten_last, other_settings, only_file])
def test_index_files_of_another_length_are_made_anew_with_one_line(
    folder: Path, change: object, caplog: pytest.LogCaptureFixture
) -> None:
    store = MessageStore(change(folder))  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        report = store.open()
    assert len([note for note in report.notes if "bytes long, not the" in note]) == 1
    assert "to be made anew from the log" in caplog.text
    assert store.get("T", 0, 0, 32).records
    assert found(store) == COUNT
    store.close_now()
    assert StoreScan(folder).check(slots=SLOTS).problems == []


def test_all_keys_of_the_test_share_a_slot() -> None:
    assert {index_hash("T", f"k{number}") % SLOTS for number in range(COUNT)} == {0}
