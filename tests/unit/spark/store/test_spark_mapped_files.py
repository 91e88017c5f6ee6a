"""A process maps each file of a store once, and sees its current contents."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from tianzhou.spark.store.mapped_files import MappedFiles


def put(folder: Path, start: int, content: bytes) -> Path:
    path = folder / f"{start:020d}"
    fresh = folder / "fresh"
    fresh.write_bytes(content)
    fresh.replace(path)
    return path


def test_whoever_reads_a_file_again_finds_it_mapped(tmp_path):
    put(tmp_path, 0, b"a" * 10_000)
    first = MappedFiles([tmp_path]).get(0)
    assert MappedFiles([tmp_path]).get(0) is first


def test_a_file_in_the_place_of_another_is_mapped_again(tmp_path):
    put(tmp_path, 0, b"a" * 10_000)
    first = MappedFiles([tmp_path]).get(0)
    put(tmp_path, 0, b"b" * 10_000)
    second = MappedFiles([tmp_path]).get(0)
    assert (bytes(first.view[:3]), bytes(second.view[:3])) == (b"aaa", b"bbb")
    with (tmp_path / f"{0:020d}").open("ab") as file:
        file.write(b"c")
    assert len(MappedFiles([tmp_path]).get(0).raw) == 10_001


def test_files_that_are_gone_are_let_go_with_the_next_one(tmp_path):
    path = put(tmp_path, 0, b"a" * 10_000)
    kept = weakref.ref(MappedFiles([tmp_path]).get(0).raw)
    path.unlink()
    put(tmp_path, 10_000, b"b" * 10_000)
    assert kept() is not None
    assert MappedFiles([tmp_path]).get(10_000) is not None
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("parts", [[(0, 10)], [(5000, 9000), (100, 200)], [(0, 5000), (4000, 20_000), (0, 20_000)]])
def test_making_parts_ready_changes_nothing(tmp_path, parts):
    content = bytes(number % 251 for number in range(20_000))
    put(tmp_path, 0, content)
    mapped = MappedFiles([tmp_path]).get(0)
    for begin, end in parts:
        mapped.ready(begin, end)
    assert bytes(mapped.view) == content
