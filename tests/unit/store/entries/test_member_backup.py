"""The backup of the folder of a member of a DLedger group."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_of_one import all_entries, commit, entries_of, group_store, lead
from small_store import fill, opened

from tianzhou.errors import StoreLocked
from tianzhou.store.offline.backup import back_up, restore


def copy(store: Path, to: Path) -> None:
    """Back up a store."""
    back_up(store, [store], to, version="test", now_ms=1)


def test_a_stopped_member_is_backed_up_and_restored_with_its_entries_and_term(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "n0")) as store:
        entries_of(store).terms.write(7, "n0")
        lead(store, 7)
        fill(store, 0, 9)
        commit(store)
        before = all_entries(store)
    copy(tmp_path / "n0", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    with opened(group_store(tmp_path / "again")) as store:
        assert all_entries(store) == before
        assert entries_of(store).terms.read() == (7, "n0")


def test_a_running_member_is_refused_and_the_error_says_that_it_has_to_be_stopped(tmp_path: Path) -> None:
    with opened(group_store(tmp_path / "n0")) as store:
        lead(store, 1)
        with pytest.raises(StoreLocked, match=r"dledger-n0: .* is running .*; stop this member, back up"):
            copy(tmp_path / "n0", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "backup.part").exists()
