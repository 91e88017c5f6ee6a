"""Broken records are replaced by another member's copy, if that copy is intact."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from small_store import SEGMENT, fill, flip, opened, small_store

from tianzhou.errors import ConnectFailed
from tianzhou.records.codec import decode_record
from tianzhou.store import GetResult, MessageStore
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.log.checked import MOST_BLOCKS, CheckedRecords
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.results import ReadRequest
from tianzhou.store.upkeep import damage
from waiting import until_async

small = partial(small_store, message_index_enable=False)
COUNT = 60


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """Return the original log of a store whose queue 0 has a broken message at offset 7."""
    with opened(small(tmp_path)) as store:
        fill(store, 0, COUNT)
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    place = log.index(b"21 21 21")
    flip(tmp_path / "commitlog" / f"{place - place % SEGMENT:020d}", place % SEGMENT, 1)
    return log


async def read(store: MessageStore, offset: int) -> list[int]:
    """Return the queue offsets of a read."""
    result = store.read(ReadRequest("T", 0, offset, 4))
    result = result if isinstance(result, GetResult) else await result
    return [decode_record(part, check_crc=True).queue_offset for part in result.parts]


async def test_a_read_gets_a_broken_record_from_elsewhere(tmp_path: Path, whole: bytes) -> None:
    asked = []

    async def give(offset: int, size: int) -> bytes:
        asked.append((offset, size))
        await asyncio.sleep(0)
        return whole[offset : offset + size]

    async with small(tmp_path) as store:
        store.damage.repairs = give
        several = await asyncio.gather(*[read(store, 6) for _ in range(3)])
        assert several == [[6]] * 3 or several == [[6, 7, 8, 9]] * 3
        assert await read(store, 7) == [7, 8, 9, 10]
        assert len(asked) == 1
        assert (store.damage.named, store.damage.put_right, store.damage.stretches) == (1, 1, 0)
    assert check_store(StoreScan(tmp_path)).problems == []
    assert not (tmp_path / "damaged.json").exists()


def other_place(whole: bytes, offset: int, size: int) -> bytes:
    return whole[:size]


def still_broken(whole: bytes, offset: int, size: int) -> bytes:
    return whole[offset : offset + size].replace(b"21 21 21", b"21 21 20")


def too_short(whole: bytes, offset: int, size: int) -> bytes:
    return whole[offset : offset + size - 1]


@pytest.mark.parametrize("wrong", [other_place, still_broken, too_short])
async def test_what_is_not_whole_takes_nothings_place(
    tmp_path: Path, whole: bytes, wrong: Callable[[bytes, int, int], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def give(offset: int, size: int) -> bytes:
        return wrong(whole, offset, size)

    before = [path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir())]
    with caplog.at_level(logging.WARNING):
        async with small(tmp_path) as store:
            store.damage.repairs = give
            assert await read(store, 7) == [8, 9, 10, 11]
            assert store.damage.stretches == 1
    assert "what another node has" in caplog.text
    assert [path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir())] == before
    assert (tmp_path / "damaged.json").exists()


async def test_what_nobody_had_is_asked_for_again(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "RETRY_S", 0.01)
    answers = 0

    async def give(offset: int, size: int) -> bytes | None:
        nonlocal answers
        answers += 1
        if answers == 1:
            return None
        if answers == 2:
            raise ConnectFailed("nobody is there")
        return whole[offset : offset + size]

    async with small(tmp_path) as store:
        store.damage.repairs = give
        assert await read(store, 7) == [8, 9, 10, 11]
        await until_async(lambda: store.damage.put_right == 1)
        assert await read(store, 7) == [7, 8, 9, 10]


async def test_a_read_waits_for_a_bounded_time(tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "READER_WAITS_S", 0.01)
    go_on = asyncio.Event()

    async def give(offset: int, size: int) -> bytes:
        await go_on.wait()
        return whole[offset : offset + size]

    async with small(tmp_path) as store:
        store.damage.repairs = give
        assert await read(store, 7) == [8, 9, 10, 11]
        go_on.set()
        await until_async(lambda: store.damage.put_right == 1)
        assert await read(store, 7) == [7, 8, 9, 10]


async def test_damage_that_a_start_found_is_put_right_and_its_units_are_made(tmp_path: Path, whole: bytes) -> None:
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    (tmp_path / "abort").touch()
    (tmp_path / "proved.json").unlink()

    async def give(offset: int, size: int) -> bytes:
        return whole[offset : offset + size]

    async with small(tmp_path) as store:
        assert store.damage.stretches == 1
        assert await read(store, 7) == [8, 9, 10, 11]
        store.damage.repairs = give
        await until_async(lambda: store.damage.stretches == 0)
        assert await read(store, 7) == [7, 8, 9, 10]


def test_a_broken_record_is_not_found_by_its_place(tmp_path: Path, whole: bytes) -> None:
    with opened(small(tmp_path)) as store:
        unit = store.queue_unit("T", 0, 7)
        assert unit is not None
        assert at_once(store.lookups.record_steps(unit[0])) is None


def test_what_came_from_the_disk_is_checked_again() -> None:
    checked = CheckedRecords()
    checked.opened(1 << 30)
    assert 1 << 30 in checked
    assert 4096 not in checked
    checked.add(4096)
    assert 4096 in checked
    assert 4160 not in checked
    checked.fetched(4096, 8192, 1 << 31, 64 << 20)
    assert 4096 not in checked
    assert checked.undisturbed
    checked.fetched(1 << 30, (1 << 30) + 4096, 1 << 31, 64 << 20)
    assert not checked.undisturbed
    assert (1 << 30) + 100 not in checked
    assert (1 << 30) + (64 << 20) in checked


def test_few_blocks_are_remembered() -> None:
    checked = CheckedRecords()
    checked.opened(1 << 50)
    for block in range(MOST_BLOCKS + 1):
        checked.add(block << 20)
    assert 0 not in checked
    assert 1 << 20 in checked
    assert MOST_BLOCKS << 20 in checked
