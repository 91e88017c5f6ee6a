"""Segment files of a store, mapped for reading only; other files are ignored."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from tianzhou.store.files.sparse import extent, find

_STEP: Final = 1 << 20


class ReadOnlySegment:
    """A file mapped for reading, at the offset in its name.

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
        """Return the position of the next `needle`, -1 without one; holes of the file are not read."""
        if self._map is None:
            return -1
        with self.path.open("rb") as file:
            return find(file.fileno(), self._map, needle, position, len(self.view))

    def data_end(self, position: int) -> int:
        """Return the position after the last byte that is not zero; `position` when only zeros follow it."""
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


def segment_paths(directory: Path) -> list[Path]:
    """Return the segment files of a directory, in order; other files are ignored."""
    if not directory.is_dir():
        return []
    names = (path for path in directory.iterdir() if len(path.name) == 20 and path.name.isdigit())
    return sorted(names, key=lambda path: path.name)
