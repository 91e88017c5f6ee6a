"""Segments prepare their pages without touching what is in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tianzhou.store.segments import Segment

SIZE = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="pages are prepared on Linux only")
def test_preparing_gives_a_range_pages_and_disk_space_and_keeps_what_is_written(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "0", 0, SIZE)
    try:
        segment.map[100:104] = b"kept"
        segment.prepare_range(0, SIZE // 2)
        assert segment.resident(0, SIZE // 2)
        assert bytes(segment.view[96:108]) == bytes(4) + b"kept" + bytes(4)
        assert not any(segment.view[104 : SIZE // 2])
        segment.sync(0, SIZE)
        on_disk = segment.path.stat().st_blocks * 512
        assert SIZE // 2 <= on_disk < SIZE, "that half, and no more"
    finally:
        segment.delete()


@pytest.mark.parametrize(("start", "end"), [(SIZE - 5000, SIZE + (1 << 19)), (SIZE, SIZE + 10), (12345, 12345)])
def test_preparing_stops_at_the_end_of_the_file(tmp_path: Path, start: int, end: int) -> None:
    segment = Segment.create(tmp_path / "0", 0, SIZE)
    try:
        segment.prepare_range(start, end)
        assert segment.path.stat().st_size == SIZE
    finally:
        segment.delete()
