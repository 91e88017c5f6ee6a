"""Files that sub-commands write: readable only for their owner, and never written through a symbolic link."""

from __future__ import annotations

import os
from pathlib import Path


def write_own(file: Path, data: bytes, *, private_folder: bool = False) -> None:
    """Write a file, and create its folders.

    Args:
        file: the file. An existing one is replaced.
        data: its content.
        private_folder: whether a created folder is accessible only for its owner, as needed below a folder for all
            users.

    Raises:
        OSError: the file cannot be written, or is a symbolic link.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private_folder else 0o777)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(data)
