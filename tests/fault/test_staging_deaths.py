"""A broker that dies at every step of staged batches: each row of each batch is in its topic once, and no other row.

The steps are the puts to the log. Before each, the test copies the state that a machine would have: after kill -9, and
after a power failure. In each copy, a driver continues from its checkpoint, like Spark: it runs each batch that it has
not marked as done again, with new attempts.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import staging_talk as staging
from dying_broker import copy_as_slave, copy_store, in_bench

from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.testing.disk import ForgetfulDisk
from tianzhou.wire.bodies.staging import STATE

FOLDER = "store"
BATCHES = 3
TASKS = 2
UNITS = 2
ROWS = 3


@dataclass
class Image:
    """The state after the broker's death, and the driver's checkpoint."""

    folder: Path
    now_ms: int
    done: int
    life: int


@dataclass
class Driver:
    """A query: its checkpoint, and its number of starts."""

    done: int = 0
    life: int = 0
    unique: int = 0

    async def run(self, peer: Any) -> None:
        """Write all unfinished batches."""
        self.life += 1
        while self.done < BATCHES:
            await self.batch(peer, self.done)
            self.done += 1

    async def batch(self, peer: Any, batch: int) -> None:
        state = STATE.loads((await peer.ask(staging.STATE_OF, writer="W")).body)
        attempts = {}
        for task in range(TASKS if state.decided < batch else 0):
            if task == batch % TASKS:
                # A task that ran twice: only one of its attempts counts.
                await self.attempt(peer, batch, task, f"{self.life}.{batch}.{task}.failed")
            name = f"{self.life}.{batch}.{task}"
            attempts[name] = await self.attempt(peer, batch, task, name)
        await staging.commit(peer, staging.decision(batch, **attempts))

    async def attempt(self, peer: Any, batch: int, task: int, name: str) -> int:
        for number in range(UNITS):
            rows = [self.message(batch, task, number, row) for row in range(ROWS)]
            reply = await staging.stage(peer, name, rows, batch=batch, number=number, last=number == UNITS - 1)
            assert reply.code == 0, reply.remark
        return UNITS

    def message(self, batch: int, task: int, unit: int, row: int) -> Any:
        self.unique += 1
        more = {"DELAY": "1"} if row == 1 else {}
        body = f"{batch}.{task}.{unit}.{row}".encode()
        return staging.message(f"U{self.life}-{self.unique}", queue_id=row % 2, body=body, **more)


def wanted() -> Counter[str]:
    return Counter(
        f"{batch}.{task}.{unit}.{row}"
        for batch in range(BATCHES)
        for task in range(TASKS)
        for unit in range(UNITS)
        for row in range(ROWS)
    )


def rows(bench: Any) -> Counter[str]:
    """Return the messages for consumers; a power failure may leave empty positions in a queue."""
    found: Counter[str] = Counter()
    for queue in (0, 1):
        offset, end = 0, bench.store.max_offset("T", queue)
        while offset < end:
            got = read_now(bench.store, "T", queue, offset, 32)
            found.update(bytes(decode_record(view).body).decode() for view in got.parts)
            offset = max(got.next_offset, offset + 1)
    return found


def images(
    tmp_path: Path,
    source: Path,
    driver: Driver,
    now_ms: int | None,
    disk: ForgetfulDisk | None,
    *,
    of_slave: bool = False,
    **store: Any,
) -> Iterator[Image]:
    """Yield the states after a death before each put, from the state of a folder until everything is written."""
    found: list[Image] = []

    async def body(bench: Any) -> None:
        real = bench.store.append

        def append(record: Any, **how: Any) -> Any:
            target = tmp_path / f"image-{len(found)}"
            if of_slave:
                copy_as_slave(bench.store, target)
            elif disk is None:
                copy_store(source, target)
            else:
                disk.image(target)
            found.append(Image(target, bench.clock.now_ms(), driver.done, driver.life))
            return real(record, **how)

        bench.store.append = append
        await bench.parts.staging.load()
        await driver.run(bench.peer())

    in_bench(source, now_ms, body, **store)
    return iter(found)


async def live_on(bench: Any, driver: Driver) -> None:
    await bench.parts.staging.load()
    delivering = bench.deliver_delayed()
    await driver.run(bench.peer())
    await asyncio.sleep(3)
    delivering.cancel()
    found = rows(bench)
    assert found == wanted(), found - wanted() + (wanted() - found)


def check(image: Image, **store: Any) -> None:
    async def body(bench: Any) -> None:
        await live_on(bench, Driver(image.done, image.life))

    in_bench(image.folder, image.now_ms, body, **store)


@pytest.mark.parametrize("segment", [1 << 20, 1 << 14], ids=["one segment", "many segments"])
def test_killed_at_every_step(tmp_path: Path, segment: int) -> None:
    options = {"mapped_file_size_commit_log": segment}
    count = 0
    for image in images(tmp_path, tmp_path / FOLDER, Driver(), None, None, **options):
        check(image, **options)
        shutil.rmtree(image.folder)
        count += 1
    print(f"{count} deaths")
    assert count > 60


def test_a_slave_becomes_the_master_at_every_step(tmp_path: Path) -> None:
    for image in images(tmp_path, tmp_path / FOLDER, Driver(), None, None, of_slave=True):
        check(image)
        shutil.rmtree(image.folder)


def test_killed_again_while_it_publishes_what_is_left(tmp_path: Path) -> None:
    first = list(images(tmp_path, tmp_path / FOLDER, Driver(), None, None))
    count = 0
    # In the middle of the second batch: between its units, between its messages, and around its notes.
    for image in first[len(first) // 4 : len(first) * 2 // 3 : 9]:
        folder = tmp_path / f"second-{count}"
        folder.mkdir()
        driver = Driver(image.done, image.life)
        again = images(folder, image.folder, driver, image.now_ms, None)
        for death in list(again)[:12]:
            check(death)
            count += 1
    print(f"{count} second deaths")
    assert count > 20


@pytest.mark.parametrize(
    ("flush", "seed"),
    [
        ("ASYNC_FLUSH", 1),
        pytest.param("SYNC_FLUSH", 1, marks=pytest.mark.slow),
        *[pytest.param("ASYNC_FLUSH", seed, marks=pytest.mark.slow) for seed in range(2, 8)],
    ],
)
def test_power_lost_at_every_step(tmp_path: Path, flush: str, seed: int) -> None:
    (tmp_path / FOLDER).mkdir()
    disk = ForgetfulDisk(tmp_path / FOLDER, Random(seed))
    with disk.watching():
        found = list(images(tmp_path, tmp_path / FOLDER, Driver(), None, disk, flush_disk_type=flush))
    for image in found:
        check(image, flush_disk_type=flush)
    print(f"{len(found)} power failures")
    assert len(found) > 60


def test_a_task_that_outlives_a_power_failure_is_not_told_that_all_is_there(tmp_path: Path) -> None:
    ends: Counter[bool] = Counter()
    for seed in range(10):
        source, found = tmp_path / f"store-{seed}", tmp_path / f"found-{seed}"
        source.mkdir()
        disk = ForgetfulDisk(source, Random(seed))

        async def begin(bench: Any, disk: ForgetfulDisk = disk, found: Path = found) -> None:
            await bench.parts.staging.load()
            reply = await staging.stage(bench.peer(), "a", [staging.message("0")], last=False)
            assert reply.code == 0
            disk.image(found)

        async def end(bench: Any) -> None:
            await bench.parts.staging.load()
            peer = bench.peer()
            reply = await staging.stage(peer, "a", [staging.message("1")], number=1)
            ends[reply.code == 0] += 1
            if reply.code == 0:
                await staging.commit(peer, staging.decision(a=2))
                assert staging.keys(bench) == ["0", "1"]
            else:
                assert "its unit 0 is not, or no longer" in reply.remark

        with disk.watching():
            in_bench(source, None, begin)
        in_bench(found, None, end)
    print(f"{ends[True]} units kept, {ends[False]} lost")
    assert ends[False]
