"""Temporary shortages of resources: descriptors, memory, threads, disk space. Pure.

In a shortage, work is refused with a reason and soon retried. Errors of syncing data are no shortages, whatever their
number: see `store.log.flush`.
"""

from __future__ import annotations

import errno
from typing import Final

_REMEDIES: Final = {
    errno.EMFILE: "this process has all the files it may have; raise its limit (ulimit -n), or have fewer connections",
    errno.ENFILE: "the system has all the files it may have; raise fs.file-max, or end what holds them",
    errno.ENOMEM: "the system has no memory or maps left; free memory, or raise vm.max_map_count",
    errno.ENOBUFS: "the system has no buffers left; free memory",
    errno.EAGAIN: "the system starts no further thread; raise its limit (ulimit -u), or end what runs",
    errno.ENOSPC: "the disk is full; free space",
    errno.EDQUOT: "the disk quota is used up; free space, or raise it",
}
_NO_THREAD: Final = "can't start new thread"


def remedy(error: BaseException) -> str | None:
    """Return the missing resource and the remedy; None when the error is no shortage."""
    if isinstance(error, OSError):
        return _REMEDIES.get(error.errno or 0)
    if isinstance(error, MemoryError):
        return _REMEDIES[errno.ENOMEM]
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return _REMEDIES[errno.EAGAIN]
    return None


def passes(error: BaseException) -> bool:
    """Whether the error is a shortage, so that a retry may succeed."""
    return remedy(error) is not None


def words(error: BaseException) -> str:
    """Return the text of an error, with the remedy when it is a shortage."""
    text, fix = str(error) or type(error).__name__, remedy(error)
    return text if fix is None else f"{text}: {fix}"


def advice(error: OSError) -> str:
    """Return the remedy for a file that cannot be created, mapped or written, as an imperative."""
    fix = remedy(error)
    if fix is not None:
        return fix.partition("; ")[2]
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "see to it that this user may read and write everything in the folder"
    return "see what is wrong with the disk"
