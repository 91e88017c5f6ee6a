"""Images of a folder at one moment, for a later restore: the store of a broker that is killed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def take(folder: Path, image: Path) -> None:
    """Copy a folder in its present state, with bytes written to maps of its files and not synced yet.

    Args:
        folder: the folder.
        image: target of the copy; must not exist.
    """
    shutil.copytree(folder, image, symlinks=True, copy_function=_copy)


def put_back(folder: Path, image: Path) -> None:
    """Restore a folder from its image; the image is moved."""
    shutil.rmtree(folder, ignore_errors=True)
    image.rename(folder)


def _copy(source: str, target: str) -> None:
    # Segments are mostly holes, so skip them.
    with Path(source).open("rb") as old, Path(target).open("xb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        at = 0
        while at < size:
            at, end = _next_part(old.fileno(), at, size)
            old.seek(at)
            new.seek(at)
            while at < end:
                data = old.read(min(end - at, 1 << 20))
                if not data:
                    return
                new.write(data)
                at += len(data)
    shutil.copystat(source, target)


def _next_part(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """Return the span of the next bytes that are no hole; all remaining bytes where the system finds no holes."""
    if not hasattr(os, "SEEK_DATA"):
        return at, size
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError:  # a hole up to the end, or a file system without holes
        return (size, size) if at else (0, size)
