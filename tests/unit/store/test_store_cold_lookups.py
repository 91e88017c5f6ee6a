"""Look-ups of data not in memory wait outside the loop, whatever happens to the files (store.md §8.6, §14)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_store import opened as open_now
from small_store import small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.errors import StoreError, StoreUnreadable
from tianzhou.records.codec import decode_record
from tianzhou.store import GetResult, GetStatus, MessageStore, NewRecord, PutStatus
from tianzhou.store.files.lookup_steps import TURN
from tianzhou.store.index.indexfile import IndexFile
from tianzhou.store.results import ReadRequest
from tianzhou.testing.cold_disk import ColdDisk
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.properties import encode_properties
from waiting import until_async

COUNT = 1500
PAGE = 4096
BODY = b"b" * 900
SEGMENT = 256 << 10


class Clock:
    """A clock that advances by a minute with every message."""

    now = 1_700_000_000_000

    def now_ms(self) -> int:
        self.now += 60_000
        return self.now

    def monotonic(self) -> float:
        return time.monotonic()


def small(folder: Path, **changes: Any) -> MessageStore:
    sizes = {
        "mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": 8_000, "max_hash_slot_num": 8000,
        "mapper_file_size_batch_consume_queue": 9_200, "max_index_num": 1000, "flush_interval_commit_log": 10,
        "redelete_hanged_file_interval": 1, "delete_file_batch_max": 100, "delete_commit_log_files_interval": 0,
    }  # fmt: skip
    return small_store(folder, Clock(), batch_topics="B", **{**sizes, "delete_when": "", **changes})


def put(store: MessageStore, topic: str, number: int, key: str) -> None:
    properties = encode_properties({"KEYS": key, "UNIQ_KEY": f"U{topic}{number}"})
    result = store.append(NewRecord(topic, 0, BODY, properties, keys=key, uniq_key=f"U{topic}{number}"))
    assert result.status is PutStatus.PUT_OK, result.remark


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an ordinary topic U and a topic B of type BatchCQ."""
    folder = tmp_path_factory.mktemp("written")
    with open_now(small(folder)) as store:
        for number in range(COUNT):
            put(store, "U", number, f"K{number % 500}")
            if number % 3:
                put(store, "B", number, f"B{number}")
            else:
                body = encode_batch((0, b"x" * 300, b"") for _ in range(3))
                assert store.append(NewRecord("B", 0, body, b"INNER_NUM\x013\x02", sys_flag=0xC0)).queue_offset >= 0
    return folder


@pytest.fixture
def disk() -> Iterator[ColdDisk]:
    with ColdDisk().installed() as disk:
        yield disk


class Opened:
    """The store of the fixture `written`, opened and queried once with all data in memory."""

    def __init__(self, store: MessageStore, folder: Path, disk: ColdDisk) -> None:
        self.store = store
        self.folder = folder
        self.disk = disk

    def take(self) -> None:
        """Evict all pages from memory except those being written."""
        for kind, files in (("commitlog", "*"), ("consumequeue/U/0", "*"), ("batchconsumequeue/B/0", "*")):
            *full, last = sorted((self.folder / kind).glob(files))
            assert sum(self.disk.take(path) for path in full) > 1
            if kind == "commitlog":
                self.disk.take(last, 0, self.store.end_offset % SEGMENT - PAGE)
        assert sum(self.disk.take(path, PAGE) for path in (self.folder / "index").iterdir()) > 4


Opening = Callable[[], AbstractAsyncContextManager[Opened]]


@pytest.fixture
def opened(written: Path, tmp_path: Path, disk: ColdDisk) -> Opening:
    @asynccontextmanager
    async def copy() -> AsyncIterator[Opened]:
        folder = tmp_path / "store"
        os.system(f"cp -r --sparse=always {written} {folder}")
        async with small(folder) as store:
            try:
                yield Opened(store, folder, disk)
            finally:
                disk.open()

    return copy


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(limited())


pytestmark = pytest.mark.runner.with_args(run)


async def read(store: MessageStore, topic: str, offset: int, tags: frozenset[int] | None = None) -> GetResult:
    found = store.read(ReadRequest(topic, 0, offset, 32, tags))
    return found if isinstance(found, GetResult) else await found


def bodies(parts: list[memoryview]) -> list[tuple[str, int]]:
    records = [decode_record(part) for part in parts]
    return [(record.topic, record.queue_offset) for record in records]


LookUp = Callable[[MessageStore], Awaitable[Any]]
LOOKUPS: dict[str, LookUp] = {
    "a key of several messages": lambda s: _bodies(s.find(s.lookups.key_steps("U", "K77", 64))),
    "a unique key": lambda s: _bodies(s.find(s.lookups.key_steps("U", "UU77", 32))),
    "a key of a BatchCQ topic": lambda s: _bodies(s.find(s.lookups.key_steps("B", "B100", 32))),
    "a key that nobody has": lambda s: _bodies(s.find(s.lookups.key_steps("U", "nobody's", 32))),
    "a key in a time range": lambda s: _bodies(
        s.find(s.lookups.key_steps("U", "K77", 64, 1_700_000_000_000, 1_700_060_000_000))
    ),
    "a message by its place": lambda s: _record(s),
    "a time": lambda s: s.find(s.lookups.offset_steps("U", 0, 1_700_050_000_000)),
    "a time, upper": lambda s: s.find(s.lookups.offset_steps("U", 0, 1_700_050_000_000, upper=True)),
    "a time in a BatchCQ queue": lambda s: s.find(s.lookups.offset_steps("B", 0, 1_700_050_000_000)),
    "a time in a BatchCQ queue, upper": lambda s: s.find(s.lookups.offset_steps("B", 0, 1_700_050_000_000, upper=True)),
    "the time of a message": lambda s: s.find(s.lookups.time_steps("U", 0, 300)),
    "the time of a message of a batch": lambda s: s.find(s.lookups.time_steps("B", 0, 301)),
    "the time of the first message": lambda s: s.find(s.lookups.first_time_steps("U", 0)),
    "messages": lambda s: _read(s, "U", 300),
    "messages of a BatchCQ queue": lambda s: _read(s, "B", 301),
    "messages of a BatchCQ queue with a tag": lambda s: _read(s, "B", 301, frozenset({0})),
}


async def _bodies(found: Awaitable[Any]) -> Any:
    return bodies((await found).parts)


async def _record(store: MessageStore) -> Any:
    found = await store.find(store.lookups.record_steps(PLACES[0]))
    return None if found is None else bodies([found])


async def _read(store: MessageStore, topic: str, offset: int, tags: frozenset[int] | None = None) -> Any:
    found = await read(store, topic, offset, tags)
    return found.status, found.next_offset, found.count, bodies(found.parts)


@pytest.fixture(params=LOOKUPS)
def look_up(request: pytest.FixtureRequest) -> LookUp:
    return LOOKUPS[request.param]


PLACES: list[int] = []
"""Positions of records whose end is on another page than their beginning."""


@pytest.fixture(autouse=True, scope="module")
def places(written: Path) -> None:
    with open_now(small(written)) as store:
        found = [decode_record(read_now(store, "U", 0, number, 1).parts[0]) for number in range(40, 200)]
    PLACES[:] = [one.physical_offset for one in found if one.physical_offset % PAGE > PAGE - 800]
    assert PLACES


async def test_the_loop_goes_on_while_a_look_up_waits_for_the_disk(
    look_up: LookUp, opened: Opening, disk: ColdDisk
) -> None:
    async with opened() as one:
        store = one.store
        expected = await look_up(store)
        assert disk.fetches == []
        one.take()
        disk.shut()
        task = asyncio.ensure_future(look_up(store))
        served = 0
        while not task.done():
            await until_async(lambda: bool(disk.waiting) or task.done())
            # Other tasks run meanwhile, as often as it waits.
            assert store.append(NewRecord("Hot", 0, BODY, b"")).status is PutStatus.PUT_OK
            await asyncio.sleep(0)
            assert read_now(store, "Hot", 0, served, 1).status is GetStatus.FOUND
            served += 1
            if not task.done():
                disk.let_one_pass()
                await until_async(lambda: disk.passed >= served)  # noqa: B023
        assert task.result() == expected
        assert disk.fetches
        assert served


async def test_what_is_in_memory_is_found_without_waiting_at_all(look_up: LookUp, opened: Opening) -> None:
    async with opened() as one:
        steps = look_up(one.store).__await__()
        with pytest.raises(StopIteration):
            next(steps)


async def test_the_tail_is_found_at_once_while_all_else_is_cold(opened: Opening, disk: ColdDisk) -> None:
    async with opened() as one:
        store = one.store
        one.take()
        put(store, "U", COUNT, "new")
        put(store, "B", COUNT, "new")
        await asyncio.sleep(0)
        assert store.max_offset("U", 0) == COUNT + 1
        assert isinstance(store.read(ReadRequest("U", 0, COUNT, 32)), GetResult)
        end = store.max_offset("B", 0)
        newest = store.read(ReadRequest("B", 0, end - 1, 32))
        assert isinstance(newest, GetResult)
        assert bodies(newest.parts) == [("B", end - 1)]
        assert disk.fetches == []


def expire_all_but_the_last(folder: Path) -> None:
    for path in sorted((folder / "commitlog").iterdir())[:-1]:
        os.utime(path, (0, 0))


async def test_files_may_expire_while_they_are_being_read(look_up: LookUp, opened: Opening, disk: ColdDisk) -> None:
    async with opened() as one:
        store = one.store
        expected = await look_up(store)
        one.take()
        disk.shut()
        tasks = [asyncio.ensure_future(look_up(store)) for _ in range(3)]
        await until_async(lambda: bool(disk.waiting))
        expire_all_but_the_last(one.folder)
        store.delete_expired()
        await until_async(lambda: store.begin_offset == store.end_offset // SEGMENT * SEGMENT)
        # The following correction of the queues reads cold units itself.
        disk.open()
        for found in await asyncio.gather(*tasks):
            if not isinstance(found, int):
                # The result is complete, partial, or an ordinary "not there", never anything else.
                assert found is None or found == expected or len(found) <= len(expected) or found[2] == 0

        async def begins_with_the_log(topic: str) -> bool:
            # First whole files of units are deleted, and then the units before the log's begin.
            oldest = store.min_offset(topic, 0)
            return oldest > 0 and await store.find(store.lookups.time_steps(topic, 0, oldest)) > 0

        # The queues begin at the log's begin, and no reader holds a deleted file any more.
        for topic in "UB":
            await until_async(partial(begins_with_the_log, topic), f"queue {topic} begins with the log")
            oldest = store.min_offset(topic, 0)
            assert await store.find(store.lookups.time_steps(topic, 0, oldest - 1)) == -1
        store.delete_expired()
        await until_async(lambda: not StoreProbe(store).held_segments)


async def test_a_topic_may_be_deleted_while_it_is_being_read(look_up: LookUp, opened: Opening, disk: ColdDisk) -> None:
    async with opened() as one:
        one.take()
        disk.shut()
        task = asyncio.ensure_future(look_up(one.store))
        await until_async(lambda: bool(disk.waiting))
        one.store.delete_topic("U")
        one.store.delete_topic("B")
        disk.open()
        await task
        assert one.store.append(NewRecord("U", 0, BODY, b"")).queue_offset == 0
        await asyncio.sleep(0)
        assert (await _read(one.store, "U", 0))[3] == [("U", 0)]


async def test_closing_the_store_ends_look_ups_with_an_error(look_up: LookUp, opened: Opening, disk: ColdDisk) -> None:
    async with opened() as one:
        one.take()
        disk.shut()
        # More look-ups than threads: some are being fetched, the others have not begun.
        tasks = [asyncio.ensure_future(look_up(one.store)) for _ in range(12)]
        await until_async(lambda: disk.waiting == 4)
        disk.open()
        await one.store.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, StoreError)
                assert "closed" in str(outcome)
        with pytest.raises(StoreError, match="closed"):
            await one.store.find(one.store.lookups.record_steps(PLACES[0]))


async def test_a_look_up_can_be_given_up(look_up: LookUp, opened: Opening, disk: ColdDisk) -> None:
    async with opened() as one:
        one.take()
        disk.shut()
        task = asyncio.ensure_future(look_up(one.store))
        await until_async(lambda: bool(disk.waiting))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_disk_that_cannot_be_read_is_an_error_that_names_the_file(
    look_up: LookUp, opened: Opening, disk: ColdDisk
) -> None:
    async with opened() as one:
        expected = await look_up(one.store)
        one.take()
        disk.broken = True
        with pytest.raises(StoreUnreadable, match=r"/\d+, bytes \d+ to \d+, cannot be read: Input/output error"):
            await look_up(one.store)
        assert one.store.writable
        disk.broken = False
        assert await look_up(one.store) == expected


async def test_a_long_chain_of_one_key_gives_others_their_turn(tmp_path: Path) -> None:
    async with small(tmp_path, max_hash_slot_num=1, max_index_num=20_000) as store:
        for number in range(4000):
            store.append(NewRecord("T", 0, b"", b"", keys=f"K{number}"))
        await asyncio.sleep(0)
        StoreProbe(store).dispatch_all()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        found = await store.find(store.lookups.key_steps("T", "K0", 1))
        assert len(found.parts) == 1
        assert turns > 3
        task.cancel()


async def test_long_chains_let_others_be_served_however_they_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = 0
    find_steps = IndexFile.find_steps

    def counted(*arguments: Any) -> Any:
        nonlocal walked
        for step in find_steps(*arguments):
            walked += 1
            yield step

    monkeypatch.setattr(IndexFile, "find_steps", counted)

    async with small(tmp_path, max_hash_slot_num=1, max_index_num=20_000) as store:
        for number in range(2000):
            store.append(NewRecord("T", 0, b"", b"", keys=f"K{number}"))
        await asyncio.sleep(0)
        StoreProbe(store).dispatch_all()
        short = store.take(store.lookups.key_steps("T", "K1999", 1))
        assert not isinstance(short, Coroutine)
        looking = store.take(store.lookups.key_steps("T", "K0", 1))
        assert isinstance(looking, Coroutine)
        assert walked < 200
        tasks = [asyncio.ensure_future(looking)]
        tasks += [asyncio.ensure_future(store.find(store.lookups.key_steps("T", "K0", 1))) for _ in range(10)]
        await asyncio.sleep(0)
        per_turn = []
        while not all(task.done() for task in tasks):
            before = walked
            await asyncio.sleep(0)
            per_turn.append(walked - before)
        assert max(per_turn) <= 2 * TURN
        assert [len((await task).parts) for task in tasks] == [1] * 11
