"""Units of a queue with wrong positions: logged and rebuilt, and readers get every message."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_store import flip, opened, overwrite, small_store

from property_examples import costly
from store_reads import read_now
from tianzhou._hot.records import UNIT
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.results import GetResult, ReadRequest
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.pulled import decode_messages

COUNT = 120
TAGS = ("red", "blue")
SEGMENT = 400
small = partial(small_store, message_index_enable=False)


Edit = Callable[[int, int, int], tuple[int, int, int]]
"""A function from the fields of a unit to changed ones."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a store of two queues, whose messages alternate in the log; stopped cleanly."""
    with opened(small(tmp_path)) as store:
        for number in range(2 * COUNT):
            tag = TAGS[number // 2 % 2]
            store.append(
                NewRecord(
                    "T", number % 2, b"%d" % (number // 2), f"TAGS\x01{tag}\x02".encode(), tags_code=tags_code(tag)
                )
            )
    return tmp_path


def change(folder: Path, number: int, edit: Edit) -> None:
    """Change a unit of queue 0 on the disk."""
    at = 20 * number
    path = folder / "consumequeue" / "T" / "0" / f"{at - at % SEGMENT:020d}"
    unit = UNIT.unpack_from(path.read_bytes(), at % SEGMENT)
    overwrite(path, at % SEGMENT, UNIT.pack(*edit(*unit)))


EDITS: dict[str, Edit] = {
    "size flipped": lambda physical, size, tags: (physical, size ^ 4, tags),
    "place flipped": lambda physical, size, tags: (physical ^ 16, size, tags),
    "far away": lambda physical, size, tags: (physical | 1 << 40, size, tags),
    "huge": lambda physical, size, tags: (physical, size | 1 << 29, tags),
    "negative": lambda physical, size, tags: (physical - (1 << 63), size, tags),
}


def read_all(store: MessageStore, codes: frozenset[int] | None = None) -> list[int]:
    """Return the messages of queue 0 that a consumer gets, pull by pull."""
    seen: list[int] = []
    offset = 0
    for _ in range(10 * COUNT):
        result = read_now(store, "T", 0, offset, 32, codes)
        offset = result.next_offset
        if result.status is GetStatus.FOUND:
            seen += [int(message.body) for message in decode_messages(result.records, "b")]
        elif result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return seen
    raise AssertionError("the end of the queue was not reached")


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("numbers", [(0,), (7,), (19, 20, 21), (COUNT - 2,), tuple(range(3, 90)), (5, 40, 41, 77)])
def test_messages_whose_units_lead_elsewhere_are_served_and_the_units_mended(
    folder: Path,
    edit: str,
    numbers: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in numbers:
        change(folder, number, EDITS[edit])
    with caplog.at_level(logging.ERROR), opened(small(folder)) as store:
        assert read_all(store) == list(range(COUNT))
    if edit != "negative":  # looks like a torn end, so the start may have repaired it
        assert f"queue T/0: unit {numbers[0]} leads to" in caplog.text
        assert caplog.text.count("leads to") == 1
    assert check_store(StoreScan(folder)).problems == []
    with opened(small(folder)) as again:
        assert read_all(again) == list(range(COUNT))


@costly(0.2, fixtures=True)
@example(crashed=False, units=[(0, 32), (0, 71)])
@example(crashed=False, units=[(COUNT - 2, 0), (COUNT - 1, 7)])
@given(
    crashed=st.booleans(),
    units=st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 12 * 8 - 1)), min_size=1, max_size=6),
)
def test_several_units_may_be_broken(folder: Path, crashed: bool, units: list[tuple[int, int]]) -> None:
    root = folder.with_name("copy")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folder, root)
    for number, bit in units:
        at = 20 * number
        path = root / "consumequeue" / "T" / "0" / f"{at - at % SEGMENT:020d}"
        flip(path, at % SEGMENT + bit // 8, 1 << bit % 8)
    if crashed:
        (root / "abort").write_text("1")
    with opened(small(root)) as store:
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, COUNT)
        assert read_all(store) == list(range(COUNT))


@pytest.mark.parametrize("edit", list(EDITS)[:-1])
def test_a_filter_does_not_hide_stray_units(folder: Path, edit: str) -> None:
    for number in (6, 9, 50):
        change(folder, number, EDITS[edit])
    with opened(small(folder)) as store:
        codes = frozenset((tags_code("red"),))
        assert read_all(store, codes) == list(range(0, COUNT, 2))


async def test_a_running_store_mends_beside_the_loop_and_keeps_other_queues(folder: Path) -> None:
    for number in (0, 30, 31, 90):
        change(folder, number, EDITS["size flipped"])
    async with small(folder) as store:

        async def pull(offset: int) -> GetResult:
            reading = store.read(ReadRequest("T", 0, offset, 32))
            return reading if isinstance(reading, GetResult) else await reading

        seen: list[int] = []
        offset = 0
        while offset < COUNT:
            several = await asyncio.gather(*[pull(offset) for _ in range(3)])
            assert len({bytes(result.records) for result in several}) == 1
            seen += [int(message.body) for message in decode_messages(several[0].records, "b")]
            offset = several[0].next_offset
        assert seen == list(range(COUNT))
    assert check_store(StoreScan(folder)).problems == []


def test_a_message_that_is_not_in_the_log_any_more_is_passed_over_and_its_place_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scan = StoreScan(folder)
    place = next(unit.physical_offset for unit in scan.units("T", 0) if unit.queue_offset == 50)
    segment = folder / "commitlog" / f"{place - place % (1 << 14):020d}"
    overwrite(segment, place % (1 << 14) + 4, b"gone")
    with opened(small(folder)) as store:
        assert read_all(store) == [number for number in range(COUNT) if number != 50]
        assert "1 of offsets 50 to 50 have no record in the log any more" in caplog.text
        caplog.clear()
        assert len(read_all(store)) == COUNT - 1
        assert caplog.text == ""


def test_whatever_bits_flip_no_message_is_lost(folder: Path) -> None:
    chance = random.Random(16)
    for _ in range(60):
        number, bit = chance.randrange(COUNT), chance.randrange(96)

        def flip(physical: int, size: int, tags: int, bit: int = bit) -> tuple[int, int, int]:
            whole = int.from_bytes(UNIT.pack(physical, size, tags), "big") ^ 1 << (159 - bit)
            return UNIT.unpack(whole.to_bytes(20, "big"))

        change(folder, number, flip)
    with opened(small(folder)) as store:
        assert read_all(store) == list(range(COUNT))


def test_units_of_a_batch_queue_that_lead_elsewhere_are_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(small(tmp_path, batch_topics="T")) as store:
        for number in range(30):
            store.append(NewRecord("T", 0, b"%d" % number, b""))
    path = tmp_path / "batchconsumequeue" / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for number, field, layout in ((7, 28, ">q"), (12, 28, ">q"), (20, 8, ">i")):
        at = 46 * number + field
        value = struct.unpack_from(layout, data, at)[0]
        struct.pack_into(layout, data, at, {7: value | 1 << 40, 12: 3, 20: value ^ 4}[number])
    path.write_bytes(data)
    with opened(small(tmp_path, batch_topics="T")) as store:
        with caplog.at_level(logging.ERROR):
            assert read_all(store) == list(range(30))
        assert caplog.text.count("of the commit log, where no such record is") == 1
    assert check_store(StoreScan(tmp_path)).problems == []


@pytest.mark.parametrize("says", [3, 27])
def test_a_record_of_a_batch_queue_that_says_another_offset_hides_no_other(tmp_path: Path, says: int) -> None:
    with opened(small(tmp_path, batch_topics="T")) as store:
        for number in range(30):
            store.append(NewRecord("T", 0, b"body %d" % number, b""))
        place = store.queue_unit("T", 0, 11)[0]
    (segment,) = (tmp_path / "commitlog").iterdir()
    overwrite(segment, place + 20, says.to_bytes(8, "big"))
    for _ in range(2):
        with opened(small(tmp_path, batch_topics="T")) as store:
            found = [read_now(store, "T", 0, offset, 1) for offset in range(30)]
            given = [decode_record(part).body for result in found for part in result.parts]
            assert set(given) == {b"body %d" % number for number in range(30) if number != 11}
            assert len(found[10].parts) == len(found[12].parts) == 1


def test_a_record_of_a_batch_queue_whose_count_is_no_number_any_more_is_passed_over(tmp_path: Path) -> None:
    with opened(small(tmp_path, batch_topics="T")) as store:
        store.append(NewRecord("T", 0, b"first", b""))
        store.append(
            NewRecord("T", 0, encode_batch((0, b"x", b"") for _ in range(3)), b"INNER_NUM\x013\x02", sys_flag=0xC0)
        )
        store.append(NewRecord("T", 0, b"last", b""))
    (segment,) = (tmp_path / "commitlog").iterdir()
    overwrite(segment, segment.read_bytes().index(b"INNER_NUM\x013") + 10, b"s")
    with opened(small(tmp_path, batch_topics="T")) as store:
        assert decode_record(read_now(store, "T", 0, 0, 32).parts[0]).body == b"first"
        assert [decode_record(part).body for part in read_now(store, "T", 0, 1, 32).parts] == [b"last"]
