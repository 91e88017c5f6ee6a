"""Files a server or client makes or replaces: for its own user only, unless `storeFileMode` says otherwise.

Other users of the machine must not read messages, offsets and settings. Existing files and folders keep their
permissions, and so does a file that is replaced.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

OWN_ONLY: Final = 0o600


class FileModes:
    """Permissions of new files and folders of this process; the umask still applies.

    Attributes:
        files: permission bits of files.
    """

    def __init__(self) -> None:
        self.files = OWN_ONLY

    @property
    def folders(self) -> int:
        """Permission bits of folders: readers of files may enter them."""
        return self.files | (self.files & 0o444) >> 2

    def of(self, path: Path) -> int:
        """Permission bits of an existing file, for its replacement; those of new files without one."""
        try:
            return path.stat().st_mode & 0o777
        except OSError:
            return self.files


MODES: Final = FileModes()
"""File modes of this process."""


def parse_mode(text: str) -> int:
    """The permission bits of `storeFileMode`.

    Raises:
        ValueError: it is no such number, or this user could not use the files.
    """
    if not re.fullmatch(r"0?[0-7]{3}", text) or int(text, 8) & 0o600 != 0o600 or int(text, 8) & 0o111:
        raise ValueError(f"storeFileMode={text}: expected permissions of files such as 0600, 0640 or 0644")
    return int(text, 8)


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are not there.

    Raises:
        OSError: one cannot be made.
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
    """Make a folder and those above it that are not there; the disk has their names on return.

    Raises:
        OSError: one cannot be made, or the disk refused.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    make_folders(path)
    for one in missing:
        sync_folder(one.parent)


def sync_folder(path: Path) -> None:
    """Bring the names of the files in a folder to the disk: a new file is lost with its name.

    Raises:
        OSError: the disk refused.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, text: bytes) -> None:
    """Write a file of its own permissions; as `Path.write_bytes`.

    Raises:
        OSError: it cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODES.files)
    with os.fdopen(fd, "wb") as file:
        file.write(text)


def replace_file(path: Path, text: bytes, *, mode: int | None = None, backup: Path | None = None) -> None:
    """Give a file a new text that is there as a whole or not at all, whenever the power fails.

    Args:
        path: the file.
        text: its text.
        mode: its permission bits; by default as they were.
        backup: where the version before stays, if there is one.

    Raises:
        OSError: it cannot be written; the old one is untouched.
    """
    fresh = path.with_name(path.name + ".tmp")
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODES.of(path) if mode is None else mode
    try:
        fd = os.open(fresh, flags, mode)
    except FileExistsError:
        # What a crash has left, or a link that somebody planted, which is not followed.
        fresh.unlink()
        fd = os.open(fresh, flags, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        if backup is not None and path.exists():
            # As the file itself: a copy that gets its permissions afterwards can be read until then.
            replace_file(backup, path.read_bytes(), mode=path.stat().st_mode & 0o777)
        fresh.replace(path)
    except OSError:
        # On a full disk, the half that was written is space that somebody needs.
        fresh.unlink(missing_ok=True)
        raise
