"""Creation and sync of a store's directories, at the lowest cost."""

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
    """The error of a sync that failed for lack of a resource before it reached the disk; the caller may retry it."""


@contextmanager
def _directory_open(path: Path) -> Iterator[int]:
    """Yield a descriptor of a directory, for a sync.

    Raises:
        DiskNotAsked: the process has no descriptor left.
        OSError: the directory cannot be opened.
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
    """Sync the entries of a directory.

    Raises:
        OSError: the disk refused the sync.
    """
    with _directory_open(path) as fd:
        os.fsync(fd)


_with_news: set[Path] = set()
"""Directories with new subdirectories whose entries may not be on the disk yet."""


def make_directory(path: Path) -> None:
    """Create a directory and its parents durably.

    Raises:
        OSError: the directory cannot be created.
    """
    if not path.is_dir():
        begin_directory(path)
        sync_new_directories(path)


def begin_directory(path: Path) -> None:
    """Create a directory and its parents; `sync_new_directories` makes them durable.

    A sync takes as long as the disk does, and an event loop cannot wait for that with each first message of a queue.

    Raises:
        OSError: the directory cannot be created.
    """
    try:
        os.mkdir(path, MODES.folders)  # noqa: PTH102 - called per new queue; a check first would double the cost
    except FileNotFoundError:
        begin_directory(path.parent)
        path.mkdir(mode=MODES.folders, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    _with_news.add(path.parent)


def sync_new_directories(path: Path) -> None:
    """Sync the entries of a new directory and of its new parents; may run on another thread.

    Raises:
        OSError: the disk refused the sync.
    """
    for above in [above for above in path.parents if above in _with_news]:
        _with_news.discard(above)  # before the sync: a directory created meanwhile must count again
        try:
            sync_directory(above)
        except FileNotFoundError:
            continue  # deleted meanwhile
        except OSError:
            _with_news.add(above)
            raise


def sync_file_system(path: Path) -> bool:
    """Sync the whole file system of a directory; may run on another thread.

    Returns:
        Whether it is done; False where the system has no such call.

    Raises:
        OSError: the disk refused the sync.
    """
    with _directory_open(path) as fd:
        return pages.sync_file_system(fd)


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of a file. When too many files are open, raise the process's limit as far as allowed.

    Raises:
        OSError: the file cannot be opened.
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
