"""The queues a push consumer owns: one pull loop each, and how far each is consumed (client.md §12, §16)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from tianzhou.client import calls, pulling
from tianzhou.client.instance import ClientInstance
from tianzhou.client.offset_store import OffsetStore
from tianzhou.client.offset_tracker import PullLimits
from tianzhou.client.process_queue import ProcessQueue
from tianzhou.client.retry import needs_heartbeat, pull_delay_ms
from tianzhou.client.subscription import Begin, first_offset, original_topic
from tianzhou.errors import TianzhouError
from tianzhou.model import ConsumeFromWhere, MessageExt, MessageModel, MessageQueue, PullStatus, SubscriptionData

_log = logging.getLogger(__name__)

BROKER_SUSPEND_MS = 15_000
PULL_ANSWER_MS = 15_000
"""What a pull may take beyond the time the broker holds it."""
PULL_EXPIRY_MS = 120_000


@dataclass(slots=True, frozen=True)
class PullOptions:
    """How queues are pulled.

    Args:
        model: only in clustering do pulls commit offsets on the way.
        where: where queues without a stored offset begin.
        timestamp_ms: the time for CONSUME_FROM_TIMESTAMP.
        batch_size: most messages asked for at once.
        batch_bytes: most bytes asked for at once.
        interval_s: pause between pulls.
        suspend_ms: how long the broker may hold a pull while there is no new message.
        limits: how much of a queue may wait.
    """

    model: MessageModel
    where: ConsumeFromWhere
    timestamp_ms: int
    batch_size: int = 32
    batch_bytes: int = 256 * 1024
    interval_s: float = 0.0
    suspend_ms: int = BROKER_SUSPEND_MS
    limits: PullLimits = field(default_factory=PullLimits)


class OwnedQueues:
    """Takes queues over, keeps them filled, gives them up, and stores their offsets.

    Args:
        instance: reaches the brokers.
        group: the consumer group.
        options: how to pull.
        offsets: where progress is kept.
        subscription: the subscription of a topic, None when it is not subscribed.
        hand_out: takes the messages that were pulled.
        spawn: runs a coroutine as a task of the consumer.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: PullOptions,
        offsets: OffsetStore,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        hand_out: Callable[[ProcessQueue, list[MessageExt]], None],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._offsets = offsets
        self._subscription = subscription
        self._hand_out = hand_out
        self._spawn = spawn
        self._unpaused = asyncio.Event()
        self._unpaused.set()
        self._open = True
        self.table: dict[MessageQueue, ProcessQueue] = {}
        """The queues that are ours now."""

    # --- taking and giving up --------------------------------------------------------------------------------

    async def take(self, queue: MessageQueue) -> bool:
        """Take a queue over from the offset its group has reached.

        Returns:
            False when that offset cannot be learnt now.
        """
        try:
            stored = await self._offsets.read(queue)
            start = await self._first_offset(queue, stored)
        except TianzhouError as error:
            _log.info("the first offset of %s for group %s is not known yet: %s", queue, self._group, error)
            return False
        if self._open and queue not in self.table:
            self._start(queue, start, stored)
        return True

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """Give queues up and store how far they are consumed."""
        leaving = [self.table.pop(queue) for queue in queues if queue in self.table]
        for pq in leaving:
            pq.drop()
        if leaving:
            await self._offsets.persist({pq.queue: pq.tracker.committable for pq in leaving})

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue those of the queues that are ours at other offsets; what is in hand does not count."""
        ours = {queue: offset for queue, offset in offsets.items() if queue in self.table}
        for queue, offset in ours.items():
            self._restart(self.table[queue], offset)
        await self._offsets.persist(ours, confirm=True)

    def stop_pulling(self) -> None:
        """End every pull loop; the queues stay ours until `close`."""
        self._open = False
        for pq in self.table.values():
            if pq.pull_task is not None:
                pq.pull_task.cancel()

    def close(self) -> None:
        """Forget every queue."""
        for pq in self.table.values():
            pq.drop()
        self.table.clear()

    def suspend(self) -> None:
        """Pull nothing until `resume`."""
        self._unpaused.clear()

    def resume(self) -> None:
        """Pull again."""
        self._unpaused.set()

    async def _first_offset(self, queue: MessageQueue, stored: int | None) -> int:
        begin = first_offset(self._options.where, stored, queue.topic)
        if isinstance(begin, int):
            return begin
        address = await self._instance.master(queue.broker_name, queue.topic)
        remoting, limit_ms = self._instance.remoting, self._instance.api_timeout_ms
        if begin is Begin.MAX_OFFSET:
            return await calls.max_offset(remoting, address, queue, limit_ms)
        return await calls.search_offset(remoting, address, queue, self._options.timestamp_ms, timeout_ms=limit_ms)

    def _start(self, queue: MessageQueue, start: int, stored: int | None) -> None:
        pq = ProcessQueue(queue, start, self._options.limits, self._instance.clock.now_ms(), stored)
        self.table[queue] = pq
        pq.pull_task = self._spawn(self._pull_loop(pq))

    def _restart(self, pq: ProcessQueue, offset: int) -> None:
        pq.drop()
        self._start(pq.queue, offset, None)

    def revive(self) -> None:
        """Start the pull loops anew that have ended or hung for two minutes."""
        now_ms = self._instance.clock.now_ms()
        for pq in list(self.table.values()):
            hangs = pq.room.is_set() and self._unpaused.is_set() and now_ms - pq.last_pull_ms > PULL_EXPIRY_MS
            if pq.pull_task is not None and (hangs or pq.pull_task.done()) and self._open:
                _log.warning("pulling %s for group %s has stopped; starting again", pq.queue, self._group)
                self._restart(pq, pq.tracker.committable)

    # --- pulling ---------------------------------------------------------------------------------------------

    async def _pull_loop(self, pq: ProcessQueue) -> None:
        while True:
            if not pq.room.is_set():
                await pq.room.wait()
            if not self._unpaused.is_set():
                await self._unpaused.wait()
            if pq.dropped:
                return
            pq.last_pull_ms = self._instance.clock.now_ms()
            try:
                await self._pull_once(pq)
            except TianzhouError as error:
                await self._after_error(pq, error)
            else:
                if self._options.interval_s:
                    await asyncio.sleep(self._options.interval_s)

    async def _pull_once(self, pq: ProcessQueue) -> None:
        queue = pq.queue
        subscription = self._subscription(queue.topic)
        if subscription is None:
            await asyncio.sleep(1.0)  # unsubscribed: the next sharing of queues drops it
            return
        address = await self._instance.reader(queue, pq.suggested_broker_id)
        committable = pq.tracker.committable
        commit = (
            committable > 0
            and self._options.model is MessageModel.CLUSTERING
            and address == self._instance.routes.master(queue.broker_name)
        )
        raw = await pulling.pull(
            self._instance.remoting,
            address,
            self._group,
            queue,
            pq.next_offset,
            max_messages=self._options.batch_size,
            max_bytes=self._options.batch_bytes,
            sub_version=subscription.sub_version,
            commit_offset=committable if commit else None,
            suspend_ms=self._options.suspend_ms,
            timeout_ms=self._options.suspend_ms + PULL_ANSWER_MS,
        )
        if pq.dropped:
            return
        pq.suggested_broker_id = raw.suggested_broker_id
        if raw.status is PullStatus.FOUND:
            messages = pulling.messages_of(raw.body, queue.broker_name, subscription.tags_set)
            for message in messages:
                message.topic = original_topic(message.topic, message.properties, self._group)
            self._hand_out(pq, pq.take_in(messages, raw.next_offset))
        elif raw.status is PullStatus.OFFSET_ILLEGAL:
            await self._correct(pq, raw)
        else:
            pq.take_in([], raw.next_offset)

    async def _correct(self, pq: ProcessQueue, raw: pulling.RawPull) -> None:
        _log.warning(
            "group %s continues %s at offset %d instead of %d: the broker says so, the queue holds %d to %d",
            self._group,
            pq.queue,
            raw.next_offset,
            pq.next_offset,
            raw.min_offset,
            raw.max_offset,
        )
        pq.dropped = True  # what is still in hand must not store an offset over this one
        await self._offsets.persist({pq.queue: raw.next_offset}, confirm=True)
        if self._open and self.table.get(pq.queue) is pq:
            self._start(pq.queue, raw.next_offset, raw.next_offset)

    async def _after_error(self, pq: ProcessQueue, error: TianzhouError) -> None:
        _log.info("pull from %s for group %s failed: %s", pq.queue, self._group, error)
        if needs_heartbeat(error) and (address := self._instance.routes.readable(pq.queue.broker_name)):
            await self._instance.heartbeat_to(address)
        if error.refresh_route:
            try:
                await self._instance.refresh_route(pq.queue.topic)
            except TianzhouError as failure:
                _log.info("no route of topic %s now: %s", pq.queue.topic, failure)
        await asyncio.sleep(pull_delay_ms(error) / 1000)

    # --- offsets ---------------------------------------------------------------------------------------------

    async def persist(self, *, confirm: bool = False) -> None:
        """Store the offsets that have moved.

        Args:
            confirm: wait until they are stored.
        """
        offsets = {
            queue: pq.tracker.committable
            for queue, pq in self.table.items()
            if not pq.dropped and pq.tracker.committable != pq.committed
        }
        if not offsets:
            return
        for queue in await self._offsets.persist(offsets, confirm=confirm):
            if (pq := self.table.get(queue)) is not None:
                pq.committed = offsets[queue]
