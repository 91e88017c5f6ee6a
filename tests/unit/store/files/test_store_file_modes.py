"""Read permissions of a broker's files: its own user, unless `storeFileMode` adds others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_store import opened, small_store

from tianzhou.file_modes import MODES, OWN_ONLY, parse_mode
from tianzhou.store import NewRecord, StoreSettings
from tianzhou.store.files.config_file import JsonFile


@pytest.fixture(autouse=True)
def usual_modes() -> Iterator[None]:
    yield
    MODES.files = OWN_ONLY


def written(root: Path, **changes: object) -> dict[str, int]:
    """Return the permissions of everything in the folder of a used store."""
    with opened(small_store(root, **changes)) as store:
        store.append(NewRecord("T", 0, b"x", b"KEYS\x01k\x02", keys="k"))
        for number in (1, 2):
            JsonFile(root / "config" / "topics.json").persist({"a": number})
        running = {path: path.stat().st_mode for path in [root, *root.rglob("*")]}
    running.update({path: path.stat().st_mode for path in [root, *root.rglob("*")]})
    return {str(path.relative_to(root)): mode & 0o777 for path, mode in running.items()}


@pytest.mark.parametrize(
    ("mode", "files", "folders"), [("0600", 0o600, 0o700), ("640", 0o640, 0o750), ("0644", 0o644, 0o755)]
)
def test_new_files_and_folders_are_for_those_the_key_names(tmp_path: Path, mode: str, files: int, folders: int) -> None:
    root = tmp_path / "new" / "store"
    modes = written(root, **({} if mode == "0600" else {"store_file_mode": mode}))
    assert {"lock", "abort", "checkpoint", "config/topics.json", "config/topics.json.bak"} <= modes.keys()
    assert {path for path, bits in modes.items() if bits != (folders if (root / path).is_dir() else files)} <= {
        path for path in modes if not (root / path).exists() and modes[path] == files
    }
    assert root.parent.stat().st_mode & 0o777 == folders


def test_what_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "config").mkdir(mode=0o755)
    (tmp_path / "config").chmod(0o755)
    state = tmp_path / "config" / "topics.json"
    state.write_text("{}")
    state.chmod(0o644)
    modes = written(tmp_path)
    assert (modes["."], modes["config"], modes["config/topics.json"]) == (0o755, 0o755, 0o644)
    assert modes["lock"] == 0o600


@pytest.mark.parametrize("text", ["", "rw", "0400", "0700", "0755", "0o600", "06000", "0066", "999"])
def test_a_mode_the_broker_could_not_work_with_is_refused_with_the_key(text: str) -> None:
    with pytest.raises(ValueError, match=f"storeFileMode={text}: expected"):
        StoreSettings(store_file_mode=text)
    assert parse_mode("0640") == 0o640
