"""A start after a clean stop finds the ends of queues without reading unwritten space."""

from __future__ import annotations

import os

import pytest
from small_store import opened

from store_probe import StoreProbe
from tianzhou._hot.records import NewRecord
from tianzhou.store import MessageStore
from tianzhou.store.files.pages import PAGE
from tianzhou.store.queues.unit_search import first_wrong
from tianzhou.store.settings import StoreSettings


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 100, 300_000])
def test_the_first_wrong_unit_is_found_in_a_few_steps_that_begin_in_front(count) -> None:
    for wrong in {0, 1, 2, 3, 4, 5, 63, 64, 65, count - 1, count} & set(range(count + 1)):
        asked: list[int] = []

        def right(number: int, wrong: int = wrong, asked: list[int] = asked) -> bool:
            asked.append(number)
            return number < wrong

        assert first_wrong(count, right) == wrong
        assert len(asked) <= 2 * wrong.bit_length() + 2
        assert max(asked, default=0) <= 2 * wrong
        assert all(0 <= number < count for number in asked)


def test_pages_behind_the_last_unit_stay_out_of_memory(tmp_path) -> None:
    with opened(MessageStore(StoreSettings(store_path_root_dir=str(tmp_path)))) as store:
        for number in range(30):
            store.append(NewRecord("T", number % 3, b"body", b""))
    files = sorted((tmp_path / "consumequeue" / "T").glob("*/*"))
    assert len(files) == 3
    for file in files:
        with file.open("rb") as readable:
            os.fsync(readable.fileno())
            os.posix_fadvise(readable.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with opened(MessageStore(store.settings)) as store:
        assert [store.max_offset("T", queue) for queue in range(3)] == [10, 10, 10]
        for queue in range(3):
            (segment,) = StoreProbe(store).queue("T", queue).files.segments
            pages = range(0, segment.size - PAGE, PAGE)
            assert sum(segment.resident(at, at + PAGE) for at in pages) <= 8
