"""Text files that are either the old or the new version, whatever happens while they are written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tianzhou.errors import ConfigError
from tianzhou.file_modes import MODES, make_folders


def replace_text(path: Path, text: str) -> None:
    """Write a file anew; the version before stays beside it as `.bak`, as RocketMQ keeps it.

    Raises:
        ConfigError: it cannot be written; names the file and the reason.
    """
    fresh, backup = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".bak")
    try:
        make_folders(path.parent)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODES.of(path))
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            path.replace(backup)
        fresh.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; make its directory writable") from error


def put_aside(path: Path) -> Path | None:
    """Give a damaged file another name, so that no write takes it for the version before; None when that cannot be."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        return path.rename(aside)
    except OSError:
        return None


class RewrittenFile:
    """A file that is written anew, in a thread, whenever what it holds has changed.

    Changes that come while it is being written are all in the next write: there are never more than two on their way.

    Args:
        path: the file.
        text: gives its text, which is asked for when a write begins.
    """

    def __init__(self, path: Path, text: Callable[[], str]) -> None:
        self._path = path
        self._text = text
        self._writing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def changed(self) -> Awaitable[None]:
        """What is done when the present text is on the disk; it raises ConfigError when that cannot be."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._write(self._writing))
            # Who waits may have gone.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return asyncio.shield(self._next)

    async def settled(self) -> None:
        """Return when no change is on its way; raises ConfigError when the last could not be written."""
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
    """The file and its `.bak` with their texts, those that exist, in the order to be tried.

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
