"""Folders of unit tests in memory, except for tests of the store, which test files on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_folders import folders_in_memory, tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]

ON_DISK = Path(__file__).parent / "store"
"""Tests that need a disk, because the store reads files of `/dev/shm` in another way (`store/files/pages.py`)."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.path.is_relative_to(ON_DISK):
        return (yield)
    with folders_in_memory():
        return (yield)
