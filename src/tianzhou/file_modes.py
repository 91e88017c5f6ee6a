"""Files that a server or client creates or replaces: only for its own user, unless `storeFileMode` has another mode.

Other users of the machine must not read messages, offsets and settings. Existing files and folders keep their
permissions. A replaced file keeps its permissions, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

OWN_ONLY: Final = 0o600


class FileModes:
    """Permissions of new files and folders of this process. The umask still applies.

    Attributes:
        files: permission bits of files.
    """

    def __init__(self) -> None:
        self.files = OWN_ONLY

    @property
    def folders(self) -> int:
        """Permission bits of folders. Users who may read the files may also enter the folders."""
        return self.files | (self.files & 0o444) >> 2

    def of(self, path: Path) -> int:
        """Return the permission bits of an existing file for its replacement, or those of new files without one."""
        try:
            return path.stat().st_mode & 0o777
        except OSError:
            return self.files


MODES: Final = FileModes()
"""File modes of this process."""


def parse_mode(text: str) -> int:
    """Return the permission bits of `storeFileMode`.

    Raises:
        ValueError: the text is no such number, or excludes this user from the files.
    """
    if not re.fullmatch(r"0?[0-7]{3}", text) or int(text, 8) & 0o600 != 0o600 or int(text, 8) & 0o111:
        raise ValueError(f"storeFileMode={text}: expected permissions of files such as 0600, 0640 or 0644")
    return int(text, 8)


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents.

    Raises:
        OSError: a folder cannot be created.
    """
    try:
        path.mkdir(mode=MODES.folders)
    except FileNotFoundError:
        make_folders(path.parent)
        path.mkdir(mode=MODES.folders, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def make_synced_folders(path: Path) -> None:
    """Create a folder and its missing parents, and sync their names to disk.

    Raises:
        OSError: a folder cannot be created or synced.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    make_folders(path)
    for one in missing:
        sync_folder(one.parent)


def sync_folder(path: Path) -> None:
    """Sync the names of the files in a folder to disk. Without its name, a new file is lost.

    Raises:
        OSError: the sync failed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, text: bytes) -> None:
    """Write a file with the permissions of new files, as `Path.write_bytes` does.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODES.files)
    with os.fdopen(fd, "wb") as file:
        file.write(text)


def replace_file(path: Path, text: bytes, *, mode: int | None = None, backup: Path | None = None) -> None:
    """Replace the content of a file atomically: after a power failure, the file has the old or the new content.

    Args:
        path: path of the file.
        text: the new content.
        mode: permission bits; None keeps the present ones.
        backup: path for the previous version; None for no backup.

    Raises:
        OSError: the file cannot be written; the old content is unchanged.
    """
    fresh = path.with_name(path.name + ".tmp")
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODES.of(path) if mode is None else mode
    try:
        fd = os.open(fresh, flags, mode)
    except FileExistsError:
        # Remove the file, which is a remnant of a crash or a planted link. A link must not be followed.
        fresh.unlink()
        fd = os.open(fresh, flags, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        if backup is not None and path.exists():
            # Create the backup with its final permissions. Otherwise other users could read it until they are changed.
            replace_file(backup, path.read_bytes(), mode=path.stat().st_mode & 0o777)
        fresh.replace(path)
    except OSError:
        # Remove the incomplete file, because its space may be needed on a full disk.
        fresh.unlink(missing_ok=True)
        raise
