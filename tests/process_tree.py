"""Processes and their descendants, from `/proc`."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the running children of a process; empty when it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text(encoding="ascii").split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, the nearest first."""
    return [one for child in children(pid) for one in (child, *descendants(child))]
