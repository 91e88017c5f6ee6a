"""Segment files out of use, until their removal (store.md §2.7)."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from tianzhou.store.files import pages
from tianzhou.store.files.directories import open_file


class RetiredSegment:
    """A file out of use, to be removed where the time for that does no harm.

    The kernel needs a fifth of a second to free a gigabyte, when the last name, descriptor or map of the file is gone.
    A file with readers keeps its memory until they are done; the caller then repeats `release`.

    Args:
        path: the file.
        size: its length in bytes.
        memory: its map; None without one.
        address: address of the map's first byte.

    Attributes:
        named: whether the file still has its name.
    """

    __slots__ = ("_address", "_fd", "_memory", "named", "path", "size")

    def __init__(self, path: Path, size: int, memory: mmap.mmap | None, address: int) -> None:
        self.path = path
        self.size = size
        self.named = True
        self._memory = memory
        self._address = address
        self._fd = -1

    def unlink(self) -> None:
        """Remove the name; fast, because the file itself stays until `release`.

        Raises:
            OSError: the system refuses.
        """
        if self.named:
            try:
                if self._fd < 0:
                    self._fd = open_file(self.path, os.O_RDONLY)
                self.path.unlink()
            except FileNotFoundError:
                pass
            self.named = False

    def release(self) -> bool:
        """Release memory and disk space; return False at once while a reader uses them."""
        memory = self._memory
        if memory is not None:
            pages.detach(self._address, self.size)
            try:
                memory.close()
            except BufferError:
                return False
            self._memory = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return True
