"""A copied log: received bytes are stored unchanged, complete records are served, and errors name the wrong part."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from small_store import small_store

from store_reads import read_now
from tianzhou.errors import StoreError
from tianzhou.store import MessageStore, NewRecord
from tianzhou.store.files import pages

SEGMENT = 4096
SIZES = {"mapped_file_size_commit_log": SEGMENT}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a log of some segments."""
    folder = tmp_path_factory.mktemp("original")
    store = small_store(folder, **SIZES)
    store.open()
    for i in range(60):
        store.append(NewRecord("T", i % 2, b"%d" % i * 60, b"TAGS\x01a\x02KEYS\x01k%d\x02" % i, keys=f"k{i}"))
    end = store.end_offset
    store.close_now()
    assert end > 2 * SEGMENT
    return b"".join(path.read_bytes() for path in sorted((folder / "commitlog").iterdir()))[:end]


def served(store: MessageStore) -> list[int]:
    """Return the number of readable messages of each queue."""
    found = []
    for queue in (0, 1):
        offset, count = store.min_offset("T", queue), 0
        while offset < store.max_offset("T", queue):
            result = read_now(store, "T", queue, offset, 100)
            count, offset = count + len(result.parts), result.next_offset
        found.append(count)
    return found


def copy_of(folder: Path, **changes: object) -> MessageStore:
    return small_store(folder, broker_role="SLAVE", **{**SIZES, **changes})


@pytest.mark.parametrize("step", [1, 7, 333, 5000, 1 << 20])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_stretches_of_any_size_make_the_same_log(tmp_path: Path, original: bytes, step: int, flush: str) -> None:
    async def main() -> None:
        async with copy_of(tmp_path, flush_disk_type=flush) as store:
            for at in range(0, len(original), step):
                store.copy.append(at, memoryview(original)[at : at + step])
            async with asyncio.timeout(20):
                while served(store) != [30, 30]:
                    await asyncio.sleep(0)
            assert store.copy.whole == len(original)
            assert store.copy.equal(0, memoryview(original)) == len(original)

    asyncio.run(main())


@pytest.mark.parametrize("offset", [-1, (1 << 63) - 1])
def test_a_record_whose_offset_no_queue_can_have_is_left_out_and_named(
    tmp_path: Path, original: bytes, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with copy_of(tmp_path) as store:
            changed = original[:20] + offset.to_bytes(8, "big", signed=True) + original[28:]
            store.copy.append(0, memoryview(changed))
            async with asyncio.timeout(20):
                while served(store) != [29, 30]:
                    await asyncio.sleep(0)
        for path in (tmp_path / "consumequeue").rglob("0" * 20):
            path.unlink()  # so that the next start reads the log
        async with copy_of(tmp_path) as store:
            assert served(store) == [29, 30]

    asyncio.run(main())
    assert f"the record at 0 of the copied log is left out: no queue has an offset {offset}" in caplog.text


def test_half_a_record_is_gone_after_a_stop_and_comes_again(tmp_path: Path, original: bytes) -> None:
    async def main() -> None:
        half = len(original) - 100
        async with copy_of(tmp_path) as store:
            store.copy.append(0, memoryview(original)[:half])
        async with copy_of(tmp_path) as store:
            assert store.report.clean
            end = store.end_offset
            assert half - 500 < end < half
            store.copy.append(end, memoryview(original)[end:])
        async with copy_of(tmp_path) as store:
            assert served(store) == [30, 30]

    asyncio.run(main())


def test_a_copy_may_begin_at_any_segment(tmp_path: Path, original: bytes) -> None:
    async def main() -> None:
        async with copy_of(tmp_path) as store:
            with pytest.raises(StoreError, match="mappedFileSizeCommitLog=4096"):
                store.copy.append(SEGMENT + 1, memoryview(original)[SEGMENT + 1 :])
            store.copy.append(SEGMENT, memoryview(original)[SEGMENT:])
            await asyncio.sleep(0.05)
            assert store.begin_offset == SEGMENT
            assert store.max_offset("T", 0) == 30
            assert 0 < store.min_offset("T", 0) < 30

    asyncio.run(main())


def test_other_bytes_than_the_next_ones_are_refused(tmp_path: Path, original: bytes) -> None:
    async def main() -> None:
        async with copy_of(tmp_path) as store:
            store.copy.append(0, memoryview(original)[:1000])
            with pytest.raises(StoreError, match="ends at 1000, the bytes belong to 900"):
                store.copy.append(900, memoryview(original)[900:1000])
            changed = bytearray(original[:1000])
            changed[700] ^= 1
            assert store.copy.equal(0, memoryview(changed)) == 700

    asyncio.run(main())


def test_a_master_with_other_segments_is_found_out(tmp_path: Path, original: bytes) -> None:
    async def main() -> None:
        async with copy_of(tmp_path, mapped_file_size_commit_log=SEGMENT - 1024) as store:
            store.copy.append(0, memoryview(original))
            await asyncio.sleep(0.05)
            with pytest.raises(StoreError, match="set mappedFileSizeCommitLog=3072 as at the master"):
                store.copy.append(len(original), memoryview(b"more"))

    asyncio.run(main())


async def test_a_copy_whose_disk_refused_takes_nothing_more(
    tmp_path: Path, original: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "broken")

    async with copy_of(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        store.copy.append(0, memoryview(original)[:1000])
        with monkeypatch.context() as broken:
            broken.setattr(pages, "sync", refuse)
            store.copy.append(1000, memoryview(original)[1000:2000])
            with pytest.raises(StoreError, match="refused the commit log"):
                await store.flushed.reach(2000)
        with pytest.raises(StoreError, match="the disk has refused the copied commit log"):
            store.copy.append(2000, memoryview(original)[2000:])
        assert store.end_offset == 2000
