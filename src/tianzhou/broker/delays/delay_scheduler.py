"""Scheduler that delivers delayed messages when they are due (broker.md §12).

Each level has a task, because the messages of a level become due in the order in which they were stored. A task sleeps
until its first message is due or a message arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tianzhou.broker.delays.delay import waiting_room
from tianzhou.broker.messages.copies import copy_of
from tianzhou.broker.messages.put_codes import remark_of
from tianzhou.broker.messages.retry_queues import readable_queue
from tianzhou.broker.services import Services
from tianzhou.broker.undeliverable.keeper import UndeliverableKeeper
from tianzhou.broker.undeliverable.ledger import DeliveryTries
from tianzhou.broker.undeliverable.set_aside import REPEATS, message_of, placeless
from tianzhou.errors import CorruptRecord, StoreError
from tianzhou.model import TopicConfig, names
from tianzhou.records.codec import Record, decode_record
from tianzhou.repeats import Repeats
from tianzhou.store.results import GetResult, GetStatus, NewRecord, PutStatus, ReadRequest
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import SetAsideMessage, UndeliverableWalk

RETRY_S = 0.1
MOST_RETRY_S = 1.0
"""Maximum seconds between two attempts after the store refused a message for a temporary cause."""
LONGEST_SLEEP_S = 1.0
"""Maximum seconds of a sleep, because the wall clock may be set meanwhile."""
FAILED_S = 10.0
"""Seconds to pause after an unexpected failure."""
BATCH = 32
SETTLE_S = 0.5

_NOT_YET = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_log = logging.getLogger(__name__)


class DelayScheduler:
    """Delivery of due messages from the queues of delay levels to their topics.

    Args:
        services: the broker's services.
    """

    def __init__(self, services: Services) -> None:
        self._ledger = services.tables.delays
        self._store = services.store
        self._clock = services.clock
        self._stats = services.stats
        self._supervisor = services.supervisor
        self._topics = services.tables.topics
        self._keeper = UndeliverableKeeper(services)
        self._tries = {level: DeliveryTries() for level in self._ledger.levels}
        self._refused_s = dict.fromkeys(self._ledger.levels, RETRY_S)
        self._complaints = Repeats()

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for level in self._ledger.levels:
                    tasks.create_task(self._serve(level), name=f"delay level {level}")
                tasks.create_task(self._settle(), name="delay positions")
        except asyncio.CancelledError:
            # The store is closed next, which flushes all messages.
            self._ledger.settled(self._ledger.offsets())
            raise

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_S)
            offsets, end = self._ledger.offsets(), self._store.end_offset
            try:
                await self._store.durability.lasting.reach(end)
            except StoreError:
                # The disk fails, so positions cannot be written either.
                return
            self._ledger.settled(offsets)

    async def _serve(self, level: int) -> None:
        work = f"delay level {level}"
        while True:
            pause = FAILED_S
            # Retry after an unexpected error, because one record must not stop a level.
            with self._supervisor.trial(work):
                pause = await self._step(level)
            if pause:
                await asyncio.sleep(pause)

    async def _step(self, level: int) -> float:
        """Deliver a batch of due messages; return the seconds to wait before the next step."""
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
            now = self._clock.now_ms()
            try:
                record = decode_record(view)
            except CorruptRecord as error:
                kept = SetAsideMessage(raw=bytes(view))
                if not self._keeper.set_aside(
                    UndeliverableWalk.DELAY, kept, -1, f"delay level {level}, offset {offset}: {error}"
                ):
                    return RETRY_S
                ledger.advance(level, offset + 1, now)
                return 0
            wait_ms = ledger.due_ms(level, record.store_timestamp, now) - now
            if wait_ms > 0:
                return min(wait_ms / 1000, LONGEST_SLEEP_S)
            pause = self._pass_on(level, record)
            if pause:
                return pause
            offset = record.queue_offset + 1
            ledger.advance(level, offset, now)
        # Let other requests run between two batches.
        await asyncio.sleep(0)
        return 0

    def _pass_on(self, level: int, record: Record) -> float:
        """Deliver a due message, or set it aside when it cannot be delivered.

        Returns:
            Seconds until the next attempt; 0 when the level can continue.
        """
        try:
            message = delivered(record, self._topics.get)
            result = None if message is None else self._store.append(message)
        except (OSError, MemoryError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages behind this one must not wait for it
            return self._failed(level, record, placeless(record), f"{type(error).__name__}: {error}", error)
        if message is None or result is None:
            return self._failed(level, record, placeless(record), "its properties name no topic and queue")
        if result.status in REPEATS:
            return self._failed(level, record, message_of(message), remark_of(result))
        if result.status is not PutStatus.PUT_OK:
            if (held := self._complaints.due((level, result.status), self._clock.monotonic())) is not None:
                _log.warning(
                    "delay level %d: the store does not take the message at offset %d now (%s); it is tried again%s",
                    level, record.queue_offset, remark_of(result), f", {held} such lines left out" if held else "",
                )  # fmt: skip
            pause = self._refused_s[level]
            self._refused_s[level] = min(2 * pause, MOST_RETRY_S)
            return pause
        self._refused_s[level] = RETRY_S
        size = result.end_offset - result.physical_offset
        self._stats.delivered(level, message.topic, message.queue_id, size)
        return 0

    def _failed(
        self, level: int, record: Record, message: SetAsideMessage, reason: str, error: Exception | None = None
    ) -> float:
        """Note a failure caused by the message; set the message aside after the last attempt."""
        if not self._tries[level].failed(record.queue_offset):
            return RETRY_S
        if error is not None:
            _log.error("delay level %d, offset %d", level, record.queue_offset, exc_info=error)
        kept = self._keeper.set_aside(
            UndeliverableWalk.DELAY, message, record.physical_offset, f"delay level {level}: {reason}"
        )
        return 0 if kept else MOST_RETRY_S


def delivered(record: Record, topic_of: Callable[[str], TopicConfig | None]) -> NewRecord | None:
    """Return the message to deliver for a waiting record, None when it names no topic or queue.

    The property text is unchanged: consumers see DELAY, REAL_TOPIC and REAL_QID, as with Apache. When the topic has
    lost the message's queue, the message goes to a queue that members read.

    Args:
        record: the record.
        topic_of: returns the configuration of a topic.
    """
    properties = decode_properties(record.properties)
    topic, queue = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QID, "")
    if not topic or topic == names.HALF_TOPIC or not queue.isdigit():
        return None
    half_offset, queue_id = record.prepared_transaction_offset, readable_queue(topic_of(topic), int(queue))
    return copy_of(record, topic, queue_id, properties, text=record.properties, half_offset=half_offset)
