"""Scheduler of delayed messages: delivers them when they are due (broker.md §12).

One task per level, for within a level messages become due in the order they are stored. A task sleeps until its
first message is due, or until one arrives.
"""

from __future__ import annotations

import asyncio
import logging

from tianzhou.broker.delays.delay import waiting_room
from tianzhou.broker.messages.copies import copy_of
from tianzhou.broker.services import Services
from tianzhou.errors import CorruptRecord, StoreError
from tianzhou.model import names
from tianzhou.records.codec import Record, decode_record
from tianzhou.store.results import GetResult, GetStatus, NewRecord, PutStatus, ReadRequest
from tianzhou.wire.properties import decode_properties

RETRY_S = 0.1
LONGEST_SLEEP_S = 1.0
"""The wall clock may be set while a task sleeps, so it looks again this often."""
FAILED_S = 10.0
"""Pause after an unexpected failure."""
BATCH = 32
SETTLE_S = 0.5

_NOT_YET = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_log = logging.getLogger(__name__)


class DelayScheduler:
    """Moves due messages from the waiting queues to their topics.

    Args:
        services: of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._ledger = services.tables.delays
        self._store = services.store
        self._clock = services.clock
        self._stats = services.stats
        self._supervisor = services.supervisor

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for level in self._ledger.levels:
                    tasks.create_task(self._serve(level), name=f"delay level {level}")
                tasks.create_task(self._settle(), name="delay positions")
        except asyncio.CancelledError:
            # The store is closed next, and then the disk has everything.
            self._ledger.settled(self._ledger.offsets())
            raise

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_S)
            offsets, end = self._ledger.offsets(), self._store.end_offset
            try:
                await self._store.durability.lasting.reach(end)
            except StoreError:
                # A disk that refuses takes no positions either.
                return
            self._ledger.settled(offsets)

    async def _serve(self, level: int) -> None:
        work = f"delay level {level}"
        while True:
            pause = FAILED_S
            # One unexpected record must not stop a level for good; it is tried again.
            with self._supervisor.trial(work):
                pause = await self._step(level)
            if pause:
                await asyncio.sleep(pause)

    async def _step(self, level: int) -> float:
        """Deliver some of what is due; returns how long to wait before the next step."""
        topic, queue_id = waiting_room(level)
        ledger, store = self._ledger, self._store
        offset = ledger.offset(level)
        reading = store.read(ReadRequest(topic, queue_id, offset, BATCH))
        found = reading if isinstance(reading, GetResult) else await reading
        if found.status is not GetStatus.FOUND:
            if found.status in _NOT_YET and found.max_offset == offset:
                await store.arrived(topic, queue_id).reach(offset + 1)
                return 0
            fitting = ledger.fit(level, found.min_offset, found.max_offset)
            if fitting == offset and found.next_offset > offset:
                ledger.advance(level, found.next_offset, self._clock.now_ms())
            return 0 if ledger.offset(level) != offset else RETRY_S
        for view in found.parts:
            try:
                record = decode_record(view)
            except CorruptRecord as error:
                _log.error("delay level %d: skipping what is at offset %d: %s", level, offset, error)
                ledger.advance(level, offset + 1, self._clock.now_ms())
                return 0
            now = self._clock.now_ms()
            wait_ms = ledger.due_ms(level, record.store_timestamp, now) - now
            if wait_ms > 0:
                return min(wait_ms / 1000, LONGEST_SLEEP_S)
            if not self._deliver(level, record):
                return RETRY_S
            offset = record.queue_offset + 1
            ledger.advance(level, offset, now)
        # Others are served between two batches.
        await asyncio.sleep(0)
        return 0

    def _deliver(self, level: int, record: Record) -> bool:
        message = delivered(record)
        if message is None:
            _log.error(
                "delay level %d: the message at offset %d names no place to deliver it to; skipped",
                level,
                record.queue_offset,
            )
            return True
        result = self._store.append(message)
        if result.status is not PutStatus.PUT_OK:
            _log.warning(
                "delay level %d: the message at offset %d could not be delivered (%s %s); trying again",
                level,
                record.queue_offset,
                result.status.name,
                result.remark,
            )
            return False
        size = result.end_offset - result.physical_offset
        self._stats.delivered(level, message.topic, message.queue_id, size)
        return True


def delivered(record: Record) -> NewRecord | None:
    """Message to deliver for a waiting record, None when it lacks its topic or queue.

    The property text stays as it is: consumers see DELAY, REAL_TOPIC and REAL_QID, as with Apache.
    """
    properties = decode_properties(record.properties)
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic == names.HALF_TOPIC or not queue.isdigit():
        return None
    half_offset = record.prepared_transaction_offset
    return copy_of(record, topic, int(queue), properties, text=record.properties, half_offset=half_offset)
