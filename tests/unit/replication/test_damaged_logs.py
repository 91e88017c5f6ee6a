"""A slave and a master with broken records in one log: intact ones stay, and repair the others (docs/adr/0016)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from small_store import overwrite
from two_stores import SEGMENT, bodies, caught_up, followed, log_of, master, put, slave

from tianzhou.store import GetResult, MessageStore
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.results import ReadRequest
from waiting import until_async


async def pair(folder: Path, count: int) -> tuple[int, bytes, list[list[bytes]]]:
    """Create a master and a slave with the same messages, both stopped; return the log's end, the log, the records by
    queue.
    """
    async with master(folder / "m") as (store, server):
        put(store, count)
        end = store.end_offset
        await followed(folder / "s", server, lambda copy: copy.copy.whole == end, "copied")
        stored = bodies(store)
    return end, log_of(folder / "m", end), stored


def rot(folder: Path, start: int, stop: int) -> None:
    """Change a byte of each record in a range of a log, of its size or of its body."""
    records = [entry for entry, _ in StoreScan(folder).records() if start <= entry.offset < stop]
    for number, (place, size, *_) in enumerate(records):
        path = folder / "commitlog" / f"{place - place % SEGMENT:020d}"
        at = place % SEGMENT + (3 if number % 5 == 4 else size // 2 + 40)
        overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x10]))


def repaired_from(store: MessageStore, other: MessageStore) -> None:
    async def give(offset: int, size: int) -> bytes | None:
        found = other.log_bytes(offset, size)
        return bytes(found) if isinstance(found, memoryview) else None

    store.damage.repairs = give


@pytest.mark.parametrize("back", [3_000, 30_000, 64 << 10])
def test_a_masters_rotten_end_takes_nothing_from_its_slave_which_heals_it(
    tmp_path: Path, back: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        end, log, stored = await pair(tmp_path, 600)
        rot(tmp_path / "m", end - back, end)
        async with master(tmp_path / "m") as (store, server), slave(tmp_path / "s", server) as copy:
            assert (store.end_offset, copy.end_offset) == (end, end)
            await until_async(lambda: "are no whole records, here they are" in caplog.text, "it is noticed")
            put(store, 30, first=1000)
            await caught_up(store, copy)
            assert log_of(tmp_path / "s", end) == log
            assert [queue[: len(whole)] for queue, whole in zip(bodies(copy), stored, strict=True)] == stored
            repaired_from(store, copy)
            for queue in range(3):
                await read_all(store, queue)
            await until_async(lambda: not store.damage.stretches, "put right")
            assert bodies(store) == bodies(copy)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())


async def read_all(store: MessageStore, queue: int) -> None:
    offset = 0
    while offset < store.max_offset("T", queue):
        found = store.read(ReadRequest("T", queue, offset, 32))
        result = found if isinstance(found, GetResult) else await found
        offset = max(result.next_offset, offset + 1)


@pytest.mark.parametrize("back", [3_000, 30_000])
def test_a_slaves_rotten_records_get_the_masters_bytes_and_nothing_is_cut(tmp_path: Path, back: int) -> None:
    async def main() -> None:
        end, log, stored = await pair(tmp_path, 600)
        rot(tmp_path / "s", end - back, end - 2_000)
        async with (
            master(tmp_path / "m") as (store, server),
            slave(tmp_path / "s", server, ha_slave_cut_max=0) as copy,
        ):
            await until_async(lambda: log_of(tmp_path / "s", end) == log, "put right")
            put(store, 30, first=1000)
            await caught_up(store, copy)
            assert log_of(tmp_path / "s", end) == log
            assert bodies(copy) == bodies(store)
            assert [queue[: len(whole)] for queue, whole in zip(bodies(copy), stored, strict=True)] == stored

    asyncio.run(main())
