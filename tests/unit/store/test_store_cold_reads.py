"""Messages that are not in memory are read without blocking the loop (store.md §14.1)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from small_store import opened, small_store

from store_reads import read_now
from tianzhou.store import GetResult, GetStatus, NewRecord
from tianzhou.store.files import pages
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.files.pages import HeldMap
from tianzhou.store.files.segments import Segment
from tianzhou.store.results import ReadRequest
from waiting import until_async

BODY = b"b" * 2000
small = partial(small_store, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """Return a folder with 1500 messages, none of them in memory."""
    with opened(small(tmp_path)) as store:
        for number in range(1500):
            store.append(NewRecord("T", 0, BODY, b"", tags_code=number % 2))
    forget(tmp_path)
    return tmp_path


def forget(folder: Path) -> None:
    for path in folder.rglob("0*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def test_residency_is_known_and_fetching_changes_it(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "segment", 0, 1 << 20)
    segment.reserve_range(0, 1 << 20)
    assert segment.resident(100, 1 << 20)
    segment.sync(0, 1 << 20)
    segment.close()
    fd = os.open(tmp_path / "segment", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if segment.resident(0, 1 << 20):
        pytest.skip("this file system keeps what it was asked to forget")
    segment.fetch(0, 1 << 20)
    assert segment.resident(0, 1 << 20)


async def test_cold_messages_are_fetched_beside_the_loop(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    go_on = threading.Event()
    original = HeldMap.fetch

    def held_up(self: HeldMap, start: int, end: int) -> None:
        fetched.append((self.path.parent.name, start, end))
        assert go_on.wait(60)
        original(self, start, end)

    async with small(cold) as store:
        reading = store.read(ReadRequest("T", 0, 300, 32))
        if isinstance(reading, GetResult):
            pytest.skip("this file system keeps what it was asked to forget")
        monkeypatch.setattr(HeldMap, "fetch", held_up)
        task = asyncio.ensure_future(reading)
        await until_async(lambda: fetched, "the pages are being fetched")
        # The fetch does not end before the loop has stored these messages.
        for _ in range(100):
            assert store.append(NewRecord("Hot", 0, BODY, b"")).physical_offset > 0
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        await task
        found = task.result()
        assert (found.status, found.count, found.next_offset) == (GetStatus.FOUND, 32, 332)
        assert found.parts == read_now(store, "T", 0, 300, 32).parts
        # They are in memory now, and the following messages as well.
        assert isinstance(store.read(ReadRequest("T", 0, 332, 32)), GetResult)


async def test_what_was_just_stored_is_read_at_once(tmp_path: Path) -> None:
    async with small(tmp_path) as store:
        for _ in range(100):
            store.append(NewRecord("T", 0, BODY, b""))
        await asyncio.sleep(0.05)
        result = store.read(ReadRequest("T", 0, 10, 32))
        assert isinstance(result, GetResult)
        assert result.count == 32
        for offset, status in (
            (100, GetStatus.OFFSET_OVERFLOW_ONE),
            (500, GetStatus.OFFSET_OVERFLOW_BADLY),
            (-1, GetStatus.OFFSET_TOO_SMALL),
        ):
            result = store.read(ReadRequest("T", 0, offset, 32))
            assert isinstance(result, GetResult)
            assert result.status is status
        assert isinstance(store.read(ReadRequest("Unknown", 3, 0, 32)), GetResult)


async def test_a_cold_read_keeps_to_the_limits_for_what_is_on_disk(cold: Path) -> None:
    # No memory counts as near: all messages are "on disk" by RocketMQ's rule.
    async with small(cold, access_message_in_memory_max_ratio=0) as store:
        result = store.read(ReadRequest("T", 0, 0, 32))
        result = result if isinstance(result, GetResult) else await result
        assert result.count == 8
        assert result.suggest_slave
        tagged = store.read(ReadRequest("T", 0, 700, 32, frozenset({1})))
        tagged = tagged if isinstance(tagged, GetResult) else await tagged
        assert tagged.count == 8
        assert tagged.next_offset == 716


async def test_a_segment_that_expires_during_a_cold_read_is_an_ordinary_answer(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small(cold, delete_when="") as store:
        reading = store.read(ReadRequest("T", 0, 0, 32))
        if isinstance(reading, GetResult):
            pytest.skip("this file system keeps what it was asked to forget")
        old = time.time() - 100 * 3600
        for path in sorted((cold / "commitlog").iterdir())[:-1]:
            os.utime(path, (old, old))
        store.delete_expired()
        await until_async(lambda: store.min_offset("T", 0) > 0)
        assert (await reading).status is GetStatus.OFFSET_TOO_SMALL


async def test_a_search_by_time_finds_the_same_beside_the_loop(cold: Path) -> None:
    async with small(cold) as store:
        times = [at_once(store.lookups.time_steps("T", 0, offset)) for offset in range(0, 1500, 100)]
    forget(cold)
    async with small(cold) as store:
        for timestamp in (0, *times, times[-1] + 10_000):
            for upper in (False, True):
                found = await store.find(store.lookups.offset_steps("T", 0, timestamp, upper=upper))
                assert found == at_once(store.lookups.offset_steps("T", 0, timestamp, upper=upper))


async def test_a_kernel_that_cannot_be_asked_counts_everything_as_there(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_libc", None)

    with opened(small(cold)) as store:
        result = store.read(ReadRequest("T", 0, 0, 32))
        assert isinstance(result, GetResult)
        assert result.count == 32
