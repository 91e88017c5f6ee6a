"""Positions of lost records: marked so that our reader skips them and Apache's broker leaves their neighbours
intact.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_store import opened, overwrite, read_queue, small_store

from tianzhou._hot.records import HOLE, UNIT
from tianzhou.store import MessageStore, NewRecord, PutStatus
from tianzhou.store.log import holes
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.repairer import repair
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.consumequeue import ConsumeQueue

SEGMENT = 4096
COUNT = 40
small = partial(small_store, mapped_file_size_commit_log=SEGMENT)


def fill(folder: Path) -> list[tuple[int, int]]:
    """Create a store of one queue, stopped cleanly; return the positions of its records."""
    with opened(small(folder)) as store:
        places = []
        for number in range(COUNT):
            body = b"%03d " % number * 40
            result = store.append(NewRecord("T", 0, body, b"UNIQ_KEY\x01u%d\x02" % number, uniq_key=f"u{number}"))
            assert result.status is PutStatus.PUT_OK
            places.append((result.physical_offset, result.end_offset - result.physical_offset))
    return places


def damage(folder: Path, place: tuple[int, int]) -> None:
    start = place[0] - place[0] % SEGMENT
    overwrite(folder / "commitlog" / f"{start:020d}", place[0] - start + 100, b"\xff")


def served(store: MessageStore, begin: int = 0) -> list[int]:
    return [record.queue_offset for record in read_queue(store, begin=begin)]


@pytest.mark.parametrize("lost", [(0,), (3,), (3, 4, 5), (20,), (COUNT - 1,), (COUNT - 3, COUNT - 1), (0, 7, 30)])
def test_the_places_of_lost_records_are_kept(lost: tuple[int, ...], tmp_path: Path) -> None:
    places = fill(tmp_path)
    for number in lost:
        damage(tmp_path, places[number])
    outcome = repair(tmp_path)
    assert outcome.report.sound
    left = [number for number in range(COUNT) if number not in lost]
    units = list(StoreScan(tmp_path).units("T", 0))
    assert {unit.queue_offset for unit in units if unit.blank} == set(lost)
    assert len(units) == COUNT
    for unit, following in pairwise(units):
        # Apache's broker skips records for a blank unit only in the first file of the log.
        assert not unit.blank or unit.tags_code == HOLE or following.physical_offset >= SEGMENT
    last = units[-1]
    assert last.physical_offset + last.size <= places[-1][0] + places[-1][1]

    with opened(small(tmp_path)) as store:
        assert served(store) == left
        for number in range(COUNT):
            assert served(store, number) == [other for other in left if other >= number]
        result = store.append(NewRecord("T", 0, b"behind", b"UNIQ_KEY\x01behind\x02", uniq_key="behind"))
        assert result.queue_offset == COUNT
    with opened(small(tmp_path)) as store:
        assert store.report.clean
        assert served(store) == [*left, COUNT]
    assert check_store(StoreScan(tmp_path)).sound


def test_a_queue_rebuilt_at_the_start_keeps_places_too(tmp_path: Path) -> None:
    places = fill(tmp_path)
    damage(tmp_path, places[3])
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    with opened(small(tmp_path)) as store:
        assert served(store) == [number for number in range(COUNT) if number != 3]
    unit = list(StoreScan(tmp_path).units("T", 0))[3]
    assert (unit.physical_offset, unit.size, unit.tags_code) == (*places[4], HOLE)


def test_a_place_is_kept_by_a_blank_unit_where_that_does_no_harm() -> None:
    assert holes.before(SEGMENT, 100, SEGMENT) == holes.BLANK
    assert holes.before(SEGMENT - 200, 100, SEGMENT) == UNIT.pack(SEGMENT - 200, 100, HOLE)
    last = UNIT.pack(9000, 100, HOLE)
    assert holes.behind(3, 9000, 100, SEGMENT) == [holes.BLANK, holes.BLANK, last]
    assert holes.behind(2, 0, 100, SEGMENT) == [UNIT.pack(0, 100, HOLE)] * 2
    assert holes.behind(0, 0, 100, SEGMENT) == []
    assert holes.is_hole(0, holes.BLANK_SIZE, 0)
    assert holes.is_hole(*UNIT.unpack(last))
    assert not holes.is_hole(0, 100, 5)


@given(
    present=st.lists(st.booleans(), min_size=1, max_size=40).filter(any),
    lost_before=st.integers(0, 45),
)
def test_expiry_drops_no_unit_that_still_points_into_the_log(
    tmp_path_factory: pytest.TempPathFactory, present: list[bool], lost_before: int
) -> None:
    queue = ConsumeQueue(tmp_path_factory.mktemp("queue"), "T", 0, 400)
    queue.log_file_size = 1
    try:
        for number, there in enumerate(present):
            if there:
                assert queue.put(number, number * 100 + 100, 100, 0)
        queue.correct_min_offset(lost_before * 100 + 100)
        alive = [number for number, there in enumerate(present) if there and number >= lost_before]
        begin = queue.min_offset
        assert [n for n, there in enumerate(present) if there and n >= begin] == alive
    finally:
        queue.close()
