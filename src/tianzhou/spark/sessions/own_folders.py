"""Folders below a cache that are laid once and used by many processes, and whose content is run.

So they are used only where nobody else can have put anything.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


class NotOurs(PermissionError):
    """A folder or file whose content somebody else may have put there, so that nothing of it is run."""


def lay_once(cache: Path, name: str, draw: Callable[[Path], object]) -> Path:
    """The folder of a name below a cache; it is laid when it is not there.

    It appears whole or not at all, so processes may race for it: it is drawn under another name and gets its own when
    it is done. One that stands is used again, as far as only this user and root can have put it there; what is in it
    is left to the caller to compare.

    Args:
        cache: where to lay it; made when missing.
        name: of the folder.
        draw: makes it, given its path, whose parent is there and nobody else's.

    Raises:
        NotOurs: others could have put something there (`check_own`).
        OSError: it cannot be laid there.
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
            if not os.path.lexists(target):  # else another process was first: its folder serves as well
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    check_own(target)
    return target


def why_not_own(path: Path) -> str | None:
    """Why others could have put or changed what is at a path; None when only this user and root can.

    The path itself must be no link, and this user's; it and all folders above it must not be writable for others,
    where a sticky folder such as `/tmp` above is no harm.

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
    """See that only this user and root can have put what is at a path.

    Raises:
        NotOurs: others could have.
    """
    if (reason := why_not_own(path)) is not None:
        raise NotOurs(f"{reason}; remove it, or set XDG_CACHE_HOME to a folder of your own")
