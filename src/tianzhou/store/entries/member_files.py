"""What a member of a DLedger group remembers beside its log: term and vote, how far it was, what it has lost.

`currterm` and `checkpoint` are DLedger's files (broker.md §19.3, §19.5), `impaired.json` is ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError, StoreUnreadable
from tianzhou.file_modes import make_folders, replace_file
from tianzhou.setting_files import decoded
from tianzhou.settings import format_properties, parse_properties
from tianzhou.store.files.directories import sync_directory

TERM_NAME: Final = "currterm"
CHECKPOINT_NAME: Final = "checkpoint"
IMPAIRED_NAME: Final = "impaired.json"


class TermFile:
    """The term a member is in, and whom it gave its vote there.

    Args:
        folder: of the member.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / TERM_NAME

    def read(self) -> tuple[int, str | None]:
        """Term and the id that has the vote; term 0 without the file.

        Raises:
            StoreUnreadable: it does not say so: a member that forgets its vote could give it twice.
        """
        values = _read(self.path)
        try:
            return int(values.get("currTerm", "0")), values.get("voteLeader") or None
        except ValueError:
            raise StoreUnreadable(
                f"{self.path}: currTerm={values['currTerm']} is no number; put there the highest term that the other "
                "members' files have"
            ) from None

    def write(self, term: int, voted_for: str | None) -> None:
        """Bring term and vote to the disk; it has them on return.

        Raises:
            OSError: the disk refused; nothing may be said that relies on them.
        """
        make_folders(self.path.parent)
        replace_file(self.path, format_properties({"currTerm": str(term), "voteLeader": voted_for or ""}).encode())
        sync_directory(self.path.parent)


@dataclass(frozen=True, slots=True)
class EntryMarks:
    """How far a log of entries was.

    Attributes:
        end_index: index of the last entry; -1 without one.
        committed_index: of the last one known to be committed; -1 without one.
    """

    end_index: int = -1
    committed_index: int = -1


class EntryCheckpoint:
    """The file `checkpoint` of a member.

    Args:
        folder: of the member.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CHECKPOINT_NAME
        self._written: EntryMarks | None = None

    def read(self) -> EntryMarks:
        """What it says; -1 for what it does not."""
        try:
            values = _read(self.path)
        except StoreUnreadable:
            return EntryMarks()
        return EntryMarks(_number(values, "endIndex"), _number(values, "committedIndex"))

    def write(self, marks: EntryMarks) -> None:
        """Bring the marks to the disk; nothing happens when they are there.

        Raises:
            OSError: the disk refused.
        """
        if marks == self._written:
            return
        values = {"committedIndex": str(marks.committed_index), "endIndex": str(marks.end_index)}
        replace_file(self.path, format_properties(values).encode())
        self._written = marks


class ImpairedNote:
    """Says that a log has lost entries, until the member has got them again; it survives restarts.

    Args:
        folder: of the member.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / IMPAIRED_NAME

    def read(self) -> str:
        """What was lost, in words; empty when nothing is known to be."""
        try:
            return str(json.loads(self._path.read_bytes())["lost"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError):
            return "entries, but the note about them cannot be read"

    def write(self, lost: str) -> None:
        """Bring the note to the disk, or take it away.

        Raises:
            OSError: the disk refused.
        """
        if lost:
            make_folders(self._path.parent)
            replace_file(self._path, json.dumps({"lost": lost}).encode() + b"\n")
        elif self._path.exists():
            self._path.unlink()
        else:
            return
        sync_directory(self._path.parent)


def _read(path: Path) -> dict[str, str]:
    try:
        return parse_properties(decoded(path.read_bytes()), source=str(path))
    except FileNotFoundError:
        return {}
    except (OSError, ConfigError) as error:
        raise StoreUnreadable(f"{path} cannot be read: {error}; restore it from a copy") from error


def _number(values: Mapping[str, str], key: str) -> int:
    text = values.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else -1
