"""Text files replaced atomically: after a crash there is the old or the new version."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tianzhou.errors import ConfigError
from tianzhou.file_modes import make_folders, replace_file


def replace_text(path: Path, text: str) -> None:
    """Replace a file's text atomically; the previous version stays beside it as `.bak`, as RocketMQ keeps it.

    Raises:
        ConfigError: it cannot be written; names the file and the reason.
    """
    try:
        make_folders(path.parent)
        replace_file(path, text.encode(), backup=path.with_name(path.name + ".bak"))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; make its directory writable") from error


def put_aside(path: Path) -> Path | None:
    """Rename a damaged file so that no write makes it the backup; its new path, None when that failed."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        return path.rename(aside)
    except OSError:
        return None


class RewrittenFile:
    """A file that a thread rewrites after changes; changes during a write share the next one.

    Args:
        path: the file.
        text: makes its text when a write begins.
    """

    def __init__(self, path: Path, text: Callable[[], str]) -> None:
        self._path = path
        self._text = text
        self._writing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def changed(self) -> Awaitable[None]:
        """Schedule a write; the result is done when it is on the disk and raises ConfigError when that failed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write(self._writing))
            # Nobody may await it any more.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return asyncio.shield(self._next)

    async def settled(self) -> None:
        """Return when no write is pending; raises ConfigError when the last one failed."""
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


def candidates(path: Path) -> list[tuple[Path, str]]:
    """Paths and texts of the file and its `.bak`, those that exist, in the order to try.

    Raises:
        ConfigError: one exists and cannot be read.
    """
    found = []
    for file in (path, path.with_name(path.name + ".bak")):
        try:
            found.append((file, file.read_text(encoding="utf-8", errors="surrogateescape")))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}; make it readable") from error
    return found
