"""Configuration and offset files: RocketMQ's JSON with a copy of the version before (store.md §15.1)."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from tianzhou.errors import ProtocolError, StoreUnreadable
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

    def load(self) -> Any:
        """What the file says; what its predecessor says when it is absent, empty or unreadable; else None.

        Raises:
            StoreUnreadable: there is text, but neither file can be read as JSON.
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
            except ProtocolError as error:
                problems.append(f"{path}: {error}")
                continue
            if path == self.path:
                self._text = text
            elif problems:
                logger.warning("%s; the version before it, %s, is used", "; ".join(problems), path.name)
            return value
        if problems:
            raise StoreUnreadable(
                "; ".join(problems) + "; put back a copy of the file, or move both away to begin with defaults"
            )
        return None

    def persist(self, value: Any) -> None:
        """Write `value`; the present text becomes the predecessor. Nothing is done when the text is the same.

        Waits for the disk: call it from a thread where that matters.

        Args:
            value: dicts (integer keys stay bare), lists, text, numbers; members that are None are left out.

        Raises:
            OSError: the file cannot be written; the old one is untouched.
        """
        self.write(dumps_pretty(value))

    def write(self, text: bytes) -> None:
        """As `persist`, for a text made before.

        Raises:
            OSError: as `persist`.
        """
        if text == self._text and self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            previous = self.path.read_bytes()
        except FileNotFoundError:
            previous = b""
        if previous:
            replace_file(self.backup_path, previous)
        replace_file(self.path, text)
        self._text = text


def replace_file(path: Path, text: bytes) -> None:
    """Give a file a new text that is there as a whole or not at all, whenever the power fails.

    Raises:
        OSError: it cannot be written; the old one is untouched.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        written = 0
        while written < len(text):
            written += os.write(fd, text[written:])
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
