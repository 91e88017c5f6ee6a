"""Statuses, limits and look-ups of reads (store.md §8.6, §14)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_store import by_key, opened, small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.records.codec import decode_record
from tianzhou.store import GetStatus, MessageStore, NewRecord
from tianzhou.store.files.lookup_steps import at_once
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.wire.hashing import index_hash, tags_code


class SteppedClock:
    """Moves by a fixed step at every reading."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now
        self.step = 0

    def now_ms(self) -> int:
        self.now += self.step
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def store(tmp_path: Path, clock: SteppedClock) -> Iterator[MessageStore]:
    with opened(small_store(tmp_path, clock, mapped_file_size_commit_log=1 << 20, max_index_num=50)) as store:
        yield store


def put(
    store: MessageStore, count: int = 1, *, tag: str = "", size: int = 10, queue_id: int = 0, **changes: str
) -> None:
    for _ in range(count):
        properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
        store.append(
            NewRecord("T", queue_id, b"x" * size, properties, tags_code=tags_code(tag), **changes)  # type: ignore[arg-type]
        )


def test_statuses_follow_the_table(store: MessageStore) -> None:
    assert read_now(store, "T", 0, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    store.arrived("T", 0)
    assert read_now(store, "T", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    put(store, 5)
    found = read_now(store, "T", 0, 2, 32)
    assert (found.status, found.next_offset, found.count) == (GetStatus.FOUND, 5, 3)
    assert (found.min_offset, found.max_offset) == (0, 5)
    assert (read_now(store, "T", 0, 5, 32).status, read_now(store, "T", 0, 5, 32).next_offset) == (
        GetStatus.OFFSET_OVERFLOW_ONE,
        5,
    )
    badly = read_now(store, "T", 0, 9, 32)
    assert (badly.status, badly.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5)
    small = read_now(store, "T", 0, -1, 32)
    assert (small.status, small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
    missed = read_now(store, "T", 0, 1, 32, frozenset({99}))
    assert (missed.status, missed.next_offset, missed.count) == (GetStatus.NO_MATCHED_MESSAGE, 5, 0)


def test_a_read_ends_with_the_queue_segment_when_it_has_found_nothing(store: MessageStore) -> None:
    """Here a segment has 20 units, and a read uses one segment (travelCqFileNumWhenGetMessage)."""
    put(store, 45, tag="a")
    put(store, 1, tag="b")
    steps = []
    position = 0
    while True:
        result = read_now(store, "T", 0, position, 32, frozenset({tags_code("b")}))
        position = result.next_offset
        steps.append(position)
        if result.status is not GetStatus.NO_MATCHED_MESSAGE:
            break
    assert (steps, result.status) == ([20, 40, 46], GetStatus.FOUND)


def test_count_and_bytes_limit_a_read(store: MessageStore) -> None:
    put(store, 15)
    assert read_now(store, "T", 0, 0, 4).count == 4
    one = len(read_now(store, "T", 0, 0, 1).parts[0])
    assert read_now(store, "T", 0, 0, 10, max_bytes=one * 3).count == 3
    assert read_now(store, "T", 0, 0, 10, max_bytes=1).count == 1
    put(store, 4, size=100_000, queue_id=1)
    assert read_now(store, "T", 1, 0, 32).count == 2  # maxTransferBytesOnMessageInMemory is 262,144


def test_messages_that_have_left_memory_come_in_small_portions(store: MessageStore) -> None:
    put(store, 18, size=100)
    StoreProbe(store).bound_memory(ReadLimits(store.settings, memory=2500).memory_bound)  # 1,000 bytes
    far = read_now(store, "T", 0, 0, 32)
    assert (far.count, far.suggest_slave) == (8, True)
    near = read_now(store, "T", 0, 16, 32)
    assert (near.count, near.suggest_slave) == (2, False)


def test_limits_of_reads_follow_settings_that_are_changed_while_the_store_runs(store: MessageStore) -> None:
    put(store, 18, size=100)
    assert read_now(store, "T", 0, 0, 32).count == 18
    store.settings.access_message_in_memory_max_ratio = 0
    store.settings_changed()
    far = read_now(store, "T", 0, 0, 32)
    assert (far.count, far.suggest_slave) == (8, True)
    store.settings.access_message_in_memory_max_ratio = 40
    store.settings.max_filter_message_size = 3 * 20
    store.settings_changed()
    nothing = read_now(store, "T", 0, 0, 1, tag_codes=frozenset({5}))
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 3)


def test_a_read_can_look_into_the_record(store: MessageStore) -> None:
    for number in range(10):
        put(store, size=number)
    result = read_now(store, "T", 0, 0, 32, accept=lambda record: len(decode_record(record).body) % 2 == 0)
    assert [len(decode_record(part).body) for part in result.parts] == [0, 2, 4, 6, 8]
    assert result.next_offset == 10


@pytest.mark.parametrize("found", [True, False])
def test_who_looks_into_records_may_end_the_read_before_one(store: MessageStore, found: bool) -> None:
    for number in range(10):
        put(store, size=number)
    seen: list[int] = []

    def look(record: memoryview) -> bool | None:
        seen.append(len(decode_record(record).body))
        return None if len(seen) > 4 else found

    result = read_now(store, "T", 0, 2, 32, accept=look)
    assert [len(decode_record(part).body) for part in result.parts] == ([2, 3, 4, 5] if found else [])
    assert result.status is (GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE)
    assert (result.next_offset, seen[:5]) == (6, [2, 3, 4, 5, 6])


def test_views_outlive_the_store(store: MessageStore) -> None:
    put(store, 3)
    part = read_now(store, "T", 0, 1, 1).parts[0]
    before = bytes(part)
    store.close_now()
    assert bytes(part) == before
    assert decode_record(part, check_crc=True).queue_offset == 1


def test_times_and_offsets(store: MessageStore, clock: SteppedClock) -> None:
    assert at_once(store.lookups.offset_steps("T", 0, 5)) == 0
    for now in (100, 200, 200, 200, 300):
        clock.now = now
        put(store)
    lower = {when: at_once(store.lookups.offset_steps("T", 0, when)) for when in (0, 100, 150, 200, 250, 300, 999)}
    assert lower == {0: 0, 100: 0, 150: 1, 200: 1, 250: 4, 300: 4, 999: 5}
    upper = {
        when: at_once(store.lookups.offset_steps("T", 0, when, upper=True))
        for when in (0, 100, 150, 200, 250, 300, 999)
    }
    assert upper == {0: 0, 100: 0, 150: 0, 200: 3, 250: 3, 300: 4, 999: 4}
    assert [at_once(store.lookups.time_steps("T", 0, n)) for n in (-1, 0, 4, 5)] == [-1, 100, 300, -1]
    assert at_once(store.lookups.first_time_steps("T", 0)) == 100
    assert at_once(store.lookups.first_time_steps("T", 9)) == -1


def test_offsets_of_queues_that_nobody_knows(store: MessageStore) -> None:
    assert (store.min_offset("X", 0), store.max_offset("X", 0)) == (-1, 0)
    assert store.topics() == []
    put(store, 2, queue_id=3)
    assert (store.topics(), store.queues("T")) == (["T"], [3])
    assert (store.min_offset("T", 3), store.max_offset("T", 3)) == (0, 2)


def test_no_record_begins_in_the_middle_of_one(store: MessageStore) -> None:
    put(store, 2)
    assert at_once(store.lookups.record_steps(0)) is not None
    assert at_once(store.lookups.record_steps(1)) is None
    assert at_once(store.lookups.record_steps(store.end_offset)) is None
    assert at_once(store.lookups.record_steps(-5)) is None
    assert at_once(store.lookups.record_steps(1 << 40)) is None


def test_keys_lead_to_records_across_index_files(store: MessageStore, tmp_path: Path, clock: SteppedClock) -> None:
    clock.step = 1000
    for number in range(200):
        put(store, uniq_key=f"U{number}", keys=f"k{number % 7}  all")
    assert len(list((tmp_path / "index").iterdir())) > 5
    for number in (0, 17, 48, 49, 50, 123, 199):
        (part,) = by_key(store, f"U{number}").parts
        assert decode_record(part).queue_offset == number
    assert len(by_key(store, "all", limit=1000).parts) == 64
    newest = by_key(store, "all", limit=3)
    assert [decode_record(part).queue_offset for part in newest.parts] == [197, 198, 199]
    assert newest.index_last_update_phyoffset == newest.physical_offsets[-1]
    times = [decode_record(part).store_timestamp for part in newest.parts]
    begin, end = times[0] - 60_000, times[0] - 30_000
    within = at_once(store.lookups.key_steps("T", "all", 64, begin, end))
    assert within.parts
    assert all(begin <= decode_record(part).store_timestamp <= end + 1000 for part in within.parts)
    assert by_key(store, "").parts == []
    assert at_once(store.lookups.key_steps("Other", "all", 10)).parts == []


def test_hashes_only_are_compared_in_the_index(store: MessageStore) -> None:
    assert index_hash("T", "AaAa") == index_hash("T", "BBBB")
    put(store, uniq_key="AaAa")
    put(store, uniq_key="BBBB")
    assert len(by_key(store, "AaAa").parts) == 2


def test_a_deleted_topic_is_gone_and_may_come_back(store: MessageStore, tmp_path: Path) -> None:
    put(store, 30)
    store.delete_topic("T")
    assert store.topics() == []
    assert read_now(store, "T", 0, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert not (tmp_path / "consumequeue" / "T").exists()
    put(store, 2)
    assert read_now(store, "T", 0, 0, 32).count == 2
