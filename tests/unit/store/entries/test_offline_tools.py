"""Commands on a stopped DLedger store."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_of_one import commit, group_store, lead
from small_store import fill, flip, opened

from tianzhou.errors import StoreUnreadable
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.import_export import Importer
from tianzhou.store.offline.repairer import repair
from tianzhou.store.offline.scan import StoreScan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 100)
        commit(store, 80)
    return tmp_path


def test_a_scan_walks_the_entries(folder: Path) -> None:
    entries = [entry for entry, _ in StoreScan(folder).records()]
    assert len(entries) == 101
    again = [item.offset for item in StoreScan(folder).walk(entries[50].offset)]
    assert again == [entry.offset for entry in entries[50:]]


def test_a_check_finds_a_sound_store_sound(folder: Path) -> None:
    report = check_store(StoreScan(folder))
    assert [problem.text for problem in report.problems] == []
    assert report.records == 81


def test_a_check_finds_damage(folder: Path) -> None:
    offset = [item.offset for item in StoreScan(folder).walk()][40]
    flip(folder / "dledger-n0" / "data" / f"{0:020d}", offset + 100, 1)
    report = check_store(StoreScan(folder))
    assert any(f"no intact record between {offset - 48}" in problem.text for problem in report.problems)


def test_what_changes_a_log_is_refused(folder: Path) -> None:
    with pytest.raises(StoreUnreadable, match="start its broker"):
        repair(folder)
    with pytest.raises(StoreUnreadable, match="send the messages to the group"):
        Importer(folder)


def test_logs_of_several_members_are_refused(folder: Path) -> None:
    with opened(group_store(folder, d_leger_self_id="n0")):
        pass
    (folder / "dledger-n1" / "data").mkdir(parents=True)
    (folder / "dledger-n1" / "data" / f"{0:020d}").write_bytes(bytes(16_384))
    with pytest.raises(StoreUnreadable, match="dledger-n0, dledger-n1"):
        StoreScan(folder)


def test_a_member_that_checks_its_store_starts(folder: Path) -> None:
    with opened(group_store(folder, check_store_on_start=True)) as store:
        assert store.report.clean
