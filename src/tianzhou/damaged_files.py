"""Damaged state files: their rename, and the permission to start without them (docs/adr/0028).

A state file `F` has a previous version `F.bak` beside it. A file with invalid content is damaged. It is renamed to
`F.damaged-<time>`, so that no write moves it to `F.bak`.
"""

from __future__ import annotations

import errno
import os
import pwd
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tianzhou.file_modes import make_folders, replace_file, sync_folder

ACCEPT_OPTION: Final = "--accept-lost-state"
"""Option of the servers that lets the next start succeed without unreadable state files."""
PERMISSION: Final = "accept-lost-state"
"""File in a folder of state files that has the same effect, for one start."""
MAX_KEPT_FILES: Final = 5
"""Maximum number of damaged versions of one file. The oldest is deleted when one more arrives."""


def blank(text: bytes) -> str:
    """Return a description of a file that is empty, blank or contains NUL bytes; an empty text for any other file.

    Args:
        text: content of the file.
    """
    if not text:
        return "the file is empty"
    if nul_bytes := text.count(0):
        return f"the file holds {nul_bytes} NUL bytes{' and nothing else' if nul_bytes == len(text) else ''}"
    return "" if text.strip() else "the file holds blanks and nothing else"


def is_damage(error: OSError) -> bool:
    """Whether a failed read means a damaged file: the disk reports an input/output error.

    A missing permission is no damage. The previous version, or a start without the file, would lose its content.
    """
    return error.errno == errno.EIO


def unreadable(path: Path, error: OSError) -> str:
    """Return why a file cannot be read, with its owner and the remedy.

    Args:
        path: path of the file.
        error: the error of opening or reading the file.
    """
    if error.errno not in {errno.EACCES, errno.EPERM}:
        return f"{path} cannot be read: {error.strerror}; see what is wrong with the file and its disk, and start again"
    owner = ""
    with suppress(OSError):
        owner = f"; it belongs to user {_user(path.stat().st_uid)}"
    return (
        f"{path} cannot be read: {error.strerror}{owner}, and this process runs as user {_user(os.geteuid())}; let "
        "this user read and write the file (chown, chmod) and start again. Its content is not lost: do not delete it"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def keep_aside(path: Path) -> Path | None:
    """Rename a damaged file in its folder.

    Returns:
        The new path; None when the file does not exist or cannot be renamed.
    """
    stem = f"{path.name}.damaged-"
    aside = path.with_name(stem + time.strftime("%Y%m%d-%H%M%S"))
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{stem}{time.strftime('%Y%m%d-%H%M%S')}-{number}")
    try:
        path.rename(aside)
    except OSError:
        return None
    kept = [one for one in path.parent.glob(f"{stem}*") if one != aside]
    for oldest in sorted(kept, key=_changed)[: max(len(kept) + 1 - MAX_KEPT_FILES, 0)]:
        with suppress(OSError):
            oldest.unlink()
    return aside


def _changed(path: Path) -> tuple[int, str]:
    try:
        return path.stat().st_ctime_ns, path.name
    except OSError:
        return 0, path.name


def accept_lost_state(folder: Path) -> None:
    """Let the next start of a server succeed without unreadable state files.

    Args:
        folder: folder of the state files.

    Raises:
        OSError: the file cannot be written.
    """
    make_folders(folder)
    replace_file(folder / PERMISSION, b"the next start may succeed without state files that cannot be read, once\n")
    sync_folder(folder)


def is_lost_state_accepted(folder: Path) -> bool:
    """Whether `accept_lost_state` was called for a folder since the last start.

    Args:
        folder: folder of the state files.
    """
    return (folder / PERMISSION).exists()


def end_acceptance(folder: Path) -> None:
    """Remove the permission, if there is one.

    Args:
        folder: folder of the state files.

    Raises:
        OSError: the file cannot be removed.
    """
    if is_lost_state_accepted(folder):
        (folder / PERMISSION).unlink()
        sync_folder(folder)
