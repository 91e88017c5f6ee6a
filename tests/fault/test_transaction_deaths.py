"""A broker that dies at every step of its transactions: each is committed or rolled back, once.

The steps are the puts to the log. Before each, the test copies the state that a machine would have: after kill -9, and
after a power failure. In each copy, a producer answers the checks: once with its earlier decisions, and once with the
opposite ones.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dying_broker import copy_as_slave, copy_store, in_bench
from transaction_talk import COMMIT, ROLLBACK, checking, end, fields, prepare, questions

from tianzhou.testing.disk import ForgetfulDisk
from tianzhou.wire.properties import decode_properties

WORD = {"A": COMMIT, "B": ROLLBACK, "C": COMMIT, "D": ROLLBACK, "E": COMMIT, "F": COMMIT, "G": ROLLBACK}
"""The producer's final decision about each transaction."""
FOLDER = "store"


@dataclass
class World:
    """The facts outside the broker.

    Attributes:
        sent: acknowledged half messages.
        ended: acknowledged decisions.
    """

    sent: dict[str, Any]
    ended: dict[str, int]


@dataclass
class Image:
    """The state after the broker's death, and the facts at that time."""

    folder: Path
    offsets: dict[str, Any]
    now_ms: int
    world: World


class Camera:
    """Copies the state before each put, as if the broker died now."""

    def __init__(
        self, bench: Any, folder: Path, world: World, disk: ForgetfulDisk | None, *, of_slave: bool = False
    ) -> None:
        self.images: list[Image] = []
        self._of_slave = of_slave
        self._bench, self._folder, self._world, self._disk = bench, folder, world, disk
        self._append = bench.store.append
        bench.store.append = self.append

    def append(self, record: Any, **how: Any) -> Any:
        self.take()
        return self._append(record, **how)

    def take(self) -> None:
        target = self._folder / f"image-{len(self.images)}"
        if self._of_slave:
            copy_as_slave(self._bench.store, target)
        elif self._disk is None:
            copy_store(self._folder / FOLDER, target)
        else:
            self._disk.image(target)
        tables = self._bench.tables
        offsets = copy.deepcopy(tables.offsets.snapshot())
        self.images.append(Image(target, offsets, self._bench.clock.now_ms(), copy.deepcopy(self._world)))


async def live(bench: Any, world: World) -> None:
    """Run the story: decisions made immediately, after checks, about older copies, and never."""

    async def decide(key: str, sent: Any, *, check: bool = False) -> None:
        if (await end(peer, sent, WORD[key], check=check)).code == 0:
            world.ended[key] = WORD[key]

    peer = bench.peer()
    await peer.heartbeat("c", producer="P")
    async with checking(bench):
        for key in WORD:
            world.sent[key] = await prepare(peer, key)
            if key in "AB":
                await decide(key, world.sent[key])
        await asyncio.sleep(32)
        for sent, _, _ in questions(peer):
            if sent.key in "CD":
                await decide(sent.key, sent, check=True)
        await asyncio.sleep(31)
        await decide("F", world.sent["F"])
        await decide("G", world.sent["G"])
        await asyncio.sleep(5)
        world.sent["late"] = await prepare(peer, "late")


async def live_on(bench: Any, image: Image, *, contradicts: bool, knows_positions: bool) -> None:
    if knows_positions:
        bench.tables.offsets.load(image.offsets)
    await bench.parts.transactions.load()
    found = keys(bench)
    peer = bench.peer()
    await peer.heartbeat("c", producer="P")

    def says(key: str) -> int:
        word = WORD.get(key, COMMIT)
        return word if not contradicts else COMMIT + ROLLBACK - word

    async with checking(bench):
        for key, sent in image.world.sent.items():
            if key in image.world.ended:
                # The producer repeats its decision, because it may not know that it arrived.
                peer.post(37, **fields(sent, says(key)))
        for _ in range(3):
            await asyncio.sleep(31)
            for sent, _, _ in questions(peer):
                peer.post(37, **fields(sent, says(sent.key), check=True))
        await asyncio.sleep(1)
    assert len(bench.tables.transactions) == 0
    after = keys(bench)
    assert len(after) == len(set(after)), f"committed twice: {after}"
    assert set(found) <= set(after)
    for key in image.world.sent:
        assert key in after or says(key) == ROLLBACK or contradicts, f"{key} is lost"
        if not contradicts:
            assert (key in after) == (WORD.get(key, COMMIT) == COMMIT)


def keys(bench: Any) -> list[str]:
    return [decode_properties(record.properties)["UNIQ_KEY"] for record in bench.records("T")]


def story(tmp_path: Path, disk: ForgetfulDisk | None, *, of_slave: bool = False, **store: Any) -> list[Image]:
    found: list[Image] = []

    async def body(bench: Any) -> None:
        world = World({}, {})
        camera = Camera(bench, tmp_path, world, disk, of_slave=of_slave)
        await live(bench, world)
        camera.take()
        found.extend(camera.images)

    in_bench(tmp_path / FOLDER, None, body, **store)
    assert len(found) > 20
    return found


@pytest.mark.parametrize("contradicts", [False, True], ids=["consistent", "contradicting"])
def test_killed_at_every_step(tmp_path: Path, contradicts: bool) -> None:
    for image in story(tmp_path, None):
        for knows_positions in (True, False):
            where = tmp_path / "again"
            shutil.copytree(image.folder, where)

            async def body(bench: Any, image: Image = image, knows: bool = knows_positions) -> None:
                await live_on(bench, image, contradicts=contradicts, knows_positions=knows)
                after = keys(bench)
                for key, outcome in image.world.ended.items():
                    assert (key in after) == (outcome == COMMIT), f"{key}: what was answered holds"

            in_bench(where, image.now_ms, body)
            shutil.rmtree(where)


@pytest.mark.parametrize("contradicts", [False, True], ids=["consistent", "contradicting"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_power_lost_at_every_step(tmp_path: Path, contradicts: bool, seed: int) -> None:
    (tmp_path / FOLDER).mkdir()
    disk = ForgetfulDisk(tmp_path / FOLDER, Random(seed))
    with disk.watching():
        images = story(tmp_path, disk, flush_disk_type="SYNC_FLUSH")
    for image in images:

        async def body(bench: Any, image: Image = image) -> None:
            await live_on(bench, image, contradicts=contradicts, knows_positions=True)

        in_bench(image.folder, image.now_ms, body, flush_disk_type="SYNC_FLUSH")


@pytest.mark.parametrize("contradicts", [False, True], ids=["consistent", "contradicting"])
def test_a_slave_becomes_the_master_at_every_step(tmp_path: Path, contradicts: bool) -> None:
    """It has the log, and its master's positions of some steps before, or none yet."""
    images = story(tmp_path, None, of_slave=True)
    for number, image in enumerate(images):
        for behind in (0, 5, len(images)):
            where = tmp_path / "again"
            shutil.copytree(image.folder, where)
            image.offsets = images[number - behind].offsets if number >= behind else {}

            async def body(bench: Any, image: Image = image) -> None:
                await live_on(bench, image, contradicts=contradicts, knows_positions=bool(image.offsets))
                after = keys(bench)
                for key, outcome in image.world.ended.items():
                    assert (key in after) == (outcome == COMMIT), f"{key}: what was answered holds"

            in_bench(where, image.now_ms, body)
            shutil.rmtree(where)
