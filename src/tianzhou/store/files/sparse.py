"""Sparse files: their ranges of data, and a search within these ranges."""

from __future__ import annotations

import errno
import mmap
import os
import re


def extent(fd: int, position: int, end: int) -> tuple[int, int]:
    """Return start and end of the next range of data in a file; start -1 when there is none from `position` on.

    Args:
        fd: descriptor of the file.
        position: start of the search.
        end: end of the file; it limits the range.
    """
    try:
        data = os.lseek(fd, position, os.SEEK_DATA)
        return data, min(os.lseek(fd, data, os.SEEK_HOLE), end)
    except OSError as error:
        return (-1, end) if error.errno == errno.ENXIO else (position, end)


def find(fd: int, memory: mmap.mmap, needle: bytes, position: int, end: int) -> int:
    """Return the position of the first `needle` at or after `position` in a mapped file, -1 without one.

    Holes are not read.

    Args:
        fd: descriptor of the file.
        memory: its map.
        needle: the bytes to find.
        position: start of the search.
        end: end of the file.
    """
    # Not memory.find: CPython 3.11's reads past the end of the map, where there may be no memory.
    pattern = re.compile(re.escape(needle), re.DOTALL)
    while position < end:
        data, hole = extent(fd, position, end)
        if data < 0:
            return -1
        # A needle may begin in the last bytes before the range.
        found = pattern.search(memory, max(position, data - len(needle) + 1), hole)
        if found is not None:
            return found.start()
        position = max(hole - len(needle) + 1, position + 1) if hole < end else end
    return -1
