"""Configuration and offset files: RocketMQ's JSON with a copy of the version before (store.md §15.1)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tianzhou.errors import ProtocolError, StoreUnreadable
from tianzhou.file_modes import replace_file
from tianzhou.store.files.directories import make_directory, sync_directory
from tianzhou.troubles import reason
from tianzhou.wire.json_dialect import dumps_pretty, loads

logger = logging.getLogger(__name__)


class JsonFile:
    """One file `F` beside its predecessor `F.bak`.

    A write is complete or not there: the new text is on the disk under another name before it takes the file's.

    Args:
        path: the file.
    """

    __slots__ = ("_text", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text: bytes | None = None

    @property
    def backup_path(self) -> Path:
        """Where the version before is."""
        return self.path.with_name(self.path.name + ".bak")

    def load(
        self, take: Callable[[dict[Any, Any]], object] | None = None, *, put_aside: bool = False, silent: bool = False
    ) -> Any:
        """What the file says; what its predecessor says when it is absent, empty or unreadable; else None.

        Args:
            take: given what was read, which has to be an object; whatever it raises, the file is unreadable.
            put_aside: whether a file that is unreadable, where its predecessor is not, is saved under another name:
                otherwise the next write would put it in its predecessor's place.
            silent: whether somebody else says that the predecessor is used.

        Raises:
            StoreUnreadable: there is text, but neither file can be read as JSON, or taken.
        """
        problems = []
        for path in (self.path, self.backup_path):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")
                continue
            if not text.strip(b" \t\r\n\0"):
                continue
            try:
                value = loads(text)
                if take is not None:
                    _take(value, take)
            except ProtocolError as error:
                problems.append(f"{path}: {error}")
                continue
            except RecursionError:
                problems.append(f"{path}: nested too deeply")
                continue
            if path == self.path:
                self._text = text
            elif problems and not silent:
                aside = self._put_aside() if put_aside else None
                where = f"; the damaged file is saved as {aside.name}" if aside is not None else ""
                logger.error("%s; the version before it, %s, is used%s", "; ".join(problems), path.name, where)
            return value
        if problems:
            raise StoreUnreadable(
                "; ".join(problems) + "; put back a copy of the file, or move both away to begin with defaults"
            )
        return None

    def _put_aside(self) -> Path | None:
        """Give the file another name; None when that cannot be."""
        aside = damaged_name(self.path)
        try:
            self.path.rename(aside)
        except OSError as error:
            logger.warning("%s cannot be saved as %s: %s", self.path, aside.name, error.strerror)
            return None
        return aside

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
        if previous:
            replace_file(self.backup_path, previous)
        replace_file(self.path, text)
        # Whoever was answered that a topic exists finds it again after a loss of power: a file is lost with its name.
        sync_directory(self.path.parent)
        self._text = text


def damaged_name(path: Path) -> Path:
    """Where a damaged file is saved: beside its place, with the time in its name."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    return path.with_name(f"{path.name}.damaged-{moment}")


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
