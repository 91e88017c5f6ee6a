"""Configuration and offset files: RocketMQ's JSON with a copy of the previous version (store.md §15.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Any

from tianzhou.damaged_files import blank, is_damage, keep_aside, unreadable
from tianzhou.errors import ProtocolError, StateLost, StoreUnreadable
from tianzhou.file_modes import replace_file
from tianzhou.store.files.directories import make_directory, sync_directory
from tianzhou.troubles import reason
from tianzhou.wire.json_dialect import dumps_pretty, loads

logger = logging.getLogger(__name__)

NO_FILE = "there is no such file"


class Source(Enum):
    """The file that `JsonFile.load` has read."""

    NOTHING = auto()
    FILE = auto()
    BACKUP = auto()


class JsonFile:
    """One file `F` with its predecessor `F.bak`.

    A write is atomic: the new text is on the disk under another name before it gets the file's name.

    Args:
        path: the file.

    Attributes:
        source: the file that the last `load` has read.
    """

    __slots__ = ("_damaged", "_text", "path", "source")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = Source.NOTHING
        self._text: bytes | None = None
        self._damaged = False

    @property
    def backup_path(self) -> Path:
        """Path of the previous version."""
        return self.path.with_name(self.path.name + ".bak")

    def load(
        self, take: Callable[[dict[Any, Any]], object] | None = None, *, put_aside: bool = False, silent: bool = False
    ) -> Any:
        """Return the file's content; that of its predecessor when the file is absent or damaged; else None.

        A file is damaged when it is empty, has NUL bytes, cannot be parsed as JSON, or is refused by `take`.

        Args:
            take: receives the content, which must be an object; any exception means that the file is damaged.
            put_aside: whether a damaged file is renamed when its predecessor is read. Otherwise the next write would
                make it the predecessor.
            silent: whether the caller logs the use of the predecessor itself.

        Raises:
            StateLost: at least one of both files exists, and none is readable and accepted.
            StoreUnreadable: the process may not read one of them, so no damage is known.
        """
        problems: list[str] = []
        present = False
        for path in (self.path, self.backup_path):
            try:
                value, text = _read(path, take)
            except FileNotFoundError:
                problems.append(f"{path}: {NO_FILE}")
                continue
            except ProtocolError as error:
                present = True
                problems.append(f"{path}: {error}")
                self._damaged |= path == self.path
                continue
            if path == self.path:
                self._text = text
                self.source = Source.FILE
            else:
                self.source = Source.BACKUP
                if not silent:
                    self._report(problems, put_aside=put_aside)
            return value
        if present:
            raise StateLost("; ".join(problems) + "; put back a copy of the file")
        return None

    def _report(self, problems: list[str], *, put_aside: bool) -> None:
        where = ""
        if self._damaged and put_aside:
            aside = self.put_aside()
            where = f"; the damaged file is saved as {aside.name}" if aside is not None else ""
        logger.error("%s; the version before it, %s, is used%s", "; ".join(problems), self.backup_path.name, where)

    def put_aside(self) -> Path | None:
        """Rename the damaged file; return its new path, None when the rename fails."""
        aside = keep_aside(self.path)
        if aside is None:
            logger.warning("%s is damaged and cannot be renamed; the next write replaces it", self.path)
        else:
            self._damaged = False
        return aside

    def put_both_aside(self) -> list[Path]:
        """Rename the damaged file and its damaged predecessor; return their new paths."""
        found = [keep_aside(self.path), keep_aside(self.backup_path)]
        self._damaged = self.path.exists()
        return [path for path in found if path is not None]

    def persist(self, value: Any) -> None:
        """Write `value`, and make the present text the predecessor; no effect when the text is unchanged.

        Blocks for the disk; call it from a thread where that matters.

        Args:
            value: dicts (integer keys stay bare), lists, text, numbers; members that are None are left out.

        Raises:
            OSError: the file cannot be written and the old one is unchanged, or the disk refused its name.
        """
        self.write(dumps_pretty(value))

    def write(self, text: bytes) -> None:
        """Write a prepared text; see `persist`.

        Raises:
            OSError: as `persist`.
        """
        if text == self._text and self.path.exists():
            return
        make_directory(self.path.parent)
        try:
            previous = self.path.read_bytes()
        except FileNotFoundError:
            previous = b""
        if previous and not self._damaged:
            replace_file(self.backup_path, previous)
        replace_file(self.path, text)
        # A file without a synced name is lost in a power failure, and so would be a topic whose creation was
        # acknowledged.
        sync_directory(self.path.parent)
        self._text = text
        self._damaged = False


def _read(path: Path, take: Callable[[dict[Any, Any]], object] | None) -> tuple[Any, bytes]:
    """Return content and text of a file.

    Raises:
        FileNotFoundError: there is no such file.
        ProtocolError: the file is damaged.
        StoreUnreadable: the process may not read it.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_damage(error):
            raise ProtocolError(f"the disk cannot read it ({error.strerror})") from error
        raise StoreUnreadable(unreadable(path, error)) from error
    if problem := blank(text):
        raise ProtocolError(problem)
    try:
        value = loads(text)
    except RecursionError:
        raise ProtocolError("nested too deeply") from None
    if take is not None:
        _take(value, take)
    return value, text


def _take(value: Any, take: Callable[[dict[Any, Any]], object]) -> None:
    """Pass the content to the caller.

    Raises:
        ProtocolError: the content is not as expected.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object, found {type(value).__name__}")
    try:
        take(value)
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"not what the file should hold ({reason(error)})") from error
