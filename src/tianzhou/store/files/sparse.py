"""Sparse files: where they have data, and finding bytes in that alone."""

from __future__ import annotations

import errno
import mmap
import os
import re


def extent(fd: int, position: int, end: int) -> tuple[int, int]:
    """The next piece of a file that is no hole: from and to; -1 when there is none from `position` on.

    Args:
        fd: of the file.
        position: where to look from.
        end: of the file; a piece ends there at the latest.
    """
    try:
        data = os.lseek(fd, position, os.SEEK_DATA)
        return data, min(os.lseek(fd, data, os.SEEK_HOLE), end)
    except OSError as error:
        return (-1, end) if error.errno == errno.ENXIO else (position, end)


def find(fd: int, memory: mmap.mmap, needle: bytes, position: int, end: int) -> int:
    """Position of the first `needle` at or behind `position` of a mapped file, -1 without one; holes are not read.

    Args:
        fd: of the file.
        memory: its map.
        needle: the bytes looked for.
        position: where to begin.
        end: of the file.
    """
    # Not memory.find: CPython 3.11's reads behind the end of the map, where there may be no memory.
    pattern = re.compile(re.escape(needle), re.DOTALL)
    while position < end:
        data, hole = extent(fd, position, end)
        if data < 0:
            return -1
        # A needle may begin in the last bytes before the data found.
        found = pattern.search(memory, max(position, data - len(needle) + 1), hole)
        if found is not None:
            return found.start()
        position = max(hole - len(needle) + 1, position + 1) if hole < end else end
    return -1
