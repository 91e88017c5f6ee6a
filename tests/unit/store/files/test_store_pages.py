"""Pages of new files: each is created alone, and the read advice persists."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tianzhou.store.files import pages
from tianzhou.store.files.pages import PAGE
from tianzhou.store.files.segments import Segment

SIZE = 8 << 20


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(tmp_path / f"{0:020}", 0, SIZE)


def present(segment: Segment) -> list[int]:
    """Return the pages of a segment that are in memory."""
    return [at // PAGE for at in range(0, SIZE, PAGE) if segment.resident(at, at + PAGE)]


def test_a_page_of_a_new_file_brings_no_others_into_memory(segment: Segment) -> None:
    segment.reserve_range(0, PAGE)
    assert present(segment) == [0]
    segment.reserve_range(PAGE, 2 * PAGE)
    segment.reserve_range(1 << 20, (1 << 20) + 4)
    assert present(segment) == [0, 1, (1 << 20) // PAGE]
    segment.close()


@pytest.mark.parametrize(("alone", "advised"), [(None, 0), (False, 0), (True, 2)])
def test_many_pages_are_made_one_by_one_only_on_request(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, alone: bool | None, advised: int
) -> None:
    given: list[int] = []
    monkeypatch.setattr(pages, "advise", lambda address, size, advice: given.append(advice))
    segment.reserve_range(0, 1 << 20, alone)
    assert len(given) == advised
    assert segment.resident(0, 1 << 20)
    segment.close()


def test_a_segment_is_read_ahead_as_it_was_before_pages_were_made(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(pages, "advise", lambda address, size, advice: given.append(advice))
    segment.reserve_range(0, PAGE)
    assert given == [mmap.MADV_RANDOM, mmap.MADV_NORMAL]
    given.clear()
    segment.advise(mmap.MADV_RANDOM)
    segment.reserve_range(PAGE, 2 * PAGE)
    assert given == []
    segment.close()


def test_advice_comes_back_when_there_is_no_space(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(pages, "advise", lambda address, size, advice: given.append(advice))

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pages, "populate", full)
    with pytest.raises(OSError, match="No space"):
        segment.reserve_range(0, PAGE)
    assert given == [mmap.MADV_RANDOM, mmap.MADV_NORMAL]
    segment.close()
