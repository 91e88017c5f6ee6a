"""Reads of queues, at once or on threads beside the event loop (store.md §14.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from time import monotonic
from typing import Any, Final, Literal, overload

from tianzhou._hot import ReadyStretch
from tianzhou.store.coldreads import ROUNDS, ColdReads, Missing
from tianzhou.store.log.commitlog import CommitLog
from tianzhou.store.queues.batchqueue import BatchQueue
from tianzhou.store.queues.batchreading import read_batch_queue
from tianzhou.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.store.queues.open_queues import OpenQueues
from tianzhou.store.queues.read_limits import ReadLimits
from tianzhou.store.queues.reading import outside_queue, proof_of, read_queue
from tianzhou.store.queues.strays import StrayUnit, StrayUnits
from tianzhou.store.results import GetResult, GetStatus, ReadRequest
from tianzhou.store.upkeep.damage import LogDamage

_MENDS: Final = 100
"""Maximum stray units that one read rebuilds; it skips further ones."""


class ColdRead(Awaitable[GetResult]):
    """A read that needs the disk: pages that have left the memory, or stray units that must be rebuilt.

    Awaiting it returns the `GetResult`, and other requests are served meanwhile. It raises StoreError when the store is
    closed before that, or when the disk cannot be read. Dropping it has no effect.

    Args:
        fetched: reads from the disk.
        missing: byte ranges to fetch first; empty when all pages are in memory.
        request: the read.
    """

    __slots__ = ("_fetched", "_missing", "_request")

    def __init__(
        self,
        fetched: Callable[[Missing, ReadRequest], Coroutine[Any, Any, GetResult]],
        missing: Missing,
        request: ReadRequest,
    ) -> None:
        self._fetched, self._missing, self._request = fetched, missing, request

    def __await__(self) -> Generator[Any, Any, GetResult]:
        return self._fetched(self._missing, self._request).__await__()


class Reader:
    """Reads queues: `read` is the one entry for ranges in memory, ranges on the disk and stray units.

    Args:
        log: the commit log.
        queues: the queues.
        limits: limits of one read.
        cold: fetches pages that have left the memory.
        strays: rebuilds units that lead elsewhere.
        damage: requests good copies of broken records.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: OpenQueues,
        limits: ReadLimits,
        cold: ColdReads,
        strays: StrayUnits,
        damage: LogDamage,
    ) -> None:
        self._log = log
        self._find = queues.find
        self._limits = limits
        self._cold = cold
        self._strays = strays
        self._damage = damage

    @overload
    def read(self, request: ReadRequest) -> GetResult | ColdRead: ...

    @overload
    def read(self, request: ReadRequest, *, blocks: Literal[True]) -> GetResult: ...

    def read(self, request: ReadRequest, *, blocks: bool = False) -> GetResult | ColdRead:
        """Return messages of a queue, or a `ColdRead` when they must be fetched from the disk.

        A request that `goes_on` notes the stretch of the queue that was found in memory. The next read of the same
        request, with another offset, begins there.

        Args:
            request: the range, the filter and the limits.
            blocks: whether to read from the disk at once, while the event loop waits.

        Raises:
            StoreError: the disk cannot be read.
        """
        ready = request.ready
        if ready is not None:
            more = ready.read(request.offset, request.max_messages, request.tag_codes, monotonic())
            if more is not None:
                records, count, following, low, high, behind = more
                return GetResult(GetStatus.FOUND, following, low, high, records, count, behind)
            request.ready = None
        queue = self._find(request.topic, request.queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        if request.offset == queue.max_offset:
            # Most waiting consumers have all messages: return without a check of pages.
            return outside_queue(request.offset, queue.min_offset, queue.max_offset)
        if not blocks:
            missing = self._cold.missing(queue, request, self._limits)
            if missing:
                return ColdRead(self._fetched, missing, request)
        try:
            found = self._range(queue, request)
        except StrayUnit:
            return self._mended_here(queue, request) if blocks else ColdRead(self._fetched, [], request)
        if request.goes_on and found.status is GetStatus.FOUND:
            self._note_ready(queue, request)
        return found

    def _note_ready(self, queue: ConsumeQueue, request: ReadRequest) -> None:
        if type(queue) is not ConsumeQueue or request.accept is not None:
            return
        begin, end, until = self._cold.stretch(queue)
        segment = queue.files.find(request.offset * UNIT_SIZE)
        if segment is not None and begin <= request.offset:
            begin, end = max(begin, segment.start // UNIT_SIZE), min(end, segment.end // UNIT_SIZE)
            looked_at = max(self._limits.units, request.max_messages)
            limits = self._limits.of(request.max_messages, request.max_bytes)
            # Units of a light queue need more checks than `ReadyStretch` makes.
            prove = None if is_light(queue.topic) else partial(proof_of, self._log, queue)
            request.ready = ReadyStretch(self._log, queue, segment, begin, end, until, looked_at, limits, prove)

    async def _fetched(self, missing: Missing, request: ReadRequest) -> GetResult:
        """Return the messages of a range after its pages were fetched and its stray units rebuilt."""
        if missing:
            await self._cold.fetch(missing, ahead=True)
            queue = self._find(request.topic, request.queue_id)
            if isinstance(queue, BatchQueue):
                await self._cold.follow(queue.find_steps(request.offset))
        for _ in range(ROUNDS if missing else 0):
            queue = self._find(request.topic, request.queue_id)
            if queue is None:
                break
            missing = self._cold.missing(queue, request, self._limits)
            if not missing:
                break
            await self._cold.fetch(missing, ahead=True)
        queue = self._find(request.topic, request.queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        for _ in range(_MENDS):
            try:
                return self._range(queue, request)
            except StrayUnit as stray:
                if not await self._strays.mend(queue, stray.number):
                    break
                place = self._strays.place(queue, stray.number)
                if place is not None:
                    await self._damage.repair_soon(place)
        return self._range(queue, request, mends=False)

    def _mended_here(self, queue: ConsumeQueue, request: ReadRequest) -> GetResult:
        """Return the messages of a range after its stray units were rebuilt while the event loop waited."""
        for _ in range(_MENDS):
            try:
                return self._range(queue, request)
            except StrayUnit as stray:
                if not self._strays.mend_now(queue, stray.number):
                    break
        return self._range(queue, request, mends=False)

    def _range(self, queue: ConsumeQueue, request: ReadRequest, mends: bool = True) -> GetResult:
        strays = self._strays if mends else None
        if isinstance(queue, BatchQueue):
            return read_batch_queue(self._log, queue, self._limits, request, strays)
        return read_queue(self._log, queue, self._limits, request, strays)
