"""Reading queues (store.md §14.1)."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tianzhou.store.coldreads import ROUNDS, Missing
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.batchreading import read_batch_queue
from tianzhou.store.queues.consumequeue import ConsumeQueue
from tianzhou.store.queues.extension import ExtensionUnit
from tianzhou.store.queues.reading import MAX_BYTES, read_queue
from tianzhou.store.queues.strays import StrayUnit
from tianzhou.store.results import GetResult, GetStatus
from tianzhou.store.state import StoreParts

logger = logging.getLogger(__name__)

PASSED_BYTES: Final = 4 << 20
"""So many bytes of records that a filter looks at are fetched before it does."""
_MENDS: Final = 100
Wanted = tuple[
    int, int, frozenset[int] | None, int | None, Callable[[memoryview], bool | None] | None,
    Callable[[ExtensionUnit], bool] | None,
]  # fmt: skip
"""What a reader wants of a queue: the arguments of `get`, without the queue."""


class StoreReads(StoreParts):
    """Reads queues."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool | None] | None = None,
        accept_unit: Callable[[ExtensionUnit], bool] | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on, within the limits of one read (store.md §14.1).

        Args:
            topic: topic.
            queue_id: queue.
            offset: first queue offset wanted.
            max_messages: at most so many.
            tag_codes: codes of the wanted tags; None for all messages.
            max_bytes: at most so many bytes, unless the first message alone is longer.
            accept: looks at a record that the tags let through; false leaves it out, None ends the read before it.
            accept_unit: looks at a record's extension unit, if it has one, before the record is touched; without
                `tag_codes` only.
        """
        queue = self._known(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        try:
            return self._get(queue, offset, max_messages, tag_codes, max_bytes, accept, accept_unit)
        except StrayUnit as stray:
            wanted = (offset, max_messages, tag_codes, max_bytes, accept, accept_unit)
            return self._get_mended(queue, stray.queue_offset, wanted)

    def _get_mended(self, queue: ConsumeQueue, stray: int, wanted: Wanted) -> GetResult:
        for _ in range(_MENDS):
            try:
                if not self._strays.mend_now(queue, stray):
                    break
                return self._get(queue, *wanted)
            except StrayUnit as another:
                stray = another.queue_offset
            except OSError as error:
                logger.error("queue %s/%d cannot be made anew: %s", queue.topic, queue.queue_id, error)
                break
        return self._get(queue, *wanted, strays=False)

    async def _read_mended(self, queue: ConsumeQueue, stray: int, wanted: Wanted) -> GetResult:
        for _ in range(_MENDS):
            try:
                await self._strays.mend(queue, stray)
                return self._get(queue, *wanted)
            except StrayUnit as another:
                stray = another.queue_offset
            except OSError as error:
                logger.error("queue %s/%d cannot be made anew: %s", queue.topic, queue.queue_id, error)
                break
        return self._get(queue, *wanted, strays=False)

    def _get(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
        accept: Callable[[memoryview], bool | None] | None,
        accept_unit: Callable[[ExtensionUnit], bool] | None,
        strays: bool = True,
    ) -> GetResult:
        limit = MAX_BYTES if max_bytes is None else min(max_bytes, MAX_BYTES)
        if isinstance(queue, BatchQueue):
            return read_batch_queue(self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept)
        return read_queue(
            self._log, queue, self._limits, offset, max_messages, tag_codes, limit, accept, accept_unit, strays
        )

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None = None,
        max_bytes: int | None = None,
        accept: Callable[[memoryview], bool | None] | None = None,
        accept_unit: Callable[[ExtensionUnit], bool] | None = None,
    ) -> GetResult | Coroutine[Any, Any, GetResult]:
        """As `get`, without stopping the loop for messages that have left the memory.

        Returns:
            The messages when they are in memory, otherwise a coroutine that returns them when they are. It raises
            StoreError when the store is closed meanwhile, or its disk cannot be read.
        """
        queue = self._known(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        missing = self._missing(queue, offset, max_messages, tag_codes, max_bytes, accept)
        if missing:
            return self._read_cold(
                missing, topic, queue_id, offset, max_messages, tag_codes, max_bytes, accept, accept_unit
            )
        try:
            return self._get(queue, offset, max_messages, tag_codes, max_bytes, accept, accept_unit)
        except StrayUnit as stray:
            wanted = (offset, max_messages, tag_codes, max_bytes, accept, accept_unit)
            return self._read_mended(queue, stray.queue_offset, wanted)

    def _missing(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        tag_codes: frozenset[int] | None,
        max_bytes: int | None,
        accept: Callable[[memoryview], bool | None] | None,
    ) -> Missing:
        limits = self._limits.of(max_messages, MAX_BYTES if max_bytes is None else max_bytes)
        units = max(self._limits.units, max_messages)
        if accept is not None:
            # What is passed over is looked at, too.
            return self._cold.missing(queue, offset, units, units, PASSED_BYTES, tag_codes)
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
        accept: Callable[[memoryview], bool | None] | None,
        accept_unit: Callable[[ExtensionUnit], bool] | None,
    ) -> GetResult:
        await self._cold.fetch(missing, ahead=True)
        queue = self._known(topic, queue_id)
        if isinstance(queue, BatchQueue):
            await self._cold.follow(queue.find_steps(offset))
        for _ in range(ROUNDS):
            queue = self._known(topic, queue_id)
            if queue is None:
                break
            missing = self._missing(queue, offset, max_messages, tag_codes, max_bytes, accept)
            if not missing:
                break
            await self._cold.fetch(missing, ahead=True)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        wanted = (offset, max_messages, tag_codes, max_bytes, accept, accept_unit)
        try:
            return self._get(queue, *wanted)
        except StrayUnit as stray:
            return await self._read_mended(queue, stray.queue_offset, wanted)

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

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Commit-log offset, size and tags code of a queue offset's unit; None when the queue does not have it."""
        queue = self._known(topic, queue_id)
        return None if queue is None else queue.unit(offset)

    def read_ahead(self, wanted: bool) -> None:
        """Tell the system whether the log's present segments are read in order, or at random."""
        self.settings.data_read_ahead_enable = wanted
        for segment in self._log.files:
            segment.advise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)

    def topics(self) -> list[str]:
        """Topics that have or had messages."""
        return [topic for topic, queues in self._queues.items() if any(q.next_offset for q in queues.values())]

    def queues(self, topic: str) -> list[int]:
        """Queues of a topic that have or had messages, in order."""
        return sorted(n for n, queue in self._queues.get(topic, {}).items() if queue.next_offset)
