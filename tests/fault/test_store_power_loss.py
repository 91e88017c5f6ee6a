"""Power failures and deaths at any moment, including recovery (store.md §10, §11).

Each history is a store that runs several times on a disk that drops unsynced data. The seed determines the history;
repeat one with `TIANZHOU_SEED=<seed> pytest tests/fault/test_store_power_loss.py -k one_seed`.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_probe import StoreProbe, catch_up_slowly, use_boot_id
from store_reads import read_now
from tianzhou.records.codec import decode_record, verify_property_crc
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus, RecordBatch, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.startup import opening
from tianzhou.testing.disk import ForgetfulDisk, PowerLostError

QUEUES = 3
TOPICS = ("T", "Other")


class Sent:
    """A message, and whether it must not be lost any more."""

    def __init__(self, number: int, body: bytes, properties: bytes, key: str) -> None:
        self.number = number
        self.body = body
        self.properties = properties
        self.key = key
        self.physical = -1
        self.end = -1
        self.safe = False


class History:
    """A store that dies several times, and its guarantees."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.root = root
        self.boot = root / "boot"
        self.boots = 0
        self.life = 0
        self.number = 0
        self.ledger: dict[tuple[str, int, int], Sent] = {}
        self.counts = {"lives": 0, "recoveries cut": 0, "messages": 0, "safe": 0, "lost unsafe": 0}
        self.counts |= {"from a note": 0, "index behind": 0, "stopped behind": 0, "cut behind": 0}
        rng = self.rng
        self.options = {
            "mapped_file_size_commit_log": rng.choice((8_192, 16_384, 65_536)),
            "mapped_file_size_consume_queue": rng.choice((400, 8_000)),
            "max_hash_slot_num": 50,
            "max_index_num": rng.choice((40, 400)),
            "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            "enabled_append_prop_crc": False,
        }
        self.large = rng.random() < 0.3 and self.options["mapped_file_size_commit_log"] != 8_192

    def settings(self, where: Path) -> StoreSettings:
        return StoreSettings(store_path_root_dir=str(where), **self.options)  # type: ignore[arg-type]

    def place(self) -> Path:
        self.life += 1
        return self.root / f"life-{self.life}"

    def reboot(self) -> None:
        self.boots += 1
        self.boot.write_text(f"boot-{self.boots}")

    def run(self, loop: asyncio.Runner) -> None:
        self.reboot()
        where = self.place()
        where.mkdir()
        for _ in range(self.rng.randint(1, 4)):
            where = self.live(where, loop)
        self.last_life(where)

    def live(self, where: Path, loop: asyncio.Runner) -> Path:
        """Work with the store until it dies; return the folder after the death."""
        rng = self.rng
        self.counts["lives"] += 1
        disk = ForgetfulDisk(where, rng)
        disk.forgets = rng.random() < 0.75
        disk.target = self.place()
        disk.fail_at = rng.choice((None, rng.randint(1, 12), rng.randint(1, 60), rng.randint(1, 250)))
        store = MessageStore(self.settings(where))
        opened = False
        try:
            with disk.watching():
                self.open(store)
                # A query may complete the index, and the power may fail during it; then no client has read it.
                self.check(store)
                opened = True
                for _ in range(rng.randint(1, 40)):
                    store = self.step(store, disk, loop)
                disk.cut()
        except PowerLostError:
            self.counts["cut behind"] += is_behind(store)
        if not opened:
            self.counts["recoveries cut"] += 1
        else:
            for sent in self.ledger.values():
                sent.safe = sent.safe or (sent.end >= 0 and (sent.end <= store.flushed.value or not disk.forgets))
        StoreProbe(store).release()
        shutil.rmtree(where)
        if disk.forgets:
            self.reboot()
        return disk.target

    def open(self, store: MessageStore) -> None:
        """Open the store, and let the index catch up immediately, or in steps between other operations."""
        store.open()
        self.counts["from a note"] += not store.report.clean and store.report.read_from > store.begin_offset
        catch_up = StoreProbe(store).catch_up
        if catch_up is not None:
            self.counts["index behind"] += 1
            catch_up.begun = self.rng.random() < 0.7

    def step(self, store: MessageStore, disk: ForgetfulDisk, loop: asyncio.Runner) -> MessageStore:
        rng = self.rng
        catch_up = StoreProbe(store).catch_up
        if catch_up is not None and catch_up.begun and not catch_up.done and rng.random() < 0.5:
            for _ in range(rng.randint(1, 4)):
                if not catch_up.done:
                    catch_up.slice(0.0)
        what = rng.random()
        if what < 0.60:
            for _ in range(rng.choice((1, 1, 3, 12))):
                self.append(store)
        elif what < 0.70:
            self.append_batch(store)
        elif what < 0.82:
            StoreProbe(store).flush_log()
        elif what < 0.92:
            loop.run(StoreProbe(store).flush_queues(thorough=rng.random() < 0.6))
        elif what < 0.97:
            disk.write_back(rng.random())
        else:
            self.counts["stopped behind"] += is_behind(store)
            store.close_now()
            for sent in self.ledger.values():
                sent.safe = True
            store = MessageStore(self.settings(Path(store.settings.store_path_root_dir)))
            self.open(store)
            assert store.report.clean
            self.check(store)
        return store

    def message(self) -> Sent:
        self.number += 1
        number = self.number
        length = self.rng.choice((0, 1, 30, 200, 900)) if not self.large else self.rng.choice((10, 3_000, 6_000))
        body = (b"%d/" % number * (length // 3 + 1))[:length]
        key = f"key-{number}"
        properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01u{number}\x02".encode()
        if self.rng.random() < 0.2:
            properties += b"long\x01" + b"p" * self.rng.choice((100, 600, 5_000 if self.large else 700)) + b"\x02"
        if self.rng.random() < 0.1:
            properties = b""
            key = ""
        if self.rng.random() < 0.1:
            properties += b"zeros\x01" + bytes(self.rng.choice((1, 40))) + b"\x02" * self.rng.randint(0, 1)
        return Sent(number, body, properties, key)

    def append(self, store: MessageStore) -> None:
        sent = self.message()
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(QUEUES)
        uniq = f"u{sent.number}" if sent.key else ""
        expected = store.max_offset(topic, queue_id, committed=False)
        # The power may fail before the store has answered.
        self.note(sent, topic, queue_id, expected, -1, -1)
        result = store.append(NewRecord(topic, queue_id, sent.body, sent.properties, keys=sent.key, uniq_key=uniq))
        assert result.status is PutStatus.PUT_OK, result
        assert result.queue_offset == expected
        self.note(sent, topic, queue_id, result.queue_offset, result.physical_offset, result.end_offset)

    def append_batch(self, store: MessageStore) -> None:
        several = [self.message() for _ in range(self.rng.randint(1, 4))]
        if self.large or self.options["mapped_file_size_commit_log"] == 8_192:
            several = several[:1]
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(QUEUES)
        expected = store.max_offset(topic, queue_id, committed=False)
        for number, sent in enumerate(several):
            self.note(sent, topic, queue_id, expected + number, -1, -1)
        result = store.append(
            RecordBatch(NewRecord(topic, queue_id, b"", b""), [(0, s.body, s.properties) for s in several])
        )
        assert result.status is PutStatus.PUT_OK, result
        for number, (sent, physical) in enumerate(zip(several, result.physical_offsets, strict=True)):
            self.note(sent, topic, queue_id, result.queue_offset + number, physical, result.end_offset)

    def note(self, sent: Sent, topic: str, queue_id: int, offset: int, physical: int, end: int) -> None:
        before = self.ledger.get((topic, queue_id, offset))
        assert before is None or not before.safe, f"place {topic}/{queue_id}/{offset} of an acknowledged message reused"
        sent.physical, sent.end = physical, end
        self.ledger[topic, queue_id, offset] = sent
        self.counts["messages"] += physical >= 0

    def check(self, store: MessageStore) -> None:
        """Check that all served messages were sent, and that no safe message is missing."""
        seen: set[tuple[str, int, int]] = set()
        catch_up = StoreProbe(store).catch_up
        indexed = catch_up.position if catch_up is not None and is_behind(store) else 1 << 63
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                end = store.max_offset(topic, queue_id)
                position = max(store.min_offset(topic, queue_id), 0)
                while position < end:
                    result = read_now(store, topic, queue_id, position, 32)
                    assert result.next_offset > position, result
                    for part in result.parts:
                        record = decode_record(part, check_crc=True)
                        place = (topic, queue_id, record.queue_offset)
                        assert (record.topic, record.queue_id) == place[:2]
                        assert position <= record.queue_offset < result.next_offset
                        assert place not in seen
                        sent = self.ledger.get(place)
                        assert sent is not None, f"phantom at {place}: {record}"
                        assert record.body == sent.body, f"wrong body at {place}"
                        properties = record.properties
                        if b"\0" in properties:
                            assert verify_property_crc(part)
                            properties = properties[: -len(b"__CRC32#\x010123456789\x02")]
                        assert properties.rstrip(b"\x02") == sent.properties.rstrip(b"\x02"), f"properties of {place}"
                        assert sent.physical in {-1, record.physical_offset}
                        sent.physical = record.physical_offset
                        seen.add(place)
                    position = result.next_offset
                assert read_now(store, topic, queue_id, end, 1).status in {
                    GetStatus.OFFSET_OVERFLOW_ONE,
                    GetStatus.NO_MESSAGE_IN_QUEUE,
                    GetStatus.NO_MATCHED_LOGIC_QUEUE,
                }
        for place, sent in list(self.ledger.items()):
            if place in seen:
                # From now on it can be read, and a reader may act on it.
                sent.safe = True
                if sent.key and sent.physical < indexed:
                    for key in (sent.key, f"u{sent.number}"):
                        found = at_once(store.lookups.key_steps(place[0], key, 64)).physical_offsets
                        assert sent.physical in found, f"{key} of {place} is not in the index"
            else:
                assert not sent.safe, f"{place} lost: {sent.body[:20]!r} at {sent.physical}; {store.report}"
                del self.ledger[place]
                self.counts["lost unsafe"] += 1
        self.counts["safe"] = len(self.ledger)

    def last_life(self, where: Path) -> None:
        """Open twice, continue, stop cleanly, and check that a start does not read the log again."""
        copy = self.place()
        shutil.copytree(where, copy)
        for folder_ in (copy, where):
            store = MessageStore(self.settings(folder_))
            store.open()
            self.check(store)
            if folder_ is where:
                for _ in range(10):
                    self.append(store)
                StoreProbe(store).flush_log()
                self.check(store)
            store.close_now()
            again = MessageStore(self.settings(folder_))
            report = again.open()
            assert report.clean
            assert report.notes == [], report.notes
            self.check(again)
            again.close_now()


def is_behind(store: MessageStore) -> bool:
    """Whether the index of a running store is still being completed."""
    catch_up = StoreProbe(store).catch_up
    return catch_up is not None and catch_up.begun and not catch_up.done


def run_history(seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    root.mkdir(parents=True)
    history = History(seed, root)
    use_boot_id(monkeypatch, history.boot)
    monkeypatch.setattr(opening, "NOTE_BYTES", history.rng.choice((0, 1_000, 10_000, 1 << 26)))
    catch_up_slowly(monkeypatch, records=2, slice_s=None)
    try:
        with asyncio.Runner() as loop:
            history.run(loop)
    except Exception as error:
        raise AssertionError(f"history {seed}: {error!r}") from error
    finally:
        shutil.rmtree(root)
    return history.counts


def run_histories(seeds: range, root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    total: dict[str, int] = {}
    failed = []
    for seed in seeds:
        try:
            for name, count in run_history(seed, root / str(seed), monkeypatch).items():
                total[name] = total.get(name, 0) + count
        except AssertionError as error:
            failed.append(str(error))
    print(f"{len(seeds)} histories: {total}")
    assert not failed, "\n".join(failed)
    return total


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder in memory if possible: the durability of a real disk is irrelevant here, its speed is not."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="tianzhou-") as folder_:
        yield Path(folder_)


def test_one_seed(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_history(int(os.environ.get("TIANZHOU_SEED", "0")), memory_path / "h", monkeypatch)


def test_nothing_acknowledged_is_lost(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = run_histories(range(1, 61), memory_path, monkeypatch)
    # A disk that never dropped data would prove nothing.
    assert total["lost unsafe"] > 20
    assert total["recoveries cut"] > 20
    assert min(total[name] for name in ("from a note", "index behind", "stopped behind", "cut behind")) > 5


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_many_histories(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_histories(range(10_000, 12_000), memory_path, monkeypatch)
