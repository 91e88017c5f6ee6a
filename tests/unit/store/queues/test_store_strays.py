"""Units of a queue that lead elsewhere: said in the log, made anew, and no message is kept from who reads."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou._hot.records import UNIT
from tianzhou.store import GetStatus, MessageStore, NewRecord, StoreSettings
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.results import GetResult, ReadRequest
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.pulled import decode_messages

COUNT = 120
TAGS = ("red", "blue")
SEGMENT = 400


def settings_for(folder: Path) -> StoreSettings:
    return StoreSettings(
        store_path_root_dir=str(folder), mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=SEGMENT,
        max_hash_slot_num=10, max_index_num=50, message_index_enable=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two queues, whose messages take turns in the log; stopped cleanly."""
    store = MessageStore(settings_for(tmp_path))
    store.open()
    for number in range(2 * COUNT):
        tag = TAGS[number // 2 % 2]
        store.append(
            NewRecord("T", number % 2, b"%d" % (number // 2), f"TAGS\x01{tag}\x02".encode(), tags_code=tags_code(tag))
        )
    store.close_now()
    return tmp_path


def change(folder: Path, number: int, edit: Callable[[int, int, int], tuple[int, int, int]]) -> None:
    """Change a unit of queue 0 on the disk."""
    at = 20 * number
    path = folder / "consumequeue" / "T" / "0" / f"{at - at % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(at % SEGMENT)
        unit = UNIT.unpack(file.read(20))
        file.seek(at % SEGMENT)
        file.write(UNIT.pack(*edit(*unit)))


def size_flipped(physical: int, size: int, tags: int) -> tuple[int, int, int]:
    return physical, size ^ 4, tags


def place_flipped(physical: int, size: int, tags: int) -> tuple[int, int, int]:
    return physical ^ 16, size, tags


def far_away(physical: int, size: int, tags: int) -> tuple[int, int, int]:
    return physical | 1 << 40, size, tags


def negative(physical: int, size: int, tags: int) -> tuple[int, int, int]:
    return physical - (1 << 63), size, tags


def huge(physical: int, size: int, tags: int) -> tuple[int, int, int]:
    return physical, size | 1 << 29, tags


KINDS = (size_flipped, place_flipped, far_away, negative, huge)


def read_all(store: MessageStore, codes: frozenset[int] | None = None) -> list[int]:
    """The messages of queue 0 as a consumer is given them, pull by pull."""
    seen: list[int] = []
    offset = 0
    for _ in range(10 * COUNT):
        result = store.get("T", 0, offset, 32, codes)
        offset = result.next_offset
        if result.status is GetStatus.FOUND:
            seen += [int(message.body) for message in decode_messages(result.records, "b")]
        elif result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return seen
    raise AssertionError("the end of the queue was not reached")


@pytest.mark.parametrize("edit", KINDS)
@pytest.mark.parametrize("numbers", [(0,), (7,), (19, 20, 21), (COUNT - 2,), tuple(range(3, 90)), (5, 40, 41, 77)])
def test_messages_whose_units_lead_elsewhere_are_served_and_the_units_mended(
    folder: Path,
    edit: Callable[[int, int, int], tuple[int, int, int]],
    numbers: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in numbers:
        change(folder, number, edit)
    store = MessageStore(settings_for(folder))
    with caplog.at_level(logging.ERROR):
        store.open()
        assert read_all(store) == list(range(COUNT))
    if edit is not negative:  # that one looks like a torn end, and may have been mended by the start
        assert f"queue T/0: unit {numbers[0]} leads to" in caplog.text
        assert caplog.text.count("leads to") == 1
    store.close_now()
    assert StoreScan(folder).check().problems == []
    again = MessageStore(settings_for(folder))
    again.open()
    assert read_all(again) == list(range(COUNT))
    again.close_now()


@pytest.mark.parametrize("edit", [size_flipped, place_flipped, far_away, huge])
def test_a_filter_does_not_hide_stray_units(
    folder: Path, edit: Callable[[int, int, int], tuple[int, int, int]]
) -> None:
    for number in (6, 9, 50):
        change(folder, number, edit)
    store = MessageStore(settings_for(folder))
    store.open()
    codes = frozenset((tags_code("red"),))
    assert read_all(store, codes) == list(range(0, COUNT, 2))
    store.close_now()


def test_a_running_store_mends_beside_the_loop_and_keeps_other_queues(folder: Path) -> None:
    for number in (0, 30, 31, 90):
        change(folder, number, size_flipped)

    async def run() -> None:
        async with MessageStore(settings_for(folder)) as store:

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

    asyncio.run(run())
    assert StoreScan(folder).check().problems == []


def test_a_message_that_is_not_in_the_log_any_more_is_passed_over_and_its_place_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scan = StoreScan(folder)
    place = next(unit.physical_offset for unit in scan.units("T", 0) if unit.queue_offset == 50)
    segment = folder / "commitlog" / f"{place - place % (1 << 14):020d}"
    with segment.open("r+b") as file:
        file.seek(place % (1 << 14) + 4)
        file.write(b"gone")
    store = MessageStore(settings_for(folder))
    store.open()
    assert read_all(store) == [number for number in range(COUNT) if number != 50]
    assert "1 of offsets 50 to 50 have no record in the log any more" in caplog.text
    caplog.clear()
    assert len(read_all(store)) == COUNT - 1
    assert caplog.text == ""
    store.close_now()


def test_whatever_bits_flip_no_message_is_lost(folder: Path) -> None:
    chance = random.Random(16)
    for _ in range(60):
        number, bit = chance.randrange(COUNT), chance.randrange(96)

        def flip(physical: int, size: int, tags: int, bit: int = bit) -> tuple[int, int, int]:
            whole = int.from_bytes(UNIT.pack(physical, size, tags), "big") ^ 1 << (159 - bit)
            return UNIT.unpack(whole.to_bytes(20, "big"))

        change(folder, number, flip)
    store = MessageStore(settings_for(folder))
    store.open()
    assert read_all(store) == list(range(COUNT))
    store.close_now()


def test_units_of_a_batch_queue_that_lead_elsewhere_are_said_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def opened() -> MessageStore:
        store = MessageStore(settings_for(tmp_path))
        store.queue_kinds.batch_topics.add("T")
        store.open()
        return store

    store = opened()
    for number in range(30):
        store.append(NewRecord("T", 0, b"%d" % number, b""))
    store.close_now()
    path = tmp_path / "batchconsumequeue" / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for number, field, layout in ((7, 28, ">q"), (12, 28, ">q"), (20, 8, ">i")):
        at = 46 * number + field
        value = struct.unpack_from(layout, data, at)[0]
        struct.pack_into(layout, data, at, {7: value | 1 << 40, 12: 3, 20: value ^ 4}[number])
    path.write_bytes(data)
    store = opened()
    with caplog.at_level(logging.ERROR):
        assert read_all(store) == [number for number in range(30) if number not in {7, 12, 20}]
    assert caplog.text.count("queue T/0: the unit of offset") == 1
    assert "tianzhou store repair" in caplog.text
    store.close_now()
