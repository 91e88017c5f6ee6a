"""Queues that begin late: the log's first record decides the minimum offset of a queue (store.md §5.2, §5.7, §14)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_store import SEGMENT, opened, overwrite, read_queue, small_store

from store_reads import read_now
from tianzhou.model import MessageQueue
from tianzhou.records.codec import Record, decode_record
from tianzhou.spark.store.store_files import StoreFiles
from tianzhou.store import GetStatus, MessageStore, NewRecord
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.log import holes
from tianzhou.store.offline.backup import back_up, restore
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.wire.properties import encode_properties
from waiting import until_async

MESSAGES = 400
QUEUE = MessageQueue("T", "store", 0)
QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "extended": {"enable_consume_queue_ext": True},
    "batch": {"batch_topics": "T"},
    "light": {"enable_lmq": True, "enable_multi_dispatch": True},
}


class TickingClock:
    """A clock that advances one millisecond at each call, so that each record has a different store time."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms

    def monotonic(self) -> float:
        return time.monotonic()


def made(folder: Path, kind: str, **changes: Any) -> MessageStore:
    """Return a store with queues of a kind. A batch queue's file of 46-byte units is about as small as other files."""
    changes = {"mapper_file_size_batch_consume_queue": 46 * 9, **KINDS[kind], **changes}
    return small_store(folder, TickingClock(), **changes)


def fill(folder: Path, kind: str) -> None:
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if kind == "light" else {}
    with opened(made(folder, kind)) as store:
        for number in range(MESSAGES):
            properties = encode_properties({"UNIQ_KEY": f"u{number}", **named})
            store.append(NewRecord("T", 0, b"%d " % number * 30, properties, uniq_key=f"u{number}"))
        assert store.end_offset > 5 * SEGMENT


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def expire(folder: Path) -> None:
    """Delete the oldest segments of the log and all queues. The next start rebuilds the queues."""
    for path in log_files(folder)[:3]:
        path.unlink()
    for name in QUEUE_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def rebuilt(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / "store"
    fill(folder, kind)
    expire(folder)
    return folder


def restored(tmp_path: Path, kind: str) -> Path:
    folder, back = rebuilt(tmp_path, kind), tmp_path / "restored"
    with opened(made(folder, kind)):
        pass
    back_up(folder, [folder], tmp_path / "backup", version="1", now_ms=1)
    restore(tmp_path / "backup", back)
    return back


def restored_without_queues(tmp_path: Path, kind: str) -> Path:
    folder = restored(tmp_path, kind)
    for name in QUEUE_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    return folder


def copied(tmp_path: Path, kind: str) -> Path:
    """Return the folder of a slave whose master sent its log from the fourth segment on."""
    source, folder = tmp_path / "master", tmp_path / "slave"
    fill(source, kind)
    start = 3 * SEGMENT

    async def copy() -> None:
        end = max(item.offset + len(view) for item, view in StoreScan(source).records())
        data = b"".join(path.read_bytes() for path in log_files(source))[:end]
        async with made(folder, kind, broker_role="SLAVE") as store:
            store.copy.append(start, memoryview(data)[start:])
            await until_async(lambda: store.max_offset("T", 0) == MESSAGES, "all is dispatched")
            prove_late(store, kind)

    asyncio.run(copy())
    return folder


def records_of(store: MessageStore) -> list[Record]:
    return [decode_record(view) for view in store.lookups.records_from(store.begin_offset)]


def prove_late(store: MessageStore, kind: str) -> None:
    """Compare a store's answers about a queue that begins late with the records of its log."""
    topic = "%LMQ%a" if kind == "light" else "T"
    records = records_of(store)
    first, last = records[0], records[-1]
    begin = first.queue_offset
    assert 100 < begin < MESSAGES - 1
    assert (store.min_offset(topic, 0), store.max_offset(topic, 0)) == (begin, MESSAGES)
    for below in (0, 1, begin - 1):
        found = read_now(store, topic, 0, below, 32)
        assert (found.status, found.next_offset) == (GetStatus.OFFSET_TOO_SMALL, begin)
        assert (found.min_offset, found.max_offset) == (begin, MESSAGES)
    assert read_now(store, topic, 0, begin, 1).status is GetStatus.FOUND
    assert [record.queue_offset for record in read_queue(store, topic)] == [one.queue_offset for one in records]
    lookups = store.lookups
    assert at_once(lookups.first_time_steps(topic, 0)) == first.store_timestamp
    for upper in (False, True):
        assert at_once(lookups.offset_steps(topic, 0, 0, upper=upper)) == begin
        assert at_once(lookups.offset_steps(topic, 0, first.store_timestamp, upper=upper)) == begin
        assert at_once(lookups.offset_steps(topic, 0, last.store_timestamp, upper=upper)) == MESSAGES - 1
    assert read_now(store, "unknown", 0, 5, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert (store.min_offset("unknown", 0), store.max_offset("unknown", 0)) == (-1, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [rebuilt, restored, restored_without_queues, copied], ids=lambda way: way.__name__)
def test_a_queue_begins_with_its_first_record(tmp_path: Path, way: Callable[[Path, str], Path], kind: str) -> None:
    folder = way(tmp_path, kind)
    for crashed in (False, False, True, False):
        if crashed:
            (folder / "abort").write_text("1")
        with opened(made(folder, kind)) as store:
            prove_late(store, kind)
            bounds = store.min_offset("T", 0), store.max_offset("T", 0)
        assert StoreFiles(folder).bounds([QUEUE]) == {QUEUE: bounds}
    assert check_store(StoreScan(folder)).sound


def test_a_queue_that_begins_late_goes_on_and_expires(tmp_path: Path) -> None:
    folder = rebuilt(tmp_path, "plain")
    with opened(made(folder, "plain")) as store:
        assert store.append(NewRecord("T", 0, b"next", b"")).queue_offset == MESSAGES
    log_files(folder)[0].unlink()
    with opened(made(folder, "plain")) as store:
        records = records_of(store)
        assert store.min_offset("T", 0) == records[0].queue_offset
        assert [one.queue_offset for one in read_queue(store)] == [one.queue_offset for one in records]


@given(
    holes_before=st.integers(0, 700),
    in_first_file=st.booleans(),
    runs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 230)), min_size=1, max_size=6),
    smallest=st.integers(0, 40),
)
def test_the_min_offset_is_that_of_a_record_the_log_has(
    tmp_path_factory: pytest.TempPathFactory,
    holes_before: int,
    in_first_file: bool,
    runs: list[tuple[int, int]],
    smallest: int,
) -> None:
    folder = tmp_path_factory.mktemp("queue")
    queue = ConsumeQueue(folder / "T" / "0", "T", 0, 20_000)
    queue.log_file_size = 1 << 30 if in_first_file else 1
    offset, physical = holes_before, 100
    places: dict[int, int] = {}
    for records, gap in runs:
        for _ in range(records):
            assert queue.put(offset, physical, 100, 0)
            places[offset] = physical
            offset, physical = offset + 1, physical + 100
        offset += gap
    wanted = [at for at, place in places.items() if place >= smallest * 100]
    expected = wanted[0] if wanted else queue.max_offset
    queue.correct_min_offset(smallest * 100)
    assert queue.min_offset == expected
    queue.recover()
    queue.correct_min_offset(smallest * 100)
    assert queue.min_offset == expected
    queue.close()


def test_places_of_lost_records_are_counted() -> None:
    blank, hole, unit = holes.BLANK, holes.before(40, 100, 1000), b"\0" * 7 + b"\1" + b"\0" * 3 + b"\x64" + b"\0" * 8
    assert holes.leading(memoryview(unit + blank)) == 0
    assert holes.leading(memoryview(blank * 3 + unit)) == 3
    assert holes.leading(memoryview(hole * 2 + blank)) == 2
    assert holes.leading(memoryview(blank * 200)) == 200


def test_a_batch_queue_that_begins_late_has_its_first_units_offset(tmp_path: Path) -> None:
    queue = BatchQueue(tmp_path / "T" / "0", "T", 0, 46 * 4)
    queue.expect(1000, 7)
    assert queue.put(1000, 500, 100, 0, 1)
    assert (queue.min_offset, queue.max_offset) == (1000, 1007)
    for _ in range(2):
        queue.recover()
        queue.correct_min_offset(400)
        assert (queue.min_offset, queue.max_offset) == (1000, 1007)
    queue.close()


def test_a_queue_whose_first_records_are_damaged_begins_behind_them(tmp_path: Path) -> None:
    """The log begins with damaged records, so the queue begins with the first whole record."""
    fill(tmp_path, "plain")
    items = [item for item, _ in StoreScan(tmp_path).records()][:3]
    for item in items:
        overwrite(log_files(tmp_path)[0], item.offset + 4, b"\xff" * (item.size - 4))
    for name in QUEUE_FOLDERS:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    for _ in range(2):
        with opened(made(tmp_path, "plain")) as store:
            assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (3, MESSAGES)
        assert StoreFiles(tmp_path).bounds([QUEUE]) == {QUEUE: (3, MESSAGES)}
