"""The checkpoint and the table of an archive on the disk, as Spark leaves them and finds them.

What a log says is written beside its place, synced and put there at once, and never over what is there already: Spark
and this module give way to whoever was first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.pipelines import archive_log as log
from tianzhou.pipelines.archive_log import Logged, Logs, UnknownForm
from tianzhou.pipelines.folder_lock import held

CHECKPOINT: Final = "_checkpoint"
LISTS: Final = "_spark_metadata"
LOCK: Final = ".archive.lock"
DRAFT: Final = ".tianzhou"
"""How the names of files end that are not in their place yet."""
READERS_S: Final = 600
"""How long a list that a newer one has replaced stays for who reads it, seconds: as long as Spark leaves it."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""What file systems say that know no hard links."""


class ArchiveFolders:
    """The folders of an archive.

    Args:
        to: of the table.
        checkpoint: how far it is; None for one below `to`.
    """

    def __init__(self, to: str, checkpoint: str | None) -> None:
        self.to = _absolute(to)
        self.checkpoint = _absolute(checkpoint) if checkpoint else self.to / CHECKPOINT
        self._offsets, self._commits = self.checkpoint / "offsets", self.checkpoint / "commits"
        self._lists = self.to / LISTS
        self._query: str | None = None

    def held(self) -> AbstractContextManager[None]:
        """Have the checkpoint for this process; see `folder_lock.held`. Without locks who is first has a batch."""
        return held(self.checkpoint, LOCK, "archive", needed=False)

    def logs(self) -> Logs:
        """What was begun and done.

        Raises:
            UnknownForm: a checkpoint or a table of another form.
        """
        names = _names(self.checkpoint)
        logs = log.logs_of(_names(self._offsets), _names(self._commits), _names(self._lists))
        if names - {"metadata", "offsets", "commits"} or (logs.offsets and "metadata" not in names):
            raise UnknownForm(f"checkpoint with {', '.join(sorted(names))}")
        return logs

    def begin(self) -> None:
        """Make what a new checkpoint needs, and take away what a killed run of this module left half-written.

        Raises:
            UnknownForm: `metadata` has another form.
            ConfigError: somebody else made the checkpoint meanwhile.
        """
        place = self.checkpoint / "metadata"
        for folder in (self._offsets, self._commits, self._lists):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.checkpoint, self._offsets, self._commits, self._lists):
            for draft in folder.glob(f".*{DRAFT}"):
                draft.unlink(missing_ok=True)
        if not place.exists():
            self._put(place, log.metadata_text(str(uuid.uuid4())))
        for folder in (self.checkpoint, self.to):
            sync_folder(folder)
            sync_folder(folder.parent)
        self._query = log.query_of(place.read_text(encoding="utf-8"))
        self._remove_drafts()

    @property
    def drafts(self) -> Path:
        """Where files of the table are written until they are complete; readers pass it over."""
        return self.to / f"{DRAFT}-{self._query}"

    def _remove_drafts(self) -> None:
        shutil.rmtree(self.drafts, ignore_errors=True)

    def end(self) -> None:
        """Take away what is needed during a run only."""
        if self._query is not None:
            self._remove_drafts()

    def logged(self, number: int) -> Logged:
        """Where a batch begins and ends.

        Raises:
            UnknownForm: it is not there, or in another form.
        """
        try:
            return log.logged_of((self._offsets / str(number)).read_text(encoding="utf-8"))
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise UnknownForm(str(error)) from error

    def log_begin(self, number: int, logged: Logged) -> None:
        """Say which messages a batch has, before anything of it is written.

        Raises:
            ConfigError: somebody else has begun the batch.
        """
        self._put(self._offsets / str(number), logged.text(int(time.time() * 1000)))

    def log_files(self, number: int, files: Sequence[Path]) -> None:
        """Say which files a batch has: with that they are in the table.

        Args:
            number: of the batch.
            files: complete, in their places.

        Raises:
            ConfigError: somebody else has put the batch into the table.
            UnknownForm: the list of an earlier batch is missing, or in another form.
        """
        lines = []
        if log.is_compact(number):
            for name in log.lists_before(number):
                lines += self._listed(name)
        lines += [
            log.file_line(str(file), at.st_size, at.st_mtime_ns // 10**6) for file in files for at in [file.stat()]
        ]
        self._put(self._lists / log.list_name(number), log.list_text(lines))

    def _listed(self, name: str) -> list[str]:
        try:
            return log.listed_of((self._lists / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, UnicodeDecodeError) as error:
            raise UnknownForm(str(error)) from error

    def log_end(self, number: int) -> None:
        """Say that a batch is done, and remove logs that nobody needs any more.

        Raises:
            ConfigError: somebody else has said so.
        """
        self._put(self._commits / str(number), log.COMMITTED)
        batches, lists = log.expired(self.logs(), number)
        _remove(place / name for name in batches for place in (self._offsets, self._commits))
        before = time.time() - READERS_S
        _remove(self._lists / name for name in lists if (self._lists / name).stat().st_mtime < before)

    def _put(self, place: Path, text: str) -> None:
        draft = place.with_name(f".{place.name}{DRAFT}")
        # It may be a link to what a killed run has put in its place.
        draft.unlink(missing_ok=True)
        with draft.open("x", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        if not place.exists():
            # Of a file that was there before; Hadoop would find that the new one does not fit.
            _crc(place).unlink(missing_ok=True)
        try:
            _place(draft, place)
        except FileExistsError as error:
            raise ConfigError(
                f"--checkpoint {self.checkpoint}: {place} was written by another archive meanwhile; nothing is "
                "lost: run this one again when the other has ended, or give it a --checkpoint and a --to of its own"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(place.parent)


def _absolute(path: str) -> Path:
    """As Hadoop makes it: symbolic links stay, for Spark refuses a table whose files are listed below two folders."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - see above


def _place(draft: Path, place: Path) -> None:
    try:
        os.link(draft, place)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if place.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place)) from error
        draft.rename(place)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _crc(place: Path) -> Path:
    return place.with_name(f".{place.name}.crc")


def _names(folder: Path) -> set[str]:
    """What is in a folder, without what is hidden."""
    with contextlib.suppress(FileNotFoundError):
        return {one.name for one in folder.iterdir() if not one.name.startswith(".")}
    return set()


def _remove(places: Iterable[Path]) -> None:
    for place in places:
        place.unlink(missing_ok=True)
        _crc(place).unlink(missing_ok=True)
