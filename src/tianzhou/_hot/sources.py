"""What the compiled twin is made of, and the mark by which it is known whether it was made of these very files."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

FOLDER = Path(__file__).parent
MODULE = "tianzhou._hot._compiled"


def digest(folder: Path = FOLDER) -> str:
    """A mark of the sources in a folder: of both twins, since the compiled one relies on the other."""
    mark = 0
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.px[di]"), *folder.glob("*.pyx"), *folder.glob("*.h")]):
        mark = crc32(path.read_bytes(), crc32(path.name.encode(), mark))
    return f"{mark:08x}"
