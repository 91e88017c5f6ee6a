"""Reading the store: messages of queues, and single ones by key, place or time (store.md §14, §8.6)."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Coroutine
from typing import Any

from tianzhou.store.batchqueue import BatchQueue
from tianzhou.store.batchreading import read_batch_queue
from tianzhou.store.coldreads import ROUNDS, Missing
from tianzhou.store.parts import StoreParts
from tianzhou.store.reading import MAX_BYTES, offset_at_time, read_queue, time_of
from tianzhou.store.results import GetResult, GetStatus, QueryResult


class StoreReads(StoreParts):
    """Finds messages."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on, within the limits of one read (store.md §14.1).

        Args:
            topic: topic.
            queue_id: queue.
            offset: first queue offset wanted.
            max_messages: at most so many.
            tag_codes: codes of the wanted tags; None for all messages.
            max_bytes: at most so many bytes, unless the first message alone is longer.
            accept: looks at a record that the tags let through; false leaves it out.
        """
        try:
            queue = self._queues[topic][queue_id]
        except KeyError:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        limit = MAX_BYTES if max_bytes is None else min(max_bytes, MAX_BYTES)
        if isinstance(queue, BatchQueue):
            return read_batch_queue(self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept)
        return read_queue(self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult | Coroutine[Any, Any, GetResult]:
        """As `get`, without stopping the loop for messages that have left the memory.

        Returns:
            The messages when they are in memory, otherwise a coroutine that returns them when they are.
        """
        missing = self._missing(topic, queue_id, offset, max_messages, tag_codes, max_bytes)
        if missing:
            return self._read_cold(missing, topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)
        return self.get(topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)

    def _missing(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
    ) -> Missing:
        queue = self._known(topic, queue_id)
        if queue is None:
            return []
        limits = self._limits.of(max_messages, MAX_BYTES if max_bytes is None else max_bytes)
        units = max(self._limits.units, max_messages)
        return self._cold.missing(queue, offset, units, limits.count_in_memory, limits.bytes_in_memory, tag_codes)

    async def _read_cold(
        self,
        missing: Missing,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
        accept: Callable[[memoryview], bool] | None,
    ) -> GetResult:
        for _ in range(ROUNDS):
            await self._cold.fetch(missing)
            missing = self._missing(topic, queue_id, offset, max_messages, tag_codes, max_bytes)
            if not missing:
                break
        return self.get(topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Smallest offset of a queue; -1 when it is unknown."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Next offset of a queue, 0 when it is unknown.

        Args:
            topic: topic.
            queue_id: queue.
            committed: what can be read; otherwise what has been stored, which may be a little more.
        """
        queue = self._known(topic, queue_id)
        if queue is None:
            return 0
        return queue.max_offset if committed else queue.next_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """Queue offset at a store time in ms (store.md §14.2); 0 for an unknown queue.

        Args:
            topic: topic.
            queue_id: queue.
            timestamp: ms.
            upper: the last message at or before the time instead of the first at or after it.
        """
        queue = self._known(topic, queue_id)
        if isinstance(queue, BatchQueue):
            return queue.offset_at_time(timestamp, upper=upper)
        return 0 if queue is None else offset_at_time(self._log, queue, timestamp, upper=upper)

    async def find_offset(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """As `offset_by_time`, without stopping the loop for messages that have left the memory."""
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        queue = self._known(topic, queue_id)
        while queue is not None and not isinstance(queue, BatchQueue) and low < high:
            # The same places as the search itself will look at.
            middle = (low + high) // 2
            if missing := self._cold.missing(queue, middle, 1, 1, 1, None):
                await self._cold.fetch(missing)
            stored = time_of(self._log, queue, middle)
            if stored < timestamp or (upper and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        return self.offset_by_time(topic, queue_id, timestamp, upper=upper)

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message, ms; -1 when there is none at the offset."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else time_of(self._log, queue, offset)

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Commit-log offset, size and tags code of a queue offset's unit; None when the queue does not have it."""
        queue = self._known(topic, queue_id)
        return None if queue is None else queue.unit(offset)

    def read_ahead(self, wanted: bool) -> None:
        """Tell the system whether the log's present segments are read in order, or at random."""
        self.settings.data_read_ahead_enable = wanted
        for segment in self._log.files:
            segment.advise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the queue's oldest message, ms; -1 when it has none."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else time_of(self._log, queue, queue.min_offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at a commit-log offset; None when none does."""
        return self._log.record_at(physical_offset)

    def query(self, topic: str, key: str, max_num: int, begin: int = 0, end: int = (1 << 63) - 1) -> QueryResult:
        """Records whose topic and key have the given ones' hash, in log order (store.md §8.6).

        Args:
            topic: topic.
            key: a unique key or one of the message's keys.
            max_num: at most so many, and at most `maxMsgsNumBatch`; the newest are taken.
            begin: not stored before, ms.
            end: not stored after, ms.
        """
        index = self._index
        if index is None:
            return QueryResult([], [])
        offsets = sorted(index.query(topic, key, max_num, begin, end))
        if not offsets:
            return QueryResult([], [])
        parts, found = [], []
        for offset in offsets:
            record = self._log.record_at(offset)
            if record is not None:
                parts.append(record)
                found.append(offset)
        return QueryResult(parts, found, index.end_timestamp, max(index.end_offset, 0))

    def topics(self) -> list[str]:
        """Topics that have or had messages."""
        return [topic for topic, queues in self._queues.items() if any(q.next_offset for q in queues.values())]

    def queues(self, topic: str) -> list[int]:
        """Queues of a topic that have or had messages, in order."""
        return sorted(n for n, queue in self._queues.get(topic, {}).items() if queue.next_offset)
