"""Directories of a store: made, and brought to the disk, where that costs least."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tianzhou.file_modes import MODES
from tianzhou.process.open_files import allow_more_files
from tianzhou.shortages import passes
from tianzhou.store.files import pages


class DiskNotAsked(OSError):
    """Something ran out before the sync reached the disk; it may be tried again."""


@contextmanager
def _directory_open(path: Path) -> Iterator[int]:
    """A descriptor of a directory, to have it synced.

    Raises:
        DiskNotAsked: there is none left.
        OSError: it cannot be opened.
    """
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError as error:
        if passes(error):
            raise DiskNotAsked(error.errno, error.strerror, str(path)) from error
        raise
    try:
        yield fd
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Bring the entries of a directory to the disk.

    Raises:
        OSError: the disk refused.
    """
    with _directory_open(path) as fd:
        os.fsync(fd)


_with_news: set[Path] = set()
"""Directories with entries of directories that the disk may not have yet."""


def make_directory(path: Path) -> None:
    """Make a directory with those above it, in a way that survives the power.

    Raises:
        OSError: it cannot be made.
    """
    if not path.is_dir():
        begin_directory(path)
        sync_new_directories(path)


def begin_directory(path: Path) -> None:
    """Make a directory with those above it; the disk has it after `sync_new_directories`.

    Syncing takes as long as the disk does, which an event loop cannot wait for whenever a queue gets its first message.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.mkdir(path, MODES.folders)  # noqa: PTH102 - each new queue asks, and asking first what is there costs as much again
    except FileNotFoundError:
        begin_directory(path.parent)
        path.mkdir(mode=MODES.folders, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    _with_news.add(path.parent)


def sync_new_directories(path: Path) -> None:
    """Bring the entries of a new directory, and of new ones above it, to the disk; may run on another thread.

    Raises:
        OSError: the disk refused.
    """
    for above in [above for above in path.parents if above in _with_news]:
        _with_news.discard(above)  # before: what is made meanwhile counts again
        try:
            sync_directory(above)
        except FileNotFoundError:
            continue  # deleted meanwhile
        except OSError:
            _with_news.add(above)
            raise


def sync_file_system(path: Path) -> bool:
    """Bring all there is on the file system of a directory to the disk; may run on another thread.

    Returns:
        Whether it is done; false where no call does it.

    Raises:
        OSError: the disk refused.
    """
    with _directory_open(path) as fd:
        return pages.sync_file_system(fd)


def open_file(path: Path, flags: int) -> int:
    """A descriptor of a file; when there are too many, as many are allowed as the system lets us.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC, MODES.files)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    if not allow_more_files():
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(errno.EMFILE, f"{limit} files are open, the limit (ulimit -n); raise it", str(path))
    return os.open(path, flags | os.O_CLOEXEC, MODES.files)
