"""Text files that are replaced atomically: a crash leaves the old or the new version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tianzhou.damaged_files import is_damage, unreadable
from tianzhou.errors import ConfigError
from tianzhou.file_modes import make_synced_folders, replace_file, sync_folder
from tianzhou.supervision import shared_result, start_owned


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text atomically. The previous version stays beside it as `.bak`, as in RocketMQ.

    Raises:
        ConfigError: the file cannot be written; the text has the file and the cause.
    """
    try:
        make_synced_folders(path.parent)
        replace_file(path, text.encode(), backup=path.with_name(path.name + ".bak"))
        sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; make its directory writable") from error


class RewrittenFile:
    """A file that a thread rewrites after changes. Changes during a write are written together by the next write.

    Args:
        path: path of the file.
        text: returns the file's text at the beginning of a write.
    """

    def __init__(self, path: Path, text: Callable[[], str]) -> None:
        self._path = path
        self._text = text
        self._writing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def changed(self) -> Awaitable[None]:
        """Schedule a write and return a future.

        It completes when the text is on disk, or raises ConfigError when the write fails.
        """
        if self._next is None:
            self._next = start_owned(self._write(self._writing), f"{self._path}", expected=(ConfigError,))
        return shared_result(self._next)

    async def settled(self) -> None:
        """Wait until no write is pending. Raise ConfigError when the last write failed."""
        while (latest := self._next or self._writing) is not None:
            await asyncio.shield(latest)

    async def _write(self, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            await asyncio.wait([former])
        self._writing, self._next = self._next, None
        try:
            text = self._text()
            await asyncio.get_running_loop().run_in_executor(None, replace_text, self._path, text)
        finally:
            self._writing = None


def candidates(path: Path) -> list[tuple[Path, str | None]]:
    """Return the paths and texts of the file and its `.bak`, if they exist, in the order of reading.

    Returns:
        Each path with its text; None for a file that the disk cannot read.

    Raises:
        ConfigError: this process lacks the permission to read one of them.
    """
    found: list[tuple[Path, str | None]] = []
    for file in (path, path.with_name(path.name + ".bak")):
        try:
            found.append((file, file.read_text(encoding="utf-8", errors="surrogateescape")))
        except FileNotFoundError:
            continue
        except OSError as error:
            if not is_damage(error):
                raise ConfigError(unreadable(file, error)) from error
            found.append((file, None))
    return found
