"""A damaged store after `tianzhou store repair`: Apache's broker opens it and serves all remaining messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apache import ApacheBroker, ApacheNamesrv
from frames import create_topic
from own import SOURCE, OwnBroker
from questions import Asker, Queue, await_maximum
from sends import Place, Sender
from servers import Ports
from toolchain import SERVERS

from tianzhou.records.codec import Record, decode_records, encode_record
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.properties import decode_properties

pytestmark = pytest.mark.at_once

TOPIC, QUEUES, COUNT = "mended", 3, 240
SEGMENT = 16_384
CONF = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 100,
}


@dataclass
class Made:
    """A store, and the positions of its messages.

    Attributes:
        namesrv: the name server of its broker.
        clean: its folder after a clean stop.
        killed: its folder after kill -9.
        places: position of each message, by body.
    """

    namesrv: str
    clean: Path
    killed: Path
    places: dict[bytes, tuple[Queue, Place]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def made(namesrv: ApacheNamesrv, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a store of ours with several segments of everything."""
    folder = tmp_path_factory.mktemp("mended")
    found = Made(namesrv.address, folder / "clean", folder / "killed")
    with OwnBroker(namesrv.address, found.clean, folder / "home", CONF) as broker:
        create_topic(namesrv.address, broker.address, TOPIC, QUEUES)
        with Asker(broker.address) as asker:
            sender = Sender(asker, "M")
            for number in range(COUNT):
                queue, body = (TOPIC, number % QUEUES), f"{number} ".encode() * (number * 7 % 90 + 1)
                properties = {"KEYS": f"k{number}", "TAGS": f"tag{number % 2}"}
                found.places[body] = queue, sender.send(*queue, body, properties)
        broker.kill()
    shutil.copytree(found.clean, found.killed)
    with OwnBroker(namesrv.address, found.clean, folder / "home", CONF) as broker:
        broker.stop()
    return found


class Damage:
    """Damages a store, and records the damaged bytes of the log."""

    def __init__(self, store: Path, made: Made) -> None:
        self._store = store
        self._places = sorted(place.log_offset for _, place in made.places.values())
        self.gone: list[tuple[int, int]] = []

    def flip(self, which: int) -> None:
        """Flip one bit in the body of a message."""
        self.write(self._places[which] + 90, b"\xff")

    def zero(self, which: int, size: int) -> None:
        """Overwrite several messages with zeros."""
        self.write(self._places[which] + 7, bytes(size))

    def write(self, offset: int, data: bytes) -> None:
        """Overwrite bytes in the log."""
        start = offset - offset % SEGMENT
        with (self._store / "commitlog" / f"{start:020d}").open("r+b") as file:
            file.seek(offset - start)
            file.write(data)
        self.gone.append((offset, offset + len(data)))

    def remove_segment(self, number: int) -> None:
        """Remove a whole file of the log."""
        (self._store / "commitlog" / f"{number * SEGMENT:020d}").unlink()
        self.gone.append((number * SEGMENT, (number + 1) * SEGMENT))

    def tear(self) -> None:
        """Cut the last message in the middle."""
        last = self._places[-1]
        self.write(last + 40, bytes(SEGMENT - last % SEGMENT - 40))

    def queues(self) -> None:
        """Remove one queue, cut one, change units in one."""
        folder = self._store / "consumequeue" / TOPIC
        shutil.rmtree(folder / "0")
        files = sorted((folder / "1").iterdir())
        os.truncate(files[1], 137)
        with sorted((folder / "2").iterdir())[1].open("r+b") as file:
            file.write(b"\x01" * 60)

    def index(self) -> None:
        """Change the entries of one index file."""
        with min((self._store / "index").iterdir()).open("r+b") as file:
            file.seek(40 + 4 * 100)
            file.write(b"\x07" * 700)

    def hit(self, record: Record) -> bool:
        """Whether a record was damaged."""
        first, end = record.physical_offset, record.physical_offset + record.size
        return any(begin < end and stop > first for begin, stop in self.gone)


def damage_all(damage: Damage) -> None:
    damage.flip(4)
    damage.flip(100)
    damage.flip(-1)
    damage.zero(120, 1_000)
    damage.remove_segment(3)
    damage.queues()
    damage.index()


def damage_killed(damage: Damage) -> None:
    damage.flip(70)
    damage.zero(150, 300)
    damage.tear()


@pytest.mark.parametrize("version", SERVERS)
@pytest.mark.parametrize(("stop", "do"), [("clean", damage_all), ("killed", damage_killed)])
@pytest.mark.slow
def test_a_mended_store_is_served(
    stop: str, do: Callable[[Damage], None], version: str, made: Made, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(getattr(made, stop), store)
    damage = Damage(store, made)
    do(damage)
    assert _tianzhou("check", store)[0] == 1
    code, outcome = _tianzhou("repair", store, "--apply")
    assert (code, outcome["sound"], outcome["hopeless"]) == (0, True, []), outcome
    assert _tianzhou("check", store)[0] == 0
    kept = _kept(store, damage, made)
    broker = ApacheBroker(made.namesrv, Ports.free().broker, store, CONF, tmp_path / "home", version)
    try:
        broker.start()
        with Asker(broker.address) as asker:
            _check_served(asker, kept)
            sender = Sender(asker, "A")
            for queue in kept:
                offset = sender.send(*queue, b"behind").queue_offset
                assert offset >= kept[queue][-1].queue_offset + 1
                await_maximum(asker, {queue: offset + 1})
                (last,) = asker.pull(queue, offset, offset + 1)
                assert [record.body for record in decode_records(last)] == [b"behind"]
    finally:
        broker.kill()


def _tianzhou(command: str, store: Path, *more: str) -> tuple[int, dict[str, Any]]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "tianzhou", "store", command, str(store), "-o", "json", *more],
        capture_output=True, check=False, timeout=60, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, result


def _kept(store: Path, damage: Damage, made: Made) -> dict[Queue, list[Record]]:
    """Return the repaired store's records by our own decoding: all undamaged ones, every byte of them."""
    kept: dict[Queue, list[Record]] = {(TOPIC, n): [] for n in range(QUEUES)}
    lost = 0
    for _, data in StoreScan(made.clean).records():
        (record,) = decode_records(data)
        if damage.hit(record):
            lost += 1
        else:
            kept[record.topic, record.queue_id].append(record)
    assert lost >= 3
    mended = {entry.offset: bytes(data) for entry, data in StoreScan(store).records() if entry.topic == TOPIC}
    assert mended == {record.physical_offset: encode_record(record) for records in kept.values() for record in records}
    return kept


def _check_served(asker: Asker, kept: dict[Queue, list[Record]]) -> None:
    """Check that the broker serves all remaining records, at their positions, by key and by offset, and no others.

    In the first file of the log, a neighbour fills the position of a lost message, so Apache's broker serves it twice;
    otherwise it would skip the following messages.
    """
    for queue, records in kept.items():
        first, end = asker.bounds(queue)
        assert first <= records[0].queue_offset
        assert end > records[-1].queue_offset
        served = asker.pull(queue, first, end)
        assert list(dict.fromkeys(served)) == [encode_record(record) for record in records]
        twice = Counter(served) - Counter(set(served))
        assert sum(twice.values()) <= 1
        for record in records[::10]:
            assert asker.pull(queue, record.queue_offset, record.queue_offset + 1) == [encode_record(record)]
            assert asker.view(record.physical_offset) == encode_record(record)
            key = decode_properties(record.properties)["KEYS"]
            assert asker.keyed(TOPIC, key) == [encode_record(record)]
