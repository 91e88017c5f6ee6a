"""Damaged state files: saved under another name, and the permission to start without them (docs/adr/0028).

A state file `F` lies beside `F.bak`, the version before. A file that cannot be read as what it should hold is damaged.
It gets the name `F.damaged-<time>`, so that no write puts it in the place of the `.bak`.
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
"""Option of the servers that lets the next start succeed without the state files that cannot be read."""
PERMISSION: Final = "accept-lost-state"
"""File in a folder of state files with the same meaning, for one start."""
MAX_KEPT_FILES: Final = 5
"""Maximum number of damaged versions of one file; the oldest is deleted when one more arrives."""


def blank(text: bytes) -> str:
    """Return a description of a text file without content, or with NUL bytes; empty for any other file.

    Args:
        text: bytes of the file.
    """
    if not text:
        return "the file is empty"
    if nul_bytes := text.count(0):
        return f"the file holds {nul_bytes} NUL bytes{' and nothing else' if nul_bytes == len(text) else ''}"
    return "" if text.strip() else "the file holds blanks and nothing else"


def is_damage(error: OSError) -> bool:
    """Whether a file that cannot be read is damaged: its disk answers with an input/output error.

    A file that this user may not read is none: a version before it, or a start without it, would lose its content.
    """
    return error.errno == errno.EIO


def unreadable(path: Path, error: OSError) -> str:
    """Return why a file cannot be read, with its owner and the remedy.

    Args:
        path: the file.
        error: raised when the file was opened or read.
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
    """Give a damaged file another name beside its place.

    Returns:
        The new path; None when there is no such file, or it cannot be renamed.
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
    """Let the next start of a server succeed without the state files that cannot be read.

    Args:
        folder: folder of the state files.

    Raises:
        OSError: the disk refused.
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
    """Take the permission away, if there is one.

    Args:
        folder: folder of the state files.

    Raises:
        OSError: the disk refused.
    """
    if is_lost_state_accepted(folder):
        (folder / PERMISSION).unlink()
        sync_folder(folder)
