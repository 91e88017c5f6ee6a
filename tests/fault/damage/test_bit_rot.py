"""A flipped bit anywhere in a store: no wrong message is served, no intact one is lost, and broken ones are reported.

The stores have queues of all kinds and an index, and were stopped cleanly or killed. Every message is looked up by its
queue, its keys and its log offset. Then the store is opened once more, because the first start may have repaired a
file.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from property_examples import costly
from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.store import MessageStore, NewRecord, PutStatus, StoreSettings
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.hashing import tags_code

SEGMENT = 16_384
COUNT = 120
TOPICS = ("Plain", "Other", "Batch", "SCHEDULE_TOPIC_XXXX")
STOPS = ("clean", "killed", "power")
LOG, QUEUES = "commitlog", ("consumequeue", "batchconsumequeue", "consumequeue_ext")


class Kept(NamedTuple):
    """A stored message: its record, and its position."""

    record: bytes
    place: int


class Original(NamedTuple):
    """A store after each of three kinds of stop, and its messages."""

    folders: dict[str, Path]
    messages: dict[int, Kept]
    opened: Callable[[Path], AbstractContextManager[MessageStore]]


@contextmanager
def store_of(folder: Path, *, extended: bool, record_crc: bool) -> Iterator[MessageStore]:
    """Yield an open store."""
    store = MessageStore(
        StoreSettings(
            store_path_root_dir=str(folder),
            mapped_file_size_commit_log=SEGMENT,
            mapped_file_size_consume_queue=400,
            mapper_file_size_batch_consume_queue=460,
            mapped_file_size_consume_queue_ext=4096,
            enable_consume_queue_ext=extended,
            enabled_append_prop_crc=record_crc,
            max_hash_slot_num=50,
            max_index_num=100,
        )
    )
    store.queue_kinds.batch_topics.add("Batch")
    store.open()
    try:
        yield store
    finally:
        store.close_now()


def fill(store: MessageStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        topic, tag = TOPICS[number % 4], ("red", "blue")[number % 2]
        delay = "DELAY\x013\x02" if topic == TOPICS[3] else ""
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02TAGS\x01{tag}\x02{delay}".encode()
        body = b"%d " % number * (number * 7 % 40 + 1)
        keys = {"keys": f"k{number}", "uniq_key": f"u{number}"}
        record = NewRecord(topic, number // 4 % 2, body, properties, tags_code=tags_code(tag), **keys)
        assert store.append(record).status is PutStatus.PUT_OK


def served(store: MessageStore) -> dict[int, bytes]:
    """Return records by number as consumers of all queues get them, once and in order."""
    found: dict[int, bytes] = {}
    for topic in TOPICS:
        for queue_id in store.queues(topic):
            position, last = max(store.min_offset(topic, queue_id), 0), -1
            while position < store.max_offset(topic, queue_id):
                result = read_now(store, topic, queue_id, position, 32)
                assert result.next_offset > position
                position = result.next_offset
                for part in result.parts:
                    record = decode_record(part, check_crc=True)
                    assert (record.topic, record.queue_id) == (topic, queue_id)
                    assert record.queue_offset > last
                    last, number = record.queue_offset, int(record.body.split()[0])
                    assert number not in found
                    found[number] = bytes(part)
    return found


def make(root: Path, *, extended: bool, record_crc: bool) -> Original:
    opened = partial(store_of, extended=extended, record_crc=record_crc)
    with opened(root / "live") as store:
        fill(store, 0, COUNT - 40)
    with opened(root / "live") as store:
        fill(store, COUNT - 40, COUNT)
        records = served(store)
        assert records.keys() == set(range(COUNT))
        for stop in STOPS[1:]:
            shutil.copytree(root / "live", root / stop)
    (root / "power" / "running.json").write_text('{"pid": 1, "boot": "another"}')
    (root / "live").rename(root / "clean")
    messages = {number: Kept(record, decode_record(record).physical_offset) for number, record in records.items()}
    return Original({stop: root / stop for stop in STOPS}, messages, opened)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Original]]:
    shared = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path_factory.mktemp("rot")
    root = Path(tempfile.mkdtemp(dir=shared, prefix="tianzhou-rot-"))
    yield {
        "plain": make(root / "plain", extended=False, record_crc=False),
        "extended": make(root / "extended", extended=True, record_crc=False),
        "record CRC": make(root / "crc", extended=False, record_crc=True),
    }
    shutil.rmtree(root)


@pytest.fixture
def folder(originals: dict[str, Original]) -> Iterator[Path]:
    work = originals["plain"].folders["clean"].parent.parent / "work"
    yield work
    shutil.rmtree(work, ignore_errors=True)


class Flip(NamedTuple):
    """A bit of a file."""

    path: Path
    byte: int
    bit: int


def any_flip(folder: Path, kind: str, rng: random.Random) -> Flip | None:
    found = [folder / kind] if (folder / kind).is_file() else sorted((folder / kind).rglob("*"))
    files = [path for path in found if path.is_file() and path.stat().st_size]
    if not files:
        return None
    path = rng.choice(files)
    data = path.read_bytes()
    return Flip(path, rng.randrange(len(data.rstrip(b"\0")) or 1), rng.randrange(8))


def check_one(original: Original, folder: Path, stop: str, kind: str, flip: Flip, *, strict: bool) -> None:
    data = bytearray(flip.path.read_bytes())
    data[flip.byte] ^= 1 << flip.bit
    flip.path.write_bytes(data)
    messages, broken = original.messages, set()
    if kind == LOG:
        at = int(flip.path.name) + flip.byte
        broken = {number for number, kept in messages.items() if kept.place <= at < kept.place + len(kept.record)}
    with original.opened(folder) as store:
        found = served(store)
        check_messages(store, messages, found, broken, strict=strict)
        fill(store, 1000, 1008)
    with original.opened(folder) as again:
        after = served(again)
        assert found.items() <= after.items()
        assert after.keys() >= set(range(1000, 1008))


def check_messages(
    store: MessageStore, messages: dict[int, Kept], found: dict[int, bytes], broken: set[int], *, strict: bool
) -> None:
    for number, kept in messages.items():
        if number not in broken:
            assert found.get(number) == kept.record, number
        elif strict:
            assert number not in found, f"{number} is not what was stored"
        elif number in found:
            # The CRC of a body does not cover the rest: the client gets another time or property, never another body.
            assert decode_record(found[number]).body == decode_record(kept.record).body
    for number in range(0, COUNT, 5):
        kept = messages[number]
        place = at_once(store.lookups.record_steps(kept.place))
        if number in broken:
            continue
        assert bytes(place or b"") == kept.record
        for key in (f"k{number}", f"u{number}"):
            parts = at_once(store.lookups.key_steps(TOPICS[number % 4], key, 8)).parts
            assert [bytes(part) for part in parts] == [kept.record], key


def check_flips(originals: dict[str, Original], folder: Path, kind: str, stop: str, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(f"{kind} {stop} {seed}")
        name = "extended" if kind == QUEUES[2] else rng.choice(sorted(originals))
        original = originals[name]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original.folders[stop], folder)
        flip = any_flip(folder, kind, rng)
        if flip is None:
            return
        try:
            check_one(original, folder, stop, kind, flip, strict=name == "record CRC")
        except Exception as error:
            where = flip.path.relative_to(folder)
            raise AssertionError(f"{name}, seed {seed}: {where} byte {flip.byte} bit {flip.bit}: {error!r}") from error


KINDS = (LOG, *QUEUES, "index", "checkpoint")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_changes_no_message_and_loses_none_that_is_whole(
    originals: dict[str, Original], folder: Path, kind: str, stop: str
) -> None:
    check_flips(originals, folder, kind, stop, range(8))


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_flipped_bits_change_no_message_and_lose_none_that_is_whole(
    originals: dict[str, Original], folder: Path, kind: str, stop: str
) -> None:
    check_flips(originals, folder, kind, stop, range(1000, 1600))


@pytest.mark.parametrize("name", ["Plain", "Batch"])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("step", [11, pytest.param(3, marks=pytest.mark.slow)])  # coprime to the bits of a byte
def test_every_bit_of_a_unit_may_flip(
    originals: dict[str, Original], folder: Path, name: str, which: str, step: int
) -> None:
    original = originals["plain"]
    family, size = ("consumequeue", 20) if name == "Plain" else ("batchconsumequeue", 46)
    scan = sorted((original.folders["clean"] / family / name / "0").iterdir())
    path = scan[0] if which == "first" else scan[-1] if which == "last" else scan[len(scan) // 2]
    used = len(path.read_bytes().rstrip(b"\0")) // size
    begin = 0 if which == "first" else size * used if which == "last" else size * 4
    for bit in range(0, 8 * size, step):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original.folders["clean"], folder)
        flip = Flip(folder / family / name / "0" / path.name, begin + bit // 8, bit % 8)
        try:
            check_one(original, folder, "clean", family, flip, strict=True)
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of the unit: {error}") from error


@pytest.mark.parametrize("step", [11, pytest.param(3, marks=pytest.mark.slow)])  # coprime to the bits of a byte
def test_every_bit_of_a_records_own_crc_may_flip(originals: dict[str, Original], folder: Path, step: int) -> None:
    original = originals["record CRC"]
    end = original.messages[40].place + len(original.messages[40].record)
    for bit in range(0, 8 * 20, step):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original.folders["clean"], folder)
        at = end - 20 + bit // 8
        flip = Flip(folder / LOG / f"{at - at % SEGMENT:020d}", at % SEGMENT, bit % 8)
        try:
            check_one(original, folder, "clean", LOG, flip, strict=True)
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of the property: {error}") from error


@costly(0.25, fixtures=True)
@example(units=[(12, 0), (13, 0), (14, 0)])
@example(units=[(13, 70), (14, 70)])
@example(units=[(number, 0) for number in range(15)])
@given(units=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 159)), min_size=1, max_size=8))
def test_several_units_of_a_queue_may_be_broken(
    originals: dict[str, Original], folder: Path, units: list[tuple[int, int]]
) -> None:
    original = originals["plain"]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original.folders["clean"], folder)
    path = folder / "consumequeue" / "Plain" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for number, bit in units:
        data[20 * number + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    with original.opened(folder) as store:
        assert served(store) == {number: kept.record for number, kept in original.messages.items()}


def test_a_broken_record_is_named_once_and_counted_and_found_by_the_check(
    originals: dict[str, Original], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    original = originals["plain"]
    shutil.copytree(original.folders["clean"], folder)
    number = 40
    place, size = original.messages[number].place, len(original.messages[number].record)
    path = folder / LOG / f"{place - place % SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[place % SEGMENT + 90] ^= 4
    path.write_bytes(data)
    named = f"bytes {place} to {place + size} of the commit log hold no intact record"
    with caplog.at_level(logging.WARNING):
        with original.opened(folder) as store:
            for _ in range(3):
                assert served(store).keys() == set(range(COUNT)) - {number}
            assert caplog.text.count(named) == 1
            assert f"offset 5 of {TOPICS[0]}/0, the CRC of the body is wrong" in caplog.text
            assert (store.damage.named, store.damage.stretches) == (1, 1)
        with original.opened(folder) as again:
            assert served(again).keys() == set(range(COUNT)) - {number}
            assert caplog.text.count(named) == 1
            assert again.damage.stretches == 1
    problems = [problem.text for problem in check_store(StoreScan(folder)).problems]
    assert any(f"no intact record between {place} and {place + size}" in text for text in problems)
