"""A checkpoint's folder, which one process has at a time; the lock goes with the process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from tianzhou.errors import ConfigError


@contextlib.contextmanager
def held(folder: Path, lock: str, what: str) -> Iterator[None]:
    """Have a checkpoint's folder for this process.

    Args:
        folder: made when missing.
        lock: the name of the file in it that is locked.
        what: what runs with the folder, for the error.

    Raises:
        ConfigError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"--checkpoint {folder}: another {what} runs with it; wait, or give one of its own"
            ) from error
        yield
