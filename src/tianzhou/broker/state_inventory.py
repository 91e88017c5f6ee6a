"""Inventory of a broker's state files, by which a missing file is recognized as lost (docs/adr/0028)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tianzhou.file_modes import replace_file, sync_folder

NAME: Final = "stateFiles.json"


class StateInventory:
    """Names of the state files that Tianzhou's brokers have written to a folder.

    Without the inventory, or with a damaged one, a missing file counts as never written.

    Args:
        folder: the store's `config` folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._names: frozenset[str] = frozenset()

    def load(self) -> None:
        """Read the inventory."""
        try:
            self._names = frozenset(map(str, json.loads(self._path.read_bytes())["written"]))
        except (OSError, ValueError, KeyError, TypeError):
            self._names = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def note(self, name: str) -> None:
        """Add a written file to the inventory on the disk, unless it is there.

        Args:
            name: name of the file, which is on the disk.

        Raises:
            OSError: the write failed.
        """
        if name not in self._names:
            names = self._names | {name}
            replace_file(self._path, json.dumps({"written": sorted(names)}).encode() + b"\n")
            sync_folder(self._path.parent)
            self._names = names
