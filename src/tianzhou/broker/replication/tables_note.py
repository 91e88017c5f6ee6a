"""The note of a group's member: the last entry of the group's log whose changes its table files have (docs/adr/0024).

The note is written after the table files, so it is never ahead of them. It also holds values without a file of their
own: shared settings and waiting resets.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tianzhou.errors import StateLost
from tianzhou.store.files.config_file import JsonFile

FILE_NAME: Final = "tablesInLog.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablesNote:
    """Content of a member's note about its tables.

    Attributes:
        index: index of the last entry of the log whose changes are in the table files; -1 for none.
        term: term of this entry.
        complete: whether the tables are known to be complete: the member has applied a complete snapshot, or began with
            the group's log.
        settings: settings that the members share.
        waiting: resets of offsets that wait for a pull, by `topic@group` and queue.
        agreed_term: term of the leader whose complete tables the files have; -1 when they may have other changes.
    """

    index: int = -1
    term: int = -1
    complete: bool = False
    settings: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, dict[int, int]] = field(default_factory=dict)
    agreed_term: int = -1


class NoteFile:
    """The file of the note, below the `config` folder.

    Args:
        folder: the `config` folder of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._file = JsonFile(folder / FILE_NAME)

    def read(self) -> TablesNote | None:
        """Return the note, None when there never was one.

        A damaged note is replaced by its previous version. When both are damaged, an empty note is returned. The log is
        then read from its begin, and the tables do not count as complete.
        """
        found: list[TablesNote] = []
        try:
            self._file.load(lambda value: found.append(_note_of(value)), put_aside=True)
        except StateLost as error:
            aside = ", ".join(path.name for path in self._file.put_both_aside())
            _log.error("%s; the tables are read from the group's log; the damaged files are %s", error, aside)
            return TablesNote()
        return found[-1] if found else None

    def write(self, note: TablesNote) -> None:
        """Write the note and flush it to the disk.

        Raises:
            OSError: the write fails.
        """
        members = {
            "index": note.index,
            "term": note.term,
            "complete": note.complete,
            "settings": note.settings,
            "waiting": {key: {str(queue): at for queue, at in queues.items()} for key, queues in note.waiting.items()},
            "agreedTerm": note.agreed_term,
        }
        self._file.persist(members)


def _note_of(value: dict[Any, Any]) -> TablesNote:
    waiting = {
        key: {int(queue): int(offset) for queue, offset in queues.items()}
        for key, queues in (value.get("waiting") or {}).items()
    }
    settings = {key: int(one) for key, one in (value.get("settings") or {}).items()}
    return TablesNote(
        int(value["index"]), int(value["term"]), bool(value.get("complete")), settings, waiting,
        int(value.get("agreedTerm", -1)),
    )  # fmt: skip
