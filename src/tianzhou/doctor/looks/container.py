"""Resource limits of a process, from control groups of version 1 and 2, which limit containers and systemd units."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NO_LIMIT: Final = 1 << 60
"""Smallest value that means no limit. Version 1 reports the largest number of pages, in bytes."""


def memory_limit(root: Path) -> int | None:
    """Return the memory limit of this process's control groups in bytes; None without a limit.

    Args:
        root: folder that contains `proc` and `sys`.
    """
    texts = [text(folder / "memory.max") for folder in _folders(root, "")]
    texts += [text(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    return min((int(one) for one in texts if one.isdigit() and int(one) < _NO_LIMIT), default=None)


def processors(root: Path) -> float:
    """Return the number of processors that this process may use: its CPU affinity, or a smaller CPU quota.

    Args:
        root: folder that contains `proc` and `sys`.
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
    """Return the stripped text of a kernel file; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's control group and its parent folders. Version 2 has no controller name.

    A container does not see the parents on the host. Its topmost visible folder is its own group.
    """
    top = root / "sys/fs/cgroup" / controller
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folder = top / path.lstrip("/")
            yield from (one for one in (folder, *folder.parents) if one.is_relative_to(top))
