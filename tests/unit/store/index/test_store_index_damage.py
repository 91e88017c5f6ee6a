"""Index files that lead in circles or are of another length: noticed, named, rebuilt behind serving."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from small_store import by_key, opened, overwrite, small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.index.indexfile import ENTRY, ENTRY_SIZE, HEADER_SIZE
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import index_hash
from waiting import until_async

SLOTS, ENTRIES, COUNT = 1, 40, 100
"""One slot: every chain contains all entries of its file."""
small = partial(small_store, mapped_file_size_consume_queue=4000, max_hash_slot_num=SLOTS, max_index_num=ENTRIES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(small(tmp_path)) as store:
        for number in range(COUNT):
            key = f"k{number}"
            store.append(NewRecord("T", 0, b"%d " % number, f"KEYS\x01{key}\x02".encode(), keys=key))
    return tmp_path


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "index").iterdir())


def lead(path: Path, entry: int, previous: int) -> None:
    """Have an entry lead to another one."""
    at = HEADER_SIZE + 4 * SLOTS + ENTRY_SIZE * entry
    key_hash, offset, seconds, _ = ENTRY.unpack_from(path.read_bytes(), at)
    overwrite(path, at, ENTRY.pack(key_hash, offset, seconds, previous))


def found(store: MessageStore) -> int:
    return sum(len(by_key(store, f"k{number}", limit=8).parts) == 1 for number in range(COUNT))


@pytest.mark.parametrize("circle", [[(20, 20)], [(20, 30)], [(5, 20), (20, 5)], [(20, 1 << 30)], [(20, -7)]])
def test_a_query_of_a_chain_that_leads_nowhere_ends_and_the_file_is_rebuilt(
    folder: Path, circle: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    path = files_of(folder)[1]
    for entry, previous in circle:
        lead(path, entry, previous)
    with opened(small(folder)) as store:
        by_key(store, "no such key", limit=8)  # walks every chain of the slot
        assert f"index file {path} is damaged" in caplog.text
        assert found(store) == COUNT
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


async def test_a_running_store_rebuilds_a_damaged_file_and_goes_on_indexing(folder: Path) -> None:
    lead(files_of(folder)[0], 20, 25)
    async with small(folder) as store:
        await store.find(store.lookups.key_steps("T", "no such key", 8))
        store.append(NewRecord("T", 0, b"later", b"KEYS\x01later\x02", keys="later"))
        assert StoreProbe(store).catch_up is not None
        await until_async(lambda: StoreProbe(store).catch_up.done)
        assert found(store) == COUNT
        assert len(by_key(store, "later", limit=8).parts) == 1
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []
    with opened(small(folder)) as again:
        assert again.report.notes == []
        assert found(again) == COUNT


async def test_a_file_that_is_damaged_while_the_index_catches_up_is_rebuilt_as_well(folder: Path) -> None:
    lead(files_of(folder)[0], 20, 25)
    files_of(folder)[2].unlink()
    async with small(folder) as store:
        await store.find(store.lookups.key_steps("T", "no such key", 8))
        await until_async(lambda: StoreProbe(store).catch_up and StoreProbe(store).catch_up.done)
        assert found(store) == COUNT
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


def test_a_start_after_the_death_of_a_broker_that_rebuilt_its_index_finds_all_keys(folder: Path) -> None:
    lead(files_of(folder)[1], 20, 25)
    store = small(folder)
    store.open()
    StoreProbe(store).keep_from_catching_up()
    by_key(store, "no such key", limit=8)
    assert len(files_of(folder)) == 1
    StoreProbe(store).release()
    with opened(small(folder)) as again:
        assert found(again) == COUNT
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


def only_file(folder: Path) -> None:
    for path in files_of(folder)[1:]:
        path.unlink()
    os.truncate(files_of(folder)[0], 64)


@pytest.mark.parametrize(
    ("change", "entries"),
    [
        (lambda folder: os.truncate(files_of(folder)[0], 5000), ENTRIES),
        (lambda folder: os.truncate(files_of(folder)[-1], 100), ENTRIES),
        (lambda folder: None, ENTRIES + 20),
        (only_file, ENTRIES),
    ],
    ids=["first longer", "last shorter", "other setting", "only file"],
)
def test_index_files_of_another_length_are_rebuilt_with_one_line(
    folder: Path, change: Callable[[Path], None], entries: int, caplog: pytest.LogCaptureFixture
) -> None:
    change(folder)
    with caplog.at_level(logging.WARNING), opened(small(folder, max_index_num=entries)) as store:
        assert len([note for note in store.report.notes if "bytes long, not the" in note]) == 1
        assert "to be rebuilt from the log" in caplog.text
        assert read_now(store, "T", 0, 0, 32).records
        assert found(store) == COUNT
    assert check_store(StoreScan(folder), slots=SLOTS).problems == []


def test_all_keys_of_the_test_share_a_slot() -> None:
    assert {index_hash("T", f"k{number}") % SLOTS for number in range(COUNT)} == {0}
