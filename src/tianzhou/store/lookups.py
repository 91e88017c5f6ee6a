"""Look-ups of single messages: by key, by place, by time (store.md §8.6, §14.2, §14.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.records.codec import decode_record, store_time
from tianzhou.records.walk import single_items, walk
from tianzhou.store.files.lookup_steps import Steps
from tianzhou.store.index.index import Index, key_hashes
from tianzhou.store.index.indexfile import IndexFile
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.reading import offset_steps, time_steps
from tianzhou.store.results import QueryResult
from tianzhou.wire.hashing import index_hash

_EVER: Final = (1 << 63) - 1
_QUERIES: Final = 2


class LookUps:
    """Finds single messages. Each look-up announces the ranges that it reads, and is run in one of three ways.

    `MessageStore.find` awaits it without blocking other clients. `MessageStore.take` runs it at once when it is short
    and all pages are in memory. `at_once` blocks the whole process for the disk.

    Args:
        log: the commit log.
        queues: the queues.
        index: the index; None without one.
    """

    def __init__(self, log: CommitLog, queues: OpenQueues, index: Index | None) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        if index is not None:
            index.store_time_steps = self.record_time_steps

    def key_steps(self, topic: str, key: str, max_num: int, begin: int = 0, end: int = _EVER) -> Steps[QueryResult]:
        """Return records of a topic with a key of the given one's hash, in log order (store.md §8.6).

        Index entries that point to other records are skipped.

        Args:
            topic: topic.
            key: a unique key or one of the message's keys.
            max_num: maximum number of records, and at most `maxMsgsNumBatch`; the newest ones are returned.
            begin: minimum store time, ms.
            end: maximum store time, ms.
        """
        index = self._index
        if index is None:
            return QueryResult([], [])
        sources: dict[int, IndexFile] = {}
        parts: list[memoryview] = []
        found: list[int] = []
        for _ in range(_QUERIES):
            missing = index.on_query
            sources.clear()
            parts, found, wrong = yield from self._query_steps(index, topic, key, max_num, begin, end, sources)
            if wrong is not None and not wrong.own:
                index.tell_damage(wrong)
            if index.on_query is missing:
                break
            # A file turned out to be damaged. While no other client is served, the next query completes the index.
        if not sources:
            return QueryResult([], [])
        return QueryResult(parts, found, index.end_timestamp, max(index.end_offset, 0))

    def _query_steps(
        self, index: Index, topic: str, key: str, max_num: int, begin: int, end: int, sources: dict[int, IndexFile]
    ) -> Steps[tuple[list[memoryview], list[int], IndexFile | None]]:
        """Return records and log offsets of `key_steps`, and a file with an entry for a wrong record.

        `sources` gets the file of every entry found, whether or not its record exists.
        """
        offsets = yield from index.query_steps(topic, key, max_num, begin, end, sources)
        parts, found = [], []
        wrong: IndexFile | None = None
        key_hash = index_hash(topic, key)
        for offset in sorted(offsets):
            record = yield from self._log.record_steps(offset)
            is_ours = sources[offset].own and offset >= self._log.checked.trusted_from
            if record is None:
                if not self._log.had_record(offset):
                    wrong = sources[offset]
                continue
            whole = decode_record(record)
            if not is_ours and key_hash not in key_hashes(whole.topic, whole.properties):
                wrong = sources[offset]
            elif whole.topic == topic:
                # A key with the same hash as a key of another topic is easy to construct.
                parts.append(record)
                found.append(offset)
        return parts, found, wrong

    def record_steps(self, physical_offset: int) -> Steps[memoryview | None]:
        """Return the record at a log offset; None without one."""
        return self._log.record_steps(physical_offset)

    def record_time_steps(self, physical_offset: int) -> Steps[int]:
        """Return the store time of the record at a log offset, ms; -1 without one."""
        record = yield from self._log.record_steps(physical_offset)
        return -1 if record is None else store_time(record)

    def offset_steps(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> Steps[int]:
        """Return the queue offset for a store time in ms (store.md §14.2); 0 for an unknown queue.

        Args:
            topic: topic.
            queue_id: queue.
            timestamp: ms.
            upper: whether to find the last message at or before the time instead of the first at or after it.
        """
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else (yield from offset_steps(self._log, queue, timestamp, upper=upper))

    def time_steps(self, topic: str, queue_id: int, offset: int) -> Steps[int]:
        """Return the store time of a message, ms; -1 when there is none at the offset."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else (yield from time_steps(self._log, queue, offset))

    def first_time_steps(self, topic: str, queue_id: int) -> Steps[int]:
        """Return the store time of a queue's oldest message, ms; -1 without one."""
        return self.time_steps(topic, queue_id, self._queues.min_offset(topic, queue_id))

    def records_from(self, start: int) -> Iterator[memoryview]:
        """Yield every intact record of the log from the offset of a record to its present end."""
        log, end = self._log, self._log.end
        if log.framed_from < end:
            yield from self._records_of_entries(start, end)
            return
        while start < end:
            record = log.record_at(start)
            if record is not None:
                yield record
                start += len(record)
                continue
            segment = log.files.find(start)
            if segment is None:
                return
            # After a damaged stretch the records continue; otherwise the segment has no room for another one.
            start = next((stop for begin, stop in log.damaged if begin <= start < stop), segment.end)

    def _records_of_entries(self, start: int, end: int) -> Iterator[memoryview]:
        log = self._log
        segments, index = log.files.segments, log.files.index_of(start)
        if index < 0:
            return
        steps = walk(segments, index, start - segments[index].start, trusted_end=0, framed_from=log.framed_from)
        for item in single_items(steps):
            if item.offset >= end:
                return
            record = log.read(item.offset, item.size) if item.entry is not None else None
            if record is not None:
                yield record
