"""The files of a DLedger group's member beside its log: term and vote, progress, losses.

`currterm` and `checkpoint` are DLedger's files (broker.md §19.3, §19.5), `impaired.json` and `group.json` are ours.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError, StoreUnreadable
from tianzhou.file_modes import make_synced_folders, replace_file
from tianzhou.setting_files import decoded
from tianzhou.settings import format_properties, parse_properties
from tianzhou.store.files.directories import sync_directory

TERM_NAME: Final = "currterm"
CHECKPOINT_NAME: Final = "checkpoint"
IMPAIRED_NAME: Final = "impaired.json"
GROUP_NAME: Final = "group.json"


class TermFile:
    """The file of a member's term and of its vote in that term.

    Args:
        folder: folder of the member.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / TERM_NAME

    def read(self) -> tuple[int, str | None]:
        """Return term and the id that has the vote; term 0 without the file.

        Raises:
            StoreUnreadable: the file is damaged; a member that forgets its vote could give it twice.
        """
        values = _read(self.path)
        missing = next((key for key in ("currTerm", "voteLeader") if key not in values), "")
        if missing and self.path.exists():
            raise StoreUnreadable(
                f"{self.path} is damaged: no {missing} is in it, and a member without it could vote twice; write "
                f"currTerm=N and voteLeader= into it, N being the highest term that the other members' files "
                f"{self.path.name} have, or move the member's store folder away: the member then copies the group's log"
            )
        try:
            return int(values.get("currTerm", "0")), values.get("voteLeader") or None
        except ValueError:
            raise StoreUnreadable(
                f"{self.path}: currTerm={values['currTerm']} is no number; put there the highest term that the other "
                "members' files have"
            ) from None

    def write(self, term: int, voted_for: str | None) -> None:
        """Write and sync term and vote.

        Raises:
            OSError: the disk refused; no reply may rely on them.
        """
        make_synced_folders(self.path.parent)
        replace_file(self.path, format_properties({"currTerm": str(term), "voteLeader": voted_for or ""}).encode())
        sync_directory(self.path.parent)


@dataclass(frozen=True, slots=True)
class EntryMarks:
    """The progress of a log of entries.

    Attributes:
        end_index: index of the last entry; -1 without one.
        committed_index: index of the last entry known to be committed; -1 without one.
        synced_index: of the last entry known to be synced; -1 without one, None when it is unknown. Ours: DLedger's
            nodes neither write nor read this key.
    """

    end_index: int = -1
    committed_index: int = -1
    synced_index: int | None = None


class EntryCheckpoint:
    """The file `checkpoint` of a member.

    Args:
        folder: folder of the member.

    Attributes:
        cuts: number of cuts of the log.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CHECKPOINT_NAME
        self.cuts = 0
        self._written: EntryMarks | None = None
        self._lock = threading.Lock()

    def read(self) -> EntryMarks:
        """Return the content of the file; -1 for missing values."""
        try:
            values = _read(self.path)
        except StoreUnreadable:
            return EntryMarks()
        synced = _number(values, "syncedIndex") if "syncedIndex" in values else None
        return EntryMarks(_number(values, "endIndex"), _number(values, "committedIndex"), synced)

    def write(self, marks: EntryMarks, cuts: int | None = None) -> None:
        """Write and sync the marks; no effect when the file has them, or when the log was cut since.

        Args:
            marks: progress of the log.
            cuts: value of `cuts` at that time, on another thread.

        Raises:
            OSError: the disk refused.
        """
        with self._lock:
            if marks != self._written and cuts in {None, self.cuts}:
                self._replace(marks)

    def forget_synced(self, index: int) -> None:
        """Ensure that the file has no synced index from an entry on, because other entries will replace it.

        Raises:
            OSError: the disk refused.
        """
        with self._lock:
            self.cuts += 1
            marks = self._written or self.read()
            if marks.synced_index is not None and marks.synced_index >= index:
                self._replace(replace(marks, synced_index=index - 1))
                sync_directory(self.path.parent)

    def _replace(self, marks: EntryMarks) -> None:
        values = {"committedIndex": str(marks.committed_index), "endIndex": str(marks.end_index)}
        if marks.synced_index is not None:
            values["syncedIndex"] = str(marks.synced_index)
        replace_file(self.path, format_properties(values).encode())
        self._written = marks


@dataclass(frozen=True, slots=True)
class Loss:
    """The losses of a log.

    Attributes:
        lost: description of lost entries; empty when none are known.
        doubted_from: index from which existing entries may differ from the written ones; None without doubt.
    """

    lost: str = ""
    doubted_from: int | None = None


class ImpairedNote:
    """The note of a log's losses, which survives restarts until the member has the entries again.

    Args:
        folder: folder of the member.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / IMPAIRED_NAME

    def read(self) -> Loss:
        """Return the known losses."""
        try:
            note = json.loads(self._path.read_bytes())
            doubted = note.get("doubted_from")
            return Loss(str(note["lost"]), None if doubted is None else int(doubted))
        except FileNotFoundError:
            return Loss()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Loss("entries, but the note about them cannot be read", 0)

    def write(self, loss: Loss) -> None:
        """Write and sync the note, or remove it without losses.

        Raises:
            OSError: the disk refused.
        """
        if loss.lost:
            make_synced_folders(self._path.parent)
            replace_file(self._path, json.dumps(asdict(loss)).encode() + b"\n")
        elif self._path.exists():
            self._path.unlink()
        else:
            return
        sync_directory(self._path.parent)


class GroupFile:
    """The file `group.json` of a member: the identity of its group, and why the member follows no further.

    Args:
        folder: folder of the member.
        group: name of the group in the settings (`dLegerGroup`).

    Attributes:
        group_id: identity of the group, 32 hexadecimal digits; empty when none is known.
        halted: the reason why the member follows no further; empty when it follows.
        joining: whether the log may lack entries that were committed when the member stored the identity.
        alone: whether the member was the only one of its group.
    """

    def __init__(self, folder: Path, group: str) -> None:
        self.path = folder / GROUP_NAME
        self._group = group
        self.group_id = ""
        self.halted = ""
        self.joining = self.alone = False

    def load(self) -> None:
        """Read the file; without it, no identity is known.

        Raises:
            StoreUnreadable: the folder belongs to another group, or the file cannot be read.
        """
        try:
            note = json.loads(self.path.read_bytes())
            group, self.group_id, self.halted = str(note["group"]), str(note["id"]), str(note.get("halted", ""))
            self.joining, self.alone = bool(note.get("joining", False)), bool(note.get("alone", False))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnreadable(
                f"{self.path} cannot be read: {error!r}; copy the file from another member of the group "
                f"{self._group!r}, or move the folder aside and start with an empty folder"
            ) from error
        if group != self._group:
            raise StoreUnreadable(
                f"{self.path.parent} belongs to the group {group!r} (identity {self.group_id}), and this broker is "
                f"configured with dLegerGroup={self._group}; set dLegerGroup={group}, configure the store folder of "
                f"{self._group!r}, or start with an empty folder"
            )

    def write(self, group_id: str, halted: str, *, joining: bool = False, alone: bool = False) -> None:
        """Write and sync identity, reason and state.

        Raises:
            OSError: the disk refused.
        """
        more = {"halted": halted, "joining": joining, "alone": alone}
        note = {"group": self._group, "id": group_id} | {name: value for name, value in more.items() if value}
        make_synced_folders(self.path.parent)
        replace_file(self.path, json.dumps(note).encode() + b"\n")
        sync_directory(self.path.parent)
        self.group_id, self.halted, self.joining, self.alone = group_id, halted, joining, alone


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
