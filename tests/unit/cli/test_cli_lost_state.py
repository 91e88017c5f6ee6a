"""`--accept-lost-state` of the servers: it counts for each of their folders of state files, and for one start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.cli.serving.lost_state import accept_in, state_folders
from tianzhou.damaged_files import PERMISSION, end_acceptance, is_lost_state_accepted
from tianzhou.data_folder import claim, claim_group
from tianzhou.errors import ConfigError


def with_stores(data: Path, *stores: str) -> list[Path]:
    folders = [data / "namesrv", *(data / store / "config" for store in stores)]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


@pytest.mark.parametrize(
    ("members", "stores"), [(0, ["store"]), (0, ["store", "broker-b/store"]), (3, ["n0/store", "n1/store", "n2/store"])]
)
def test_it_reaches_every_store_of_a_data_folder(tmp_path: Path, members: int, stores: list[str]) -> None:
    if members:
        claim_group(tmp_path, members)
    folders = with_stores(tmp_path, *stores)
    if not members:
        claim(tmp_path, len(stores))
    accept_in(state_folders(tmp_path))
    assert all(is_lost_state_accepted(folder) for folder in folders)
    for folder in folders:
        end_acceptance(folder)
        end_acceptance(folder)
    assert list(tmp_path.rglob(PERMISSION)) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    accept_in([tmp_path / "store" / "config"])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tianzhou.damaged_files.replace_file", refuse)
    with pytest.raises(ConfigError, match=r"--accept-lost-state: cannot write to .*Read-only file system"):
        accept_in([tmp_path])
