"""A checkpoint's folder, which one process has at a time; the lock goes with the process, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""What file systems say that do not know `flock`."""


@contextlib.contextmanager
def held(folder: Path, lock: str, what: str, *, needed: bool = True) -> Iterator[None]:
    """Have a checkpoint's folder for this process.

    Args:
        folder: made when missing.
        lock: the name of the file in it that is locked.
        what: what runs with the folder, for the error.
        needed: False to go on where a file system knows no locks.

    Raises:
        ConfigError: another process has it.
        OSError: the file system knows no locks, and one is needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"--checkpoint {folder}: another {what} runs with it; wait, or give one of its own"
            ) from error
        except OSError as error:
            if needed or error.errno not in _NO_LOCKS:
                raise
        yield
