"""Files of a store, mapped for reading alone; what lies beside them is left alone."""

from __future__ import annotations

import errno
import mmap
import os
import re
from pathlib import Path
from typing import Final

_STEP: Final = 1 << 20


class ReadOnlySegment:
    """A file mapped for reading, under the offset its name says.

    Args:
        path: the file.
    """

    __slots__ = ("_map", "path", "start", "view")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = int(path.name)
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                self._map: mmap.mmap | None = None
                self.view = memoryview(b"")
            else:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.view = memoryview(self._map)

    @property
    def map(self) -> mmap.mmap | None:
        """The map; None for an empty file."""
        return self._map

    def find(self, needle: bytes, position: int) -> int:
        """Position of the next `needle`, -1 without one; holes of the file are not read."""
        if self._map is None:
            return -1
        pattern = re.compile(re.escape(needle), re.DOTALL)
        with self.path.open("rb") as file:
            while position < len(self.view):
                data, hole = extent(file.fileno(), position, len(self.view))
                if data < 0:
                    return -1
                # A needle may begin in the last bytes before the data found.
                # Not self._map.find: CPython 3.11's reads behind the end of the map, where there may be no memory.
                found = pattern.search(self._map, max(position, data - len(needle) + 1), hole)
                if found is not None:
                    return found.start()
                position = max(hole - len(needle) + 1, position + 1) if hole < len(self.view) else hole
        return -1

    def data_end(self, position: int) -> int:
        """Position behind the last byte that is not zero; `position` when there is none from there on."""
        end = position
        if self._map is not None:
            with self.path.open("rb") as file:
                while position < len(self.view):
                    data, hole = extent(file.fileno(), position, len(self.view))
                    if data < 0:
                        break
                    for at in range(data, hole, _STEP):
                        piece = bytes(self.view[at : min(at + _STEP, hole)]).rstrip(b"\0")
                        end = at + len(piece) if piece else end
                    position = hole
        return end


def extent(fd: int, position: int, end: int) -> tuple[int, int]:
    """The next piece of a file that is no hole: from and to; -1 when there is none from `position` on."""
    try:
        data = os.lseek(fd, position, os.SEEK_DATA)
        return data, min(os.lseek(fd, data, os.SEEK_HOLE), end)
    except OSError as error:
        return (-1, end) if error.errno == errno.ENXIO else (position, end)


def segment_paths(directory: Path) -> list[Path]:
    """The segment files of a directory, in order; everything else is left alone."""
    if not directory.is_dir():
        return []
    names = (path for path in directory.iterdir() if len(path.name) == 20 and path.name.isdigit())
    return sorted(names, key=lambda path: path.name)
