"""The file `group.json` of a member, and folders of other groups (docs/adr/0024)."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_of_one import entries_of, group_store, lead
from small_store import fill, opened

from tianzhou.errors import StoreUnreadable

IDENTITY = "c" * 32


def test_a_member_keeps_the_identity_and_the_reason_over_restarts(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        assert (entries_of(store).identity.group_id, entries_of(store).identity.halted) == ("", "")
        entries_of(store).identity.write(IDENTITY, "its entries differ")
    with opened(group_store(tmp_path)) as store:
        assert (entries_of(store).identity.group_id, entries_of(store).identity.halted) == (
            IDENTITY,
            "its entries differ",
        )


def test_a_start_on_the_folder_of_another_group_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        lead(store, 1)
        fill(store, 0, 5)
        entries_of(store).identity.write(IDENTITY, "")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "dledger" in str(path)}
    with pytest.raises(StoreUnreadable) as refused, opened(group_store(tmp_path, d_leger_group="other")):
        pass
    text = str(refused.value)
    for part in ("'g'", "dLegerGroup=other", "set dLegerGroup=g", "empty folder", IDENTITY):
        assert part in text
    assert before == {path: path.read_bytes() for path in before}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with opened(group_store(tmp_path)) as store:
        entries_of(store).identity.write(IDENTITY, "")
        path = entries_of(store).identity.path
    path.write_text('{"group": "g"')
    with pytest.raises(StoreUnreadable, match=r"group\.json cannot be read"), opened(group_store(tmp_path)):
        pass
