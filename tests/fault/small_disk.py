"""Small file systems of their own, which a test may fill to the last byte."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = ("tmpfs", "ext4")


@contextlib.contextmanager
def small_disk(kind: str, folder: Path, size_mib: int, image_mib: int) -> Iterator[Path]:
    """Mount a file system in a folder; the test is skipped where that is impossible.

    Args:
        kind: one of `KINDS`.
        folder: parent folder of the mount point and the image.
        size_mib: MiB of a tmpfs.
        image_mib: MiB of the image of an ext4, including its own metadata.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    target = folder / "disk"
    target.mkdir()
    if kind == "tmpfs":
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "none", target], capture_output=True)
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(image_mib << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], capture_output=True)
        if made.returncode == 0:
            made = subprocess.run(["mount", "-o", "loop", image, target], capture_output=True)
    if made.returncode:
        pytest.skip(f"no {kind} can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", target], check=True)
