"""Recovery decisions, over bytes in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.records.codec import Record, encode_blank, encode_record
from tianzhou.records.layout import MAGIC_V1, MAGIC_V2
from tianzhou.records.walk import Finding, LogItem, read_item, single_items, walk
from tianzhou.store.log.recovery import (
    SegmentHead,
    SizeVerdict,
    judge_sizes,
    rebuild_start,
    start_after_crash,
    start_after_stop,
)

SIZE = 2000


class MemorySegment:
    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray(SIZE)

    @property
    def view(self) -> memoryview:
        return memoryview(self.data)

    def find(self, needle: bytes, position: int) -> int:
        return self.data.find(needle, position)


def record(offset: int, number: int, when: int = 1000, body: bytes = b"x" * 100) -> bytes:
    host = b"\x7f\0\0\1"
    return encode_record(
        Record("T", 0, number, offset, 0, 0, when, host, 1, when + number, host, 2, 0, 0, body, b"A\x01b\x02")
    )


def build_log(segments: int, per_segment: int) -> tuple[list[MemorySegment], list[int]]:
    """Return segments with records and blanks, and the positions of the records; the last segment has no blank."""
    parts = [MemorySegment(1000 * SIZE + SIZE * n) for n in range(segments)]
    places: list[int] = []
    for part in parts:
        position = 0
        for _ in range(per_segment):
            data = record(part.start + position, len(places))
            part.data[position : position + len(data)] = data
            places.append(part.start + position)
            position += len(data)
        if part is not parts[-1]:
            part.data[position : position + 8] = encode_blank(SIZE - position)
    return parts, places


def survey(parts: list[Any], index: int, position: int = 0, **how: Any) -> Iterator[LogItem]:
    return single_items(walk(parts, index, position, **how))


def found(items: list[LogItem]) -> list[int]:
    return [item.offset for item in items if item.finding is Finding.RECORD]


def damaged(items: list[LogItem]) -> list[tuple[int, int]]:
    return [(item.offset, item.offset + item.size) for item in items if item.finding is Finding.DAMAGED]


def test_all_records_of_a_sound_log_are_found() -> None:
    parts, places = build_log(3, 5)
    assert found(list(survey(parts, 0))) == places
    assert found(list(survey(parts, 1))) == places[5:]
    assert found(list(survey(parts, 2, places[11] - parts[2].start))) == places[11:]


def test_a_flipped_bit_costs_one_record_and_no_other() -> None:
    parts, places = build_log(3, 5)
    for number, place in enumerate(places[:-1]):
        part = parts[number // 5]
        at = place - part.start + 95
        part.data[at] ^= 4
        items = list(survey(parts, 0))
        assert found(items) == places[:number] + places[number + 1 :]
        assert [start for start, _ in damaged(items)] == [place]
        part.data[at] ^= 4


def test_a_hole_is_passed_over_when_records_follow() -> None:
    parts, places = build_log(3, 5)
    parts[1].data[:] = bytes(SIZE)
    items = list(survey(parts, 0))
    assert found(items) == places[:5] + places[10:]
    assert damaged(items) == [(parts[1].start, parts[2].start)]


@pytest.mark.parametrize("cut", [1, 4, 8, 50, 90, 100, 150])
def test_a_torn_tail_is_the_end(cut: int) -> None:
    parts, places = build_log(2, 5)
    start = places[-1] - parts[1].start
    parts[1].data[start + cut :] = bytes(SIZE - start - cut)
    items = list(survey(parts, 0))
    assert found(items) == places[:-1]
    assert damaged(items) == []


def test_a_last_record_without_all_its_properties_is_no_record() -> None:
    parts, places = build_log(1, 5)
    size = len(record(places[-1], 4))
    end = places[-1] - parts[0].start + size
    for missing in (1, 2, 3):
        parts[0].data[end - missing : end] = bytes(missing)
        assert found(list(survey(parts, 0))) == places[:-1]
    assert found(list(survey(parts, 0, trusted_end=parts[0].start + end))) == places
    middle = places[2] - parts[0].start + size
    parts[0].data[middle - 1] = 0
    assert found(list(survey(parts, 0))) == places[:-1]  # a property may end with a zero byte


def test_left_overs_of_an_earlier_truncation_are_not_taken_up() -> None:
    """After the end there are older records that a truncation did not erase (store.md §22 number 16)."""
    parts, places = build_log(1, 8)
    newer = record(places[3], 3, when=90_000, body=b"y" * 60)
    at = places[3] - parts[0].start
    parts[0].data[at : at + len(newer)] = newer
    items = list(survey(parts, 0))
    assert found(items) == places[:4]
    assert damaged(items) == []


def test_after_a_clean_stop_nothing_is_searched_behind_the_known_end() -> None:
    parts, places = build_log(1, 8)
    end = places[4]
    parts[0].data[end - parts[0].start + 95] ^= 1
    assert found(list(survey(parts, 0, trusted_end=end))) == places[:4]
    assert found(list(survey(parts, 0, trusted_end=places[-1]))) == places[:4] + places[5:]


@given(st.binary(min_size=0, max_size=400), st.integers(0, 399))
def test_no_bytes_make_reading_fail(data: bytes, position: int) -> None:
    view = memoryview(data)
    if position <= len(data):
        assert read_item(view, position, 0).finding in Finding


@given(st.integers(0, 120), st.integers(0, 255))
def test_no_change_to_a_head_makes_reading_fail(at: int, value: int) -> None:
    part = MemorySegment(0)
    data = bytearray(record(0, 0))
    data[at] = value
    part.data[: len(data)] = data
    list(survey([part], 0))


def test_the_start_after_a_crash_is_the_last_segment_begun_before_the_checkpoint() -> None:
    heads = [
        SegmentHead(0, MAGIC_V1, 1000),
        SegmentHead(100, MAGIC_V2, 2000),
        SegmentHead(200, MAGIC_V1, 3000),
        SegmentHead(300, 0, 0),
    ]
    assert start_after_crash(reversed(heads), 2500) == 100
    assert start_after_crash(reversed(heads), 3000) == 200
    assert start_after_crash(reversed(heads), 500) == 0
    assert start_after_crash([], 500) == 0


def test_the_start_after_a_crash_is_in_front_of_where_the_clock_was_set_back() -> None:
    heads = [
        SegmentHead(0, MAGIC_V1, 1000),
        SegmentHead(100, MAGIC_V1, 9000),
        SegmentHead(200, MAGIC_V1, 2000),
        SegmentHead(300, MAGIC_V1, 3000),
    ]
    # The checkpoint does not reveal which of the two times it means.
    assert start_after_crash(reversed(heads), 2500) == 0
    assert start_after_crash(reversed(heads), 9500) == 100
    assert start_after_crash(reversed(heads), 500) == 0


def test_the_start_after_a_stop_is_where_the_queues_end() -> None:
    assert start_after_stop([0, 100, 200], 150) == 1
    assert start_after_stop([0, 100, 200], 200) == 2
    assert start_after_stop([100, 200], -1) == 0


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ([], SizeVerdict(None, ())),
        ([(0, 1000), (1000, 1000)], SizeVerdict(None, ())),
        ([(0, 512), (512, 512)], SizeVerdict(512, ())),
        ([(0, 4000)], SizeVerdict(4000, ())),
        ([(0, 4000), (4000, 4000)], SizeVerdict(4000, ())),
        ([(0, 512)], SizeVerdict(None, (0,))),
        ([(0, 1000), (1000, 77)], SizeVerdict(None, (1,))),
        ([(0, 1000), (1000, 0), (2000, 1000)], SizeVerdict(None, (1,))),
    ],
)
def test_sizes_tell_a_wrong_setting_from_a_cut_file(files: list[tuple[int, int]], verdict: SizeVerdict) -> None:
    assert judge_sizes(files, 1000) == verdict


def test_a_lone_file_of_round_length_was_written_with_that_setting() -> None:
    assert judge_sizes([(0, 131_072)], 1 << 30) == SizeVerdict(131_072, ())


def test_queues_that_lost_units_are_rebuilt_from_their_last_one() -> None:
    recorded = {("A", 0): 10, ("A", 1): 5, ("B", 0): 7}
    on_disk = {("A", 0): (10, 900), ("A", 1): (3, 400)}
    assert rebuild_start(recorded, on_disk) == {("A", 1): 400, ("B", 0): 0}
