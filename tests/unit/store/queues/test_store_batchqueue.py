"""Queues of type BatchCQ: units, looking up, limits of reads, recovery (store.md §6, §14.1, §16.2)."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_store import flip, opened, read_queue, small_store

from property_examples import costly
from store_reads import read_now
from tianzhou.errors import StoreUnreadable
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord, PutStatus
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.files.pages import HeldMap
from tianzhou.store.files.segments import Segment
from tianzhou.store.queues.batchqueue import BATCH_UNIT, BATCH_UNIT_SIZE, BatchQueue, BatchUnit, unit_at
from tianzhou.store.results import ReadRequest
from tianzhou.wire.batch import encode_batch
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import decode_properties

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
PER_SEGMENT = 5


class TickingClock:
    """A clock that advances by a millisecond with every call."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


def small(folder: Path, **changes: object) -> MessageStore:
    changes = {"mapper_file_size_batch_consume_queue": PER_SEGMENT * 46, **changes}
    return small_store(folder, TickingClock(), batch_topics="B", **changes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(small(tmp_path / "store")) as store:
        yield store


def put(store: MessageStore, count: int, tag: str = "", size: int = 10) -> int:
    """Store one message, or an inner batch of more; its queue offset."""
    tags = f"TAGS\x01{tag}\x02" if tag else ""
    if count == 1:
        code = tags_code(tag)
        result = store.append(NewRecord("B", 0, b"x" * size, f"UNIQ_KEY\x01K\x02{tags}".encode(), tags_code=code))
    else:
        body = encode_batch((0, b"x" * size, tags.encode()) for _ in range(count))
        result = store.append(NewRecord("B", 0, body, b"INNER_NUM\x01%d\x02" % count, sys_flag=0xC0))
    assert result.status is PutStatus.PUT_OK, result.remark
    return result.queue_offset


def bases(store: MessageStore, offset: int, limit: int, **how: object) -> list[int]:
    return [decode_record(part).queue_offset for part in read_now(store, "B", 0, offset, limit, **how).parts]  # type: ignore[arg-type]


# units


@given(st.tuples(I64, st.integers(-(1 << 31), (1 << 31) - 1), I64, I64, I64, st.integers(-(1 << 15), (1 << 15) - 1)))
def test_units_read_back_as_they_were_written(fields: tuple[int, ...]) -> None:
    data = BATCH_UNIT.pack(*fields, -1)
    assert len(data) == BATCH_UNIT_SIZE == 46
    unit = unit_at(memoryview(b"?" * 7 + data), 7)
    assert unit == BatchUnit(*fields)
    assert data[38:] == b"\xff\xff\xff\xff\0\0\0\0"
    physical, size, _, _, base, messages = fields
    assert unit.valid == (physical >= 0 and size > 0 and base >= 0 and messages > 0)


@costly(0.4, fixtures=True)  # a queue in files of its own an example
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=40))
def test_looking_up_agrees_with_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]]
) -> None:
    """Of messages, gap before them, time since the record before."""
    queue = BatchQueue(tmp_path_factory.mktemp("queue"), "B", 0, PER_SEGMENT * 46)
    units: list[BatchUnit] = []
    base, when = steps[0][1], 100
    for number, (messages, gap, later) in enumerate(steps):
        base, when = base + gap, when + later
        if messages > 1:
            queue.expect(base, messages)
        assert queue.put(base, number * 100, 100, number, when)
        assert not queue.put(base, number * 100, 100, number, when)
        units.append(BatchUnit(number * 100, 100, number, when, base, messages))
        base += messages
    for _ in range(2):
        assert (queue.min_offset, queue.max_offset, queue.max_physical) == (units[0].base, base, len(units) * 100)
        for offset in {edge + by for unit in units for edge in (unit.base, unit.end) for by in (-1, 0, 1)} - {-1}:
            holding = [unit for unit in units if unit.base <= offset < unit.end]
            assert queue.unit(offset) == (holding[0][:3] if holding else None)
            spans = list(queue.spans(queue.find(offset)))
            found = [unit_at(one.view, at) for one, start, end in spans for at in range(start, end, BATCH_UNIT_SIZE)]
            assert found == [unit for unit in units if unit.end > offset]
        for timestamp in range(99, when + 2):
            at_or_after = [unit.base for unit in units if unit.store_timestamp >= timestamp]
            up_to = [unit.base for unit in units if unit.store_timestamp <= timestamp]
            lower = at_or_after[0] if at_or_after else units[-1].base
            assert at_once(queue.time_steps(timestamp, upper=False)) == lower
            assert at_once(queue.time_steps(timestamp, upper=True)) == (up_to[-1] if up_to else units[0].base)
        queue.recover(thorough=False)
    for kept in range(len(units), -1, -1):
        queue.recover(kept * 100)
        assert queue.max_offset == (units[kept - 1].end if kept else 0)
        assert queue.end == kept * 46
    queue.close()


def test_segments_that_have_expired_move_the_min_offset(tmp_path: Path) -> None:
    queue = BatchQueue(tmp_path, "B", 0, PER_SEGMENT * 46)
    for number in range(12):
        queue.expect(number * 3, 3)
        queue.put(number * 3, number * 100, 100, 0, number)
    for smallest, minimum in ((0, 0), (50, 3), (100, 3), (450, 15), (701, 24), (1100, 33), (1101, 36), (5000, 36)):
        queue.correct_min_offset(smallest)
        assert queue.min_offset == minimum
    queue.correct_min_offset(700)
    assert len(at_once(queue.expire_steps(700))) == 1
    queue.correct_min_offset(700)
    assert (queue.min_offset, queue.first_physical(), queue.unit(14), queue.unit(21)) == (21, 500, None, (700, 100, 0))
    queue.recover()
    assert (queue.min_offset, queue.max_offset) == (15, 36)
    queue.close()


# puts


def test_inner_batches_advance_the_queue_by_their_messages(store: MessageStore) -> None:
    assert [put(store, count) for count in (1, 3, 1, 20, 2)] == [0, 1, 4, 5, 25]
    assert (store.max_offset("B", 0), store.max_offset("B", 0, committed=False)) == (27, 27)
    first = decode_record(read_now(store, "B", 0, 5, 1).parts[0])
    assert decode_properties(first.properties) == {"INNER_NUM": "20", "INNER_BASE": "5"}


@pytest.mark.parametrize(
    ("topic", "properties", "sys_flag", "text"),
    [
        ("S", b"INNER_NUM\x012\x02", 0xC0, "not BatchCQ"),
        ("B", b"", 0xC0, "INNER_NUM"),
        ("B", b"INNER_NUM\x010\x02", 0xC0, "INNER_NUM"),
        ("B", b"INNER_NUM\x0132768\x02", 0xC0, "INNER_NUM"),
        ("B", b"INNER_NUM\x012\x02", 0xC4, "transaction"),
    ],
)
def test_what_is_no_inner_batch_is_refused(
    store: MessageStore, topic: str, properties: bytes, sys_flag: int, text: str
) -> None:
    refused = store.append(NewRecord(topic, 0, b"x", properties, sys_flag=sys_flag))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert text in refused.remark
    assert store.end_offset == 0


def test_an_inner_batch_may_be_as_long_as_any_message(store: MessageStore) -> None:
    long = NewRecord("B", 0, b"x" * (4 << 20 | 1), b"INNER_NUM\x012\x02", sys_flag=0xC0)
    assert "maxMessageSize" in store.append(long).remark


# reads


def test_a_read_takes_whole_records_within_the_limits(store: MessageStore) -> None:
    for count in (3, 5, 1, 30, 2, 40, 1):
        put(store, count)
    assert bases(store, 0, 1) == [0]
    assert bases(store, 0, 7) == [0]
    assert bases(store, 0, 8) == [0, 3]
    assert bases(store, 2, 9) == [0, 3, 8]
    assert bases(store, 9, 32) == [9, 39]
    assert bases(store, 41, 32) == [41], "the first record is never too much"
    middle = read_now(store, "B", 0, 50, 1)
    assert (middle.status, middle.next_offset, middle.count) == (GetStatus.FOUND, 81, 40)
    assert read_now(store, "B", 0, 3, 32, max_bytes=1).next_offset == 8
    assert bases(store, 81, 32) == [81]


def test_reads_outside_the_queue_say_so(store: MessageStore) -> None:
    assert read_now(store, "B", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    store.arrived("B", 0)
    assert read_now(store, "B", 0, 5, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    put(store, 4)
    for offset, status, following in ((4, "OFFSET_OVERFLOW_ONE", 4), (5, "OFFSET_OVERFLOW_BADLY", 4)):
        result = read_now(store, "B", 0, offset, 1)
        assert (result.status.name, result.next_offset, result.max_offset) == (status, following, 4)


def test_a_read_in_vain_looks_at_few_units(tmp_path: Path) -> None:
    with opened(
        small(tmp_path / "s", max_filter_message_size=460, mapper_file_size_batch_consume_queue=46 * 1000)
    ) as store:
        for _ in range(30):
            put(store, 1, "A")
        nothing = read_now(store, "B", 0, 0, 1, frozenset({tags_code("Z")}))
        assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


def test_who_looks_into_records_may_end_the_read_before_one(store: MessageStore) -> None:
    for _ in range(6):
        put(store, 3)
    seen: list[int] = []

    def look(record: memoryview) -> bool | None:
        seen.append(decode_record(record).queue_offset)
        return None if len(seen) > 2 else False

    result = read_now(store, "B", 0, 3, 32, accept=look)
    assert (result.status, result.next_offset, seen) == (GetStatus.NO_MATCHED_MESSAGE, 9, [3, 6, 9])
    result = read_now(store, "B", 0, 9, 32, accept=lambda _: None)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 9)


def test_tags_leave_out_single_messages_and_no_batch(store: MessageStore) -> None:
    for count, tag in ((1, "A"), (2, "A"), (1, "B"), (1, "")):
        put(store, count, tag)
    assert bases(store, 0, 32, tag_codes=frozenset({tags_code("A")})) == [0, 1]
    assert bases(store, 0, 32, tag_codes=frozenset({tags_code("B")})) == [1, 3]


def test_batches_that_have_left_the_memory_are_fetched_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(small(tmp_path / "s")) as store:
        for count in (3, 1, 2):
            put(store, count, "A")
    fetched: list[tuple[int, int]] = []
    monkeypatch.setattr(HeldMap, "fetch", lambda _, start, end: fetched.append((start, end)))
    monkeypatch.setattr(Segment, "resident", lambda *_: bool(fetched))

    async def main() -> None:
        async with small(tmp_path / "s") as store:
            found = store.read(ReadRequest("B", 0, 1, 32, frozenset({tags_code("A")})))
            assert inspect.isawaitable(found)
            found = await found
            assert (found.status, found.next_offset, found.count) == (GetStatus.FOUND, 6, 6)
            assert fetched

    asyncio.run(main())


def test_who_waits_is_notified_of_the_last_message_of_a_batch(store: MessageStore) -> None:
    arrived = store.arrived("B", 0)
    put(store, 7)
    assert arrived.value == 7


# recovery


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", [None, "batchconsumequeue", "proved.json", "torn"])
def test_units_are_found_again_or_rebuilt(tmp_path: Path, lost: str | None, *, crashed: bool) -> None:
    root = tmp_path / "store"
    with opened(small(root)) as store:
        counts = [1, 4, 1, 1, 9, 2, 1, 1, 1, 3, 1, 30]
        expected = [put(store, count) for count in counts]
    queue = root / "batchconsumequeue" / "B" / "0"
    before = {path.name: path.read_bytes() for path in queue.iterdir()}
    assert sorted(before) == ["0" * 20, f"{230:020d}", f"{460:020d}"]
    if lost == "torn":
        os.truncate(queue / f"{230:020d}", 100)
    elif lost == "proved.json":
        (root / lost).unlink()
    elif lost:
        shutil.rmtree(root / lost)
    if crashed:
        (root / "abort").write_text("1")
    with opened(small(root)) as store:
        assert store.report.clean is not crashed
        assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, sum(counts))
        assert [record.queue_offset for record in read_queue(store, "B")] == expected
        assert put(store, 2) == sum(counts)
    after = {path.name: path.read_bytes() for path in queue.iterdir()}
    last = max(before)
    for name, content in before.items():
        written = 2 * 46 if name == last else len(content)
        assert after[name][:written] == content[:written]


@costly(0.2, fixtures=True)
@example(units=[(0, 7)])
@example(units=[(0, 224), (1, 224)])
@example(units=[(10, 0), (11, 0)])
@example(units=[(9, 7 * 8), (10, 28 * 8), (11, 36 * 8)])
@example(units=[(number, 0) for number in range(12)])
@given(units=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 42 * 8 - 1)), min_size=1, max_size=6))
def test_several_units_may_be_broken(tmp_path: Path, units: list[tuple[int, int]]) -> None:
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    with opened(small(root)) as store:
        counts = [1, 4, 1, 1, 9, 2, 1, 1, 1, 3, 1, 30]
        expected = [put(store, count) for count in counts]
    for number, bit in units:
        flip(
            root / "batchconsumequeue" / "B" / "0" / f"{number // PER_SEGMENT * PER_SEGMENT * BATCH_UNIT_SIZE:020d}",
            number % PER_SEGMENT * BATCH_UNIT_SIZE + bit // 8,
            1 << bit % 8,
        )
    with opened(small(root)) as store:
        assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, sum(counts))
        assert [record.queue_offset for record in read_queue(store, "B")] == expected


def test_a_topic_is_of_the_type_that_the_broker_wrote_down(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = root / "config" / "topics.json"
    config.parent.mkdir(parents=True)
    table = {"B": {"attributes": {"queue.type": "BatchCQ"}}, "S": {"attributes": {}}}
    config.write_text(json.dumps({"topicConfigTable": table}))
    with opened(small_store(root)) as store:
        for topic in ("B", "S"):
            assert store.append(NewRecord(topic, 0, b"x", b"")).status is PutStatus.PUT_OK
    assert (root / "batchconsumequeue" / "B" / "0").is_dir()
    assert (root / "consumequeue" / "S" / "0").is_dir()
    (root / "consumequeue" / "S").rename(root / "batchconsumequeue" / "S")
    with pytest.raises(StoreUnreadable, match=r"batchconsumequeue/S: the topic's queue type is SimpleCQ.*delete"):
        MessageStore(store.settings).open()


def test_records_that_lie_in_the_log_still_tell_the_type(tmp_path: Path) -> None:
    """A crash right after the first message of a topic, whose queue never reached the disk."""
    root = tmp_path / "store"
    with opened(small(root)) as store:
        put(store, 5)
    shutil.rmtree(root / "batchconsumequeue")
    (root / "abort").write_text("1")
    with opened(MessageStore(store.settings)) as store:
        assert (store.max_offset("B", 0), bases(store, 3, 1)) == (5, [0])


def test_no_batch_is_split_by_a_kill_between_two_messages(tmp_path: Path) -> None:
    with opened(small(tmp_path / "store")) as store:
        offsets = [put(store, 1 + number % 3) for number in range(40)]
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    (tmp_path / "killed" / "abort").write_text("1")
    with opened(small(tmp_path / "killed")) as killed:
        assert killed.max_offset("B", 0) == offsets[-1] + 1
        for offset, following in pairwise(offsets):
            assert read_now(killed, "B", 0, offset, 1).next_offset == following


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"), [(99, 0, 0), (100, 0, 0), (235, 14, 13), (230, 13, 13), (999, 19, 19)]
)
def test_the_end_of_a_range_of_time_is_the_last_record_before_it(
    tmp_path: Path, timestamp: int, lower: int, upper: int
) -> None:
    """RocketMQ 5.3.3 returns the queue's min offset instead, because its search fails (store.md §14.2)."""
    queue = BatchQueue(tmp_path, "B", 0, 100 * 46)
    for number in range(20):
        assert queue.put(number, number * 100, 100, 0, 100 + 10 * number)
    assert at_once(queue.time_steps(timestamp, upper=False)) == lower
    assert at_once(queue.time_steps(timestamp, upper=True)) == upper
    queue.close()
