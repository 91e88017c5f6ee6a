"""Finding single messages: by key, by place, by time (store.md §8.6, §14.2, §14.3).

Each look-up comes twice: at once, and as a coroutine that brings pages which have left the memory back beside the loop.
The second is for whoever serves others meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from tianzhou.store.files.lookup_steps import Steps, at_once
from tianzhou.store.log.record_scan import store_time
from tianzhou.store.queues.reading import offset_steps, time_steps
from tianzhou.store.results import QueryResult
from tianzhou.store.state import StoreParts

T = TypeVar("T")

_EVER: Final = (1 << 63) - 1


class StoreLookups(StoreParts):
    """Finds single messages."""

    def query(self, topic: str, key: str, max_num: int, begin: int = 0, end: int = _EVER) -> QueryResult:
        """Records whose topic and key have the given ones' hash, in log order (store.md §8.6).

        Args:
            topic: topic.
            key: a unique key or one of the message's keys.
            max_num: at most so many, and at most `maxMsgsNumBatch`; the newest are taken.
            begin: not stored before, ms.
            end: not stored after, ms.
        """
        return at_once(self._query_steps(topic, key, max_num, begin, end))

    async def find_by_key(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin: int = 0,
        end: int = _EVER,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> QueryResult:
        """As `query`, without stopping the loop for what has left the memory, or for long chains of keys.

        Args:
            topic: as of `query`, and so are the next four.
            key: likewise.
            max_num: likewise.
            begin: likewise.
            end: likewise.
            rest: called now and then, to let others have a turn.

        Raises:
            StoreError: the store was closed meanwhile, or its disk cannot be read.
        """
        return await self._cold.follow(self._query_steps(topic, key, max_num, begin, end), rest)

    def _query_steps(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Steps[QueryResult]:
        index = self._index
        if index is None:
            return QueryResult([], [])
        offsets = yield from index.query_steps(topic, key, max_num, begin, end)
        if not offsets:
            return QueryResult([], [])
        parts, found = [], []
        for offset in sorted(offsets):
            record = yield from self._log.record_steps(offset)
            if record is not None:
                parts.append(record)
                found.append(offset)
        return QueryResult(parts, found, index.end_timestamp, max(index.end_offset, 0))

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at a commit-log offset; None when none does."""
        return self._log.record_at(physical_offset)

    async def find_record(self, physical_offset: int) -> memoryview | None:
        """As `record_at`, without stopping the loop for what has left the memory; raises as `find_by_key`."""
        return await self._cold.follow(self._log.record_steps(physical_offset))

    def record_steps(self, physical_offset: int) -> Steps[memoryview | None]:
        """As `record_at`, for look-ups that look at more than one record; `take` runs them."""
        return self._log.record_steps(physical_offset)

    def key_steps(self, topic: str, key: str, max_num: int) -> Steps[QueryResult]:
        """As `query`, for look-ups that look further; `take` runs them."""
        return self._query_steps(topic, key, max_num, 0, _EVER)

    def take(self, steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
        """What a look-up finds: at once when all it looks at is in memory, else a coroutine to be awaited.

        It has the loop to itself between two steps that had nothing to wait for, so it may decide and act on what it
        has just found; but for long look-ups, which let others be served after some of them.

        Raises:
            StoreError: the store is closed.
        """
        return self._cold.take(steps)

    def records_from(self, start: int) -> Iterator[memoryview]:
        """Every intact record of the log from a position on, where a record begins, up to its present end."""
        log, end = self._log, self._log.end
        while start < end:
            record = log.record_at(start)
            if record is not None:
                yield record
                start += len(record)
                continue
            segment = log.files.find(start)
            if segment is None:
                return
            # Behind a damaged stretch the records go on; otherwise the segment has no room for another one.
            start = next((stop for begin, stop in log.damaged if begin <= start < stop), segment.end)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """Queue offset at a store time in ms (store.md §14.2); 0 for an unknown queue.

        Args:
            topic: topic.
            queue_id: queue.
            timestamp: ms.
            upper: the last message at or before the time instead of the first at or after it.
        """
        queue = self._known(topic, queue_id)
        return 0 if queue is None else at_once(offset_steps(self._log, queue, timestamp, upper=upper))

    async def find_offset(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """As `offset_by_time`, without stopping the loop for what has left the memory; raises as `find_by_key`."""
        queue = self._known(topic, queue_id)
        return 0 if queue is None else await self._cold.follow(offset_steps(self._log, queue, timestamp, upper=upper))

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message, ms; -1 when there is none at the offset."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else at_once(time_steps(self._log, queue, offset))

    async def find_store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """As `store_time_of`, without stopping the loop for what has left the memory; raises as `find_by_key`."""
        queue = self._known(topic, queue_id)
        return -1 if queue is None else await self._cold.follow(time_steps(self._log, queue, offset))

    async def find_store_time_at(self, physical_offset: int) -> int:
        """As `store_time_at`, without stopping the loop for what has left the memory; raises as `find_by_key`."""
        record = await self.find_record(physical_offset)
        return -1 if record is None else store_time(record)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the queue's oldest message, ms; -1 when it has none."""
        return self.store_time_of(topic, queue_id, self._begin_of(topic, queue_id))

    async def find_earliest_store_time(self, topic: str, queue_id: int) -> int:
        """As `earliest_store_time`, without stopping the loop; raises as `find_by_key`."""
        return await self.find_store_time(topic, queue_id, self._begin_of(topic, queue_id))

    def _begin_of(self, topic: str, queue_id: int) -> int:
        queue = self._known(topic, queue_id)
        return -1 if queue is None else queue.min_offset
