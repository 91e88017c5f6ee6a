"""Index files after a process died in the middle of an insertion (store.md §8)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tianzhou.store import StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.index.index import Index
from tianzhou.wire.hashing import index_hash

SLOTS = 3
KEYS = 12


def settings_for(folder: Path) -> StoreSettings:
    return StoreSettings(store_path_root_dir=str(folder), max_hash_slot_num=SLOTS, max_index_num=50)


def put(index: Index, number: int) -> None:
    index.put("T", f"u{number}", f"k{number}", 100 * number, 5000 + number)


def store_time(offset: int) -> int:
    return 5000 + offset // 100 if offset % 100 == 0 and 0 <= offset < 100 * KEYS else -1


def prefixes(before: bytes, after: bytes) -> list[bytes]:
    """Return every state between two, when entries are written before slots, and these before the header."""
    state = bytearray(before)
    found = [bytes(state)]
    slots_end = 40 + 4 * SLOTS
    for at in (*range(slots_end, len(after)), *range(40, slots_end), *range(40)):
        if state[at] != after[at]:
            state[at] = after[at]
            found.append(bytes(state))
    return found


@pytest.mark.parametrize("stale", [0, 1, 3])
def test_no_key_is_lost_wherever_the_process_dies(tmp_path: Path, stale: int) -> None:
    """`stale`: number of records indexed since the last write of the header."""
    index = Index(settings_for(tmp_path))
    for number in range(KEYS - 1):
        put(index, number)
        if number == KEYS - 2 - stale:
            index.write_header()
    (path,) = (tmp_path / "index").iterdir()
    snapshots = [path.read_bytes()]
    for key in ("u", "k"):
        index.files[0].put(index_hash("T", f"{key}{KEYS - 1}"), 100 * (KEYS - 1), 5000 + KEYS - 1)
        snapshots.append(path.read_bytes())
    index.write_header()
    snapshots.append(path.read_bytes())
    index.close()
    for state in (state for pair in pairwise(snapshots) for state in prefixes(*pair)):
        path.write_bytes(state)
        again = Index(settings_for(tmp_path))
        assert again.load(drop_after=None, store_time=store_time) == []
        for number in range(KEYS):  # recovery processes the records again
            put(again, number)
        for number in range(KEYS):
            for key in (f"u{number}", f"k{number}"):
                assert 100 * number in at_once(again.query_steps("T", key, 64, 0, 1 << 60))
        assert again.end_offset == 100 * (KEYS - 1)
        again.close()


def test_a_file_made_in_the_last_moment_is_forgotten(tmp_path: Path) -> None:
    index = Index(settings_for(tmp_path))
    for number in range(KEYS):
        put(index, number)
    index.close()
    (first,) = (tmp_path / "index").iterdir()
    first.with_name("99991231235959999").write_bytes(bytes(len(first.read_bytes())))
    again = Index(settings_for(tmp_path))
    again.load(drop_after=None, store_time=store_time)
    assert again.end_offset == 100 * (KEYS - 1)
    assert at_once(again.query_steps("T", "k3", 10, 0, 1 << 60)) == [300]
    again.close()
