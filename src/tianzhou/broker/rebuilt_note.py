"""Note in a store's `config` folder that tables were rebuilt after their state files were lost (docs/adr/0028).

While the note exists, the broker deletes no data of entries that a table lacks. The operator completes the tables and
then deletes the note.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tianzhou.broker.rebuilt_state import RebuiltState
from tianzhou.file_modes import make_folders, replace_file, sync_folder

NAME: Final = "rebuiltState.json"
_log = logging.getLogger(__name__)


def write_note(root: Path, state: RebuiltState, now_ms: int) -> None:
    """Write the note; retain the entries of an earlier note.

    Args:
        root: the store's root.
        state: the rebuilt tables.
        now_ms: time of the start, ms.

    Raises:
        OSError: the write failed.
    """
    former, note = read_note(root), state.to_json()
    merged = {
        name: {**former[name], **value} if isinstance(former.get(name), dict) and isinstance(value, dict) else value
        for name, value in note.items()
    }
    merged["groups"] = sorted({*former.get("groups", ()), *state.groups})
    folder = root / "config"
    make_folders(folder)
    text = json.dumps({"rebuiltAtMs": former.get("rebuiltAtMs", now_ms), **merged}, indent=1)
    replace_file(folder / NAME, text.encode() + b"\n")
    sync_folder(folder)


def read_note(root: Path) -> Mapping[str, Any]:
    """Return the note's members; empty when the note is missing or damaged.

    Args:
        root: the store's root.
    """
    try:
        found = json.loads((root / "config" / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remove_note(root: Path) -> None:
    """Remove the note, if there is one, because the tables are complete.

    Args:
        root: the store's root.

    Raises:
        OSError: the disk refused.
    """
    path = root / "config" / NAME
    if path.exists():
        path.unlink()
        sync_folder(path.parent)
        _log.warning("%s: the tables are those of the master or of the group again", root)


def rebuilt_tables(root: Path) -> str:
    """Return the names of the lost state files, joined by commas, while the note exists; else an empty text.

    Args:
        root: the store's root.
    """
    if not (root / "config" / NAME).exists():
        return ""
    lost = read_note(root).get("lost")
    return ", ".join(lost) if isinstance(lost, dict) and lost else "unknown files"


def kept_damaged_files(root: Path) -> list[str]:
    """Return the names of damaged state files that were saved under other names.

    Args:
        root: the store's root.
    """
    try:
        return sorted(path.name for path in (root / "config").iterdir() if ".damaged-" in path.name)
    except OSError:
        return []
