"""Processes and those below them, as `/proc` tells."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that one has started and that are there; none when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text(encoding="ascii").split())
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one, the nearest first."""
    return [one for child in children(pid) for one in (child, *descendants(child))]
