"""Reads that resume from a previous read's position in memory return the same result as any read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_store import opened, small_store

from store_probe import StoreProbe
from store_reads import read_now
from tianzhou.store import GetResult, GetStatus, MessageStore, NewRecord, ReadRequest, coldreads, reader
from tianzhou.store.coldreads import RESIDENT_S, Missing
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.wire.hashing import tags_code

ODD, EVEN = tags_code("odd"), tags_code("even")


class Hand:
    """A clock that the test advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    hand = Hand()
    monkeypatch.setattr(reader, "monotonic", hand)
    monkeypatch.setattr(coldreads, "monotonic", hand)
    return hand


@pytest.fixture
def store(tmp_path: Path, hand: Hand) -> Iterator[MessageStore]:
    """Yield a store whose queue files have 20 units."""
    with opened(small_store(tmp_path, mapped_file_size_commit_log=1 << 16)) as store:
        yield store


def put(store: MessageStore, count: int, topic: str = "T") -> None:
    for _ in range(count):
        tag = "even" if store.max_offset(topic, 0, committed=False) % 2 == 0 else "odd"
        store.append(NewRecord(topic, 0, b"x" * 50, f"TAGS\x01{tag}\x02".encode(), tags_code=tags_code(tag)))


def queue_of(store: MessageStore) -> ConsumeQueue:
    queue = StoreProbe(store).queue("T", 0)
    assert queue is not None
    return queue


def shown(found: GetResult) -> tuple[object, ...]:
    """Return all fields of a result."""
    return found.status, found.next_offset, found.min_offset, found.max_offset, found.records, found.count


def read_on(store: MessageStore, request: ReadRequest, offset: int) -> tuple[object, ...]:
    request.offset = offset
    found = store.read(request)
    assert isinstance(found, GetResult), "all of it is in memory"
    return shown(found)


@pytest.mark.parametrize("codes", [None, frozenset({ODD}), frozenset({ODD, EVEN}), frozenset({7})])
@pytest.mark.parametrize("seed", range(8))
def test_a_read_that_goes_on_finds_what_others_do(
    store: MessageStore, hand: Hand, codes: frozenset[int] | None, seed: int
) -> None:
    """For any stores, expirations and reads in between."""
    dice = random.Random(seed)
    put(store, dice.randrange(1, 90))
    request = ReadRequest("T", 0, 0, dice.choice([1, 3, 8, 32]), codes, goes_on=True)
    offset = 0
    for _ in range(200):
        match dice.randrange(8):
            case 0:
                put(store, dice.randrange(30))
            case 1:
                hand.now += RESIDENT_S * dice.random()
            case 2:
                offset = dice.randrange(-2, store.max_offset("T", 0) + 3)
            case 3 if dice.random() < 0.2:
                queue = queue_of(store)
                queue.min_offset += dice.randrange(3)
            case 4 if dice.random() < 0.2:
                for segment in queue_of(store).files:
                    segment.let_go()
        found = read_on(store, request, offset)
        wanted = read_now(store, "T", 0, offset, request.max_messages, codes)
        assert found == shown(wanted)
        offset = wanted.next_offset


def test_where_to_look_is_found_out_once_for_several_reads(
    store: MessageStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For eight reads at most, and not longer than data is assumed to stay in memory."""
    put(store, 40)
    request, looks, look = ReadRequest("T", 0, 0, 2, goes_on=True), [], StoreProbe(store).cold_reads.missing

    def counted(queue: ConsumeQueue, request: ReadRequest, limits: ReadLimits) -> Missing:
        looks.append(request.offset)
        return look(queue, request, limits)

    monkeypatch.setattr(StoreProbe(store).cold_reads, "missing", counted)
    for offset in range(0, 16, 2):
        assert read_on(store, request, offset)[0] is GetStatus.FOUND
    assert looks == [0]
    assert read_on(store, request, 16)[0] is GetStatus.FOUND
    assert looks == [0, 16], "behind what was looked at"
    hand.now += RESIDENT_S
    assert read_on(store, request, 18)[0] is GetStatus.FOUND
    assert looks == [0, 16, 18], "later"


def test_what_is_to_be_proved_is_no_read_that_goes_on(store: MessageStore) -> None:
    """A unit read from the disk, a damaged range of the log, or a log read from the disk."""
    put(store, 30)
    request = ReadRequest("T", 0, 0, 4, goes_on=True)
    assert read_on(store, request, 0)[0] is GetStatus.FOUND
    assert request.ready is not None
    queue = queue_of(store)
    queue.trusted_from = 8
    assert read_on(store, request, 4) == shown(read_now(store, "T", 0, 4, 4))
    queue.trusted_from = 0
    first = store.queue_unit("T", 0, 8)
    assert first is not None
    StoreProbe(store).log.damaged.append((first[0], first[0] + first[1]))
    found = read_on(store, request, 8)
    assert found == shown(read_now(store, "T", 0, 8, 4))
    assert found[1] == 13, "the broken one is passed over"


def test_a_topic_that_is_made_again_is_another(store: MessageStore) -> None:
    put(store, 30)
    request = ReadRequest("T", 0, 0, 4, goes_on=True)
    assert read_on(store, request, 0)[0] is GetStatus.FOUND
    store.delete_topic("T")
    assert read_on(store, request, 4)[0] is GetStatus.NO_MATCHED_LOGIC_QUEUE
    put(store, 6)
    assert read_on(store, request, 4) == shown(read_now(store, "T", 0, 4, 4))
