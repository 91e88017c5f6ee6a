"""Stores with files so small that a few messages fill several, with helpers to fill and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store_reads import read_now
from tianzhou.records.codec import Record, decode_record
from tianzhou.store import MessageStore, NewRecord, QueryResult, StoreSettings
from tianzhou.store.files.lookup_steps import at_once

SEGMENT = 16_384
SLOTS = 50


def small_settings(folder: Path, **changes: Any) -> StoreSettings:
    """Return the settings of a small store, with changes."""
    small = {
        "store_path_root_dir": str(folder), "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 400, "max_hash_slot_num": SLOTS, "max_index_num": 100,
    }  # fmt: skip
    return StoreSettings(**{**small, **changes})


def small_store(
    folder: Path, clock: Any = None, *, batch_topics: Iterable[str] = (), most_maps: int | None = None, **changes: Any
) -> MessageStore:
    """Return a small store that is not open yet.

    Args:
        folder: its root.
        clock: as of `MessageStore`.
        batch_topics: topics of queue type BatchCQ.
        most_maps: as of `MessageStore`.
        changes: further settings that override those of `small_settings`.
    """
    store = MessageStore(small_settings(folder, **changes), clock, most_maps=most_maps)
    store.queue_kinds.batch_topics.update(batch_topics)
    return store


@contextmanager
def opened(store: MessageStore) -> Iterator[MessageStore]:
    """Yield the store, open without a loop, and close it afterwards."""
    store.open()
    try:
        yield store
    finally:
        store.close_now()


def fill(store: MessageStore, begin: int, end: int, topic: str = "T", *, queues: int = 3, repeat: int = 50) -> None:
    """Store messages of some numbers, in turn in several queues; each has two keys, `k` and `u` with its number."""
    for number in range(begin, end):
        keys = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{number}\x02".encode()
        body = b"%d " % number * repeat
        store.append(NewRecord(topic, number % queues, body, keys, keys=f"k{number}", uniq_key=f"u{number}"))


def read_queue(
    store: MessageStore,
    topic: str = "T",
    queue_id: int = 0,
    begin: int | None = None,
    tags: frozenset[int] | None = None,
) -> list[Record]:
    """Return all readable records of a queue, in order.

    Args:
        store: the store.
        topic: topic.
        queue_id: queue.
        begin: first queue offset; None for the queue's smallest.
        tags: only records with one of these tags codes.
    """
    position = max(store.min_offset(topic, queue_id), 0) if begin is None else begin
    found: list[Record] = []
    while position < store.max_offset(topic, queue_id):
        result = read_now(store, topic, queue_id, position, 32, tags)
        found += [decode_record(part, check_crc=True) for part in result.parts]
        assert result.next_offset > position
        position = result.next_offset
    return found


def number_of(record: Record) -> int:
    """Return the number of a message that `fill` stored."""
    return int(record.body.split()[0])


def numbers(store: MessageStore, topic: str = "T", *, queues: int = 3) -> list[int]:
    """Return the numbers of all readable messages of `fill`, by queue and then by offset."""
    return [number_of(record) for queue_id in range(queues) for record in read_queue(store, topic, queue_id)]


def by_key(store: MessageStore, key: str, topic: str = "T", limit: int = 10) -> QueryResult:
    """Return the result of a look-up by key."""
    return at_once(store.lookups.key_steps(topic, key, limit))


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Overwrite the bytes at a position of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bits: int) -> None:
    """Change bits of a byte of a file."""
    overwrite(path, position, bytes([path.read_bytes()[position] ^ bits]))
