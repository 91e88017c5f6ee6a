"""The lock of a checkpoint's folder, which one process has at a time. The system releases it when the process ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tianzhou.errors import ConfigError

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of file systems that do not support `flock`."""


@contextlib.contextmanager
def held(folder: Path, lock: str, what: str, *, needed: bool = True) -> Iterator[None]:
    """Hold the lock of a checkpoint's folder for this process.

    Args:
        folder: the folder; created if missing.
        lock: name of the file in it that is locked.
        what: description of the process's work, for the error.
        needed: whether the lock is required. False continues without a lock if the file system does not support locks.

    Raises:
        ConfigError: another process has the lock.
        OSError: the file system does not support locks, and `needed` is set.
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
