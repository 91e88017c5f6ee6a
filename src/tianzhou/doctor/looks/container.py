"""A look at what a process may use: control groups of both versions, which containers and units are limited by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NO_LIMIT: Final = 1 << 60
"""Without a limit version 1 says the largest number of pages, in bytes."""


def memory_limit(root: Path) -> int | None:
    """Bytes that this process may have together with those beside it; None without a limit.

    Args:
        root: where `proc` and `sys` are.
    """
    texts = [text(folder / "memory.max") for folder in _folders(root, "")]
    texts += [text(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    return min((int(one) for one in texts if one.isdigit() and int(one) < _NO_LIMIT), default=None)


def processors(root: Path) -> float:
    """Processors that this process may use: those it is bound to, or what a quota leaves of them.

    Args:
        root: where `proc` and `sys` are.
    """
    quotas = [text(folder / "cpu.max").split() for folder in _folders(root, "")]
    quotas += [
        [text(folder / "cpu.cfs_quota_us"), text(folder / "cpu.cfs_period_us")] for folder in _folders(root, "cpu")
    ]
    shares = [
        int(one[0]) / int(one[1]) for one in quotas if len(one) == 2 and all(part.isdigit() for part in one)
    ]  # "max" and -1 are no limit
    return min([float(len(os.sched_getaffinity(0))), *shares])


def text(path: Path) -> str:
    """What a file of the kernel's says, without blanks around it; nothing when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folder of this process's control group and those above it; version 2 has no name of a controller.

    In a container those above are not to be seen, and the uppermost is its own.
    """
    top = root / "sys/fs/cgroup" / controller
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = top / path.lstrip("/")
            yield from (one for one in (folder, *folder.parents) if one.is_relative_to(top))
