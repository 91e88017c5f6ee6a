"""Reading queues, at once or beside the loop (store.md §14.1)."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final

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
"""Stray units rebuilt for one read at most; it passes over further ones."""


class Reader:
    """Reads queues.

    Args:
        log: the commit log.
        queues: the queues.
        limits: of one read.
        cold: fetches what has left the memory.
        strays: rebuilds units that lead elsewhere.
        damage: knows of broken records, and may have them put right.
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

    def read_now(self, request: ReadRequest) -> GetResult:
        """Messages of a queue, whatever of them has left the memory."""
        queue = self._find(request.topic, request.queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        try:
            return self._read(queue, request)
        except StrayUnit:
            return self._read_mended_now(queue, request)

    def read(self, request: ReadRequest) -> GetResult | Coroutine[Any, Any, GetResult]:
        """Messages of a queue, without stopping the loop for those that have left the memory.

        Returns:
            The messages when they are in memory, otherwise a coroutine that returns them when they are. It raises
            StoreError when the store is closed meanwhile, or its disk cannot be read.
        """
        queue = self._find(request.topic, request.queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        if request.offset == queue.max_offset:
            # A consumer that has everything and waits for more, as most do: there is nothing to look at.
            return outside_queue(request.offset, queue.min_offset, queue.max_offset)
        missing = self._cold.missing(queue, request, self._limits)
        if missing:
            return self._read_cold(missing, request)
        try:
            return self._read(queue, request)
        except StrayUnit:
            return self._read_mended(queue, request)

    def read_ready(self, request: ReadRequest) -> GetResult | None:
        """Messages of a queue that are in memory, or that there is none yet at its end.

        What was found is noted in the request, whose next use may go on from it with another offset.

        Returns:
            None where there is anything else to be said or done about a read.
        """
        if request.ready is not None:
            more = request.ready.read(request.offset, request.max_messages, request.tag_codes, monotonic())
            if more is not None:
                records, count, following, low, high, behind = more
                return GetResult(GetStatus.FOUND, following, low, high, records, count, behind)
            request.ready = None
        queue = self._find(request.topic, request.queue_id)
        if queue is None or not queue.min_offset <= request.offset <= queue.max_offset or not queue.max_offset:
            return None
        if request.offset == queue.max_offset:
            return outside_queue(request.offset, queue.min_offset, queue.max_offset)
        if self._cold.missing(queue, request, self._limits):
            return None
        try:
            found = self._read(queue, request)
        except StrayUnit:
            return None
        if found.status is not GetStatus.FOUND:
            return None
        if type(queue) is ConsumeQueue and request.accept is None:
            self._note_ready(queue, request)
        return found

    def _note_ready(self, queue: ConsumeQueue, request: ReadRequest) -> None:
        begin, end, until = self._cold.stretch(queue)
        segment = queue.files.find(request.offset * UNIT_SIZE)
        if segment is not None and begin <= request.offset:
            begin, end = max(begin, segment.start // UNIT_SIZE), min(end, segment.end // UNIT_SIZE)
            looked_at = max(self._limits.units, request.max_messages)
            limits = self._limits.of(request.max_messages, request.max_bytes)
            # The units of a light queue have more to prove than a read of them does here.
            prove = None if is_light(queue.topic) else partial(proof_of, self._log, queue)
            request.ready = ReadyStretch(self._log, queue, segment, begin, end, until, looked_at, limits, prove)

    async def _read_cold(self, missing: Missing, request: ReadRequest) -> GetResult:
        await self._cold.fetch(missing, ahead=True)
        queue = self._find(request.topic, request.queue_id)
        if isinstance(queue, BatchQueue):
            await self._cold.follow(queue.find_steps(request.offset))
        for _ in range(ROUNDS):
            queue = self._find(request.topic, request.queue_id)
            if queue is None:
                break
            missing = self._cold.missing(queue, request, self._limits)
            if not missing:
                break
            await self._cold.fetch(missing, ahead=True)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        return await self._read_mended(queue, request)

    def _read_mended_now(self, queue: ConsumeQueue, request: ReadRequest) -> GetResult:
        for _ in range(_MENDS):
            try:
                return self._read(queue, request)
            except StrayUnit as stray:
                if not self._strays.mend_now(queue, stray.number):
                    break
        return self._read(queue, request, look=False)

    async def _read_mended(self, queue: ConsumeQueue, request: ReadRequest) -> GetResult:
        for _ in range(_MENDS):
            try:
                return self._read(queue, request)
            except StrayUnit as stray:
                if not await self._strays.mend(queue, stray.number):
                    break
                place = self._strays.place(queue, stray.number)
                if place is not None:
                    await self._damage.repair_soon(place)
        return self._read(queue, request, look=False)

    def _read(self, queue: ConsumeQueue, request: ReadRequest, look: bool = True) -> GetResult:
        strays = self._strays if look else None
        if isinstance(queue, BatchQueue):
            return read_batch_queue(self._log, queue, self._limits, request, strays)
        return read_queue(self._log, queue, self._limits, request, strays)
