"""Files that sub-commands leave: readable for their owner only, never through a link of somebody else's."""

from __future__ import annotations

import os
from pathlib import Path


def write_own(file: Path, data: bytes, *, private_folder: bool = False) -> None:
    """Write a file, and the folders it is in.

    Args:
        file: the file; one that is there is written anew.
        data: its content.
        private_folder: whether a folder that has to be made is its owner's alone, as in a place where everybody writes.

    Raises:
        OSError: it cannot be written, or is a link.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private_folder else 0o777)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(data)
