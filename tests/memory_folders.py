"""Temporary folders of tests in memory (`/dev/shm`), where a sync costs nothing.

They serve tests whose subject is no file system. A broker opens and closes with a dozen syncs of 1 to 3 ms each on a
disk, and unit tests open thousands of brokers. A test folder that uses these folders imports the fixtures below into
its `conftest.py` and runs its tests inside `folders_in_memory`. `TIANZHOU_TEST_FOLDERS=disk` in the environment leaves
all folders on the disk, where pytest does not delete them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
LEAST_FREE_BYTES = 2 << 30
"""Free memory below which folders stay on the disk, because containers often have a `/dev/shm` of 64 MiB."""
PREFIX = "tianzhou-tests-"


@cache
def memory_folder() -> Path | None:
    """Return the folder of this process in memory, created at the first call; None when memory is short."""
    if os.environ.get("TIANZHOU_TEST_FOLDERS") == "disk" or not os.access(MEMORY, os.W_OK):
        return None
    if shutil.disk_usage(MEMORY).free < LEAST_FREE_BYTES:
        return None
    _remove_leftovers()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))


def _remove_leftovers() -> None:
    """Remove the folders of processes that were killed."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        found = re.match(rf"{PREFIX}(\d+)-", folder.name)
        if found and not Path("/proc", found[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def folders_in_memory() -> Iterator[None]:
    """Make `tempfile`, `tmp_path` and `tmp_path_factory` create their folders in memory, where enough is free."""
    before = tempfile.tempdir
    if folder := memory_folder():
        tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


class Folders:
    """The part of `pytest.TempPathFactory` that tests use, with folders in memory inside `folders_in_memory`."""

    def __init__(self, on_disk: pytest.TempPathFactory) -> None:
        self._on_disk = on_disk

    def getbasetemp(self) -> Path:
        """Return the parent of all folders."""
        folder = memory_folder()
        return folder if folder and tempfile.tempdir == str(folder) else self._on_disk.getbasetemp()

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        """Create a folder. A numbered folder gets a unique ending."""
        base = self.getbasetemp()
        if base != memory_folder():
            return self._on_disk.mktemp(basename, numbered)
        if numbered:
            return Path(tempfile.mkdtemp(prefix=f"{basename}-", dir=base))
        folder = base / basename
        folder.mkdir(mode=0o700)
        return folder


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    """Replace pytest's factory by one that may create folders in memory."""
    yield Folders(tmp_path_factory)
    if folder := memory_folder():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: Folders) -> Iterator[Path]:
    """Yield a folder of the test. A folder in memory is deleted after the test."""
    folder = tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
    yield folder
    if folder.parent == memory_folder():
        shutil.rmtree(folder, ignore_errors=True)
