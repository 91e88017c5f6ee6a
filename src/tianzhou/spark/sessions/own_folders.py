"""Folders below a cache that are created once, shared by many processes, and contain code that these execute.

They are used only if no other user can have written into them.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


class NotOurs(PermissionError):
    """A folder or file that another user may have written, so that its content must not be executed."""


def lay_once(cache: Path, name: str, draw: Callable[[Path], object]) -> Path:
    """Return the folder of a name below a cache. Create the folder if it is missing.

    The folder is created atomically, so processes may race for it: it is filled under another name and renamed when it
    is complete. An existing folder is reused if only this user and root can have written it. The caller must compare
    its content.

    Args:
        cache: parent folder; created if missing.
        name: name of the folder.
        draw: creates the folder at a given path. The path's parent exists and belongs to this user only.

    Raises:
        NotOurs: other users could have written into the folder (`check_own`).
        OSError: the folder cannot be created.
    """
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = cache.parent.resolve() / cache.name
    folder.mkdir(mode=0o700, exist_ok=True)
    check_own(folder)
    target = folder / name
    if not os.path.lexists(target):
        draft = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        try:
            draw(draft / name)
            (draft / name).rename(target)
        except OSError:
            if not os.path.lexists(target):  # If it exists, another process was first and created an equal folder.
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    check_own(target)
    return target


def why_not_own(path: Path) -> str | None:
    """Return why other users could have written the file or folder at a path; None if only this user and root can.

    The path itself must not be a link and must belong to this user. Other users must not be able to write to the path
    or to any folder above it, except to a sticky folder such as `/tmp`.

    Args:
        path: an absolute path without links above its last part.
    """
    me = os.geteuid()
    for part in (path, *path.parents):
        found = part.lstat()
        mode = found.st_mode
        if stat.S_ISLNK(mode):
            return f"{part} is a link"
        if found.st_uid != me and (part == path or found.st_uid != 0):
            return f"{part} belongs to user {found.st_uid}"
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and (part == path or not mode & stat.S_ISVTX):
            return f"{part} can be written by others (mode {stat.S_IMODE(mode):04o})"
    return None


def check_own(path: Path) -> None:
    """Check that only this user and root can have written the file or folder at a path.

    Raises:
        NotOurs: other users could have written it.
    """
    if (reason := why_not_own(path)) is not None:
        raise NotOurs(f"{reason}; remove it, or set XDG_CACHE_HOME to a folder of your own")
