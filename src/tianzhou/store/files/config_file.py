"""Configuration and offset files: RocketMQ's JSON with a copy of the version before (store.md §15.1)."""

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
    """What `JsonFile.load` has read."""

    NOTHING = auto()
    FILE = auto()
    BACKUP = auto()


class JsonFile:
    """One file `F` beside its predecessor `F.bak`.

    A write is complete or not there: the new text is on the disk under another name before it takes the file's.

    Args:
        path: the file.

    Attributes:
        source: what the last `load` has read.
    """

    __slots__ = ("_damaged", "_text", "path", "source")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = Source.NOTHING
        self._text: bytes | None = None
        self._damaged = False

    @property
    def backup_path(self) -> Path:
        """Where the version before is."""
        return self.path.with_name(self.path.name + ".bak")

    def load(
        self, take: Callable[[dict[Any, Any]], object] | None = None, *, put_aside: bool = False, silent: bool = False
    ) -> Any:
        """Return the file's content; that of its predecessor when the file is absent or damaged; else None.

        A file is damaged when it is empty, holds NUL bytes, cannot be read as JSON, or is refused by `take`.

        Args:
            take: given the content, which has to be an object; whatever it raises, the file is damaged.
            put_aside: whether a damaged file is kept under another name when its predecessor is read: otherwise the
                next write would put it in its predecessor's place.
            silent: whether the caller logs by itself that the predecessor is read.

        Raises:
            StateLost: at least one of both is there, and neither can be read or taken.
            StoreUnreadable: the process may not read one of them; nothing is known to be damaged.
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
        """Give the damaged file another name; return it, None when that cannot be done."""
        aside = keep_aside(self.path)
        if aside is None:
            logger.warning("%s is damaged and cannot be renamed; the next write replaces it", self.path)
        else:
            self._damaged = False
        return aside

    def put_both_aside(self) -> list[Path]:
        """Give the damaged file and its damaged predecessor other names; return them."""
        found = [keep_aside(self.path), keep_aside(self.backup_path)]
        self._damaged = self.path.exists()
        return [path for path in found if path is not None]

    def persist(self, value: Any) -> None:
        """Write `value`; the present text becomes the predecessor. Nothing is done when the text is the same.

        Waits for the disk: call it from a thread where that matters.

        Args:
            value: dicts (integer keys stay bare), lists, text, numbers; members that are None are left out.

        Raises:
            OSError: the file cannot be written, the old one is untouched; or the disk refused its name.
        """
        self.write(dumps_pretty(value))

    def write(self, text: bytes) -> None:
        """As `persist`, for a text made before.

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
        # Whoever was answered that a topic exists finds it again after a loss of power: a file is lost with its name.
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
    """Hand on what was read.

    Raises:
        ProtocolError: it is not what it should be.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object, found {type(value).__name__}")
    try:
        take(value)
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"not what the file should hold ({reason(error)})") from error
