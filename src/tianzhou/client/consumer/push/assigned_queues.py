"""The queues assigned to a push consumer: one pull loop each, and their consumed offsets (client.md §12, §16)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tianzhou.client.cluster import rpc
from tianzhou.client.consumer import pulling
from tianzhou.client.consumer.offset_store import OffsetStore
from tianzhou.client.consumer.offset_tracker import shared_limits
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.consumer.push.process_queue import ProcessQueue, set_event
from tianzhou.client.consumer.push.queue_locks import QueueLocks
from tianzhou.client.consumer.push.queue_offsets import QueueOffsets
from tianzhou.client.consumer.subscription import Begin, first_offset, original_topic
from tianzhou.client.hooks import FilterContext, let_through
from tianzhou.client.instance import ClientInstance
from tianzhou.client.retry import PULL_ERROR_DELAY_MS, needs_heartbeat, pull_delay_ms
from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.model import MessageExt, MessageQueue, PullStatus, SubscriptionData, names
from tianzhou.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

PULL_EXPIRY_S = 120
LOCK_INTERVAL_S = 20.0
BROKER_LOCK_LIFE_S = 60.0
"""Seconds without a renewal after which a broker grants a lock to another member."""
LEAVE_AT_ONCE_S = 0.5
"""Seconds that a rebalance waits for a revoked queue's handlers and offset commit before it handles other queues."""
REST_S = 0.2
"""Seconds that running handlers have to finish messages of a revoked queue and still commit them."""
UNLOCK_DELAY_S = 20.0
"""Maximum seconds after its last renewal that a revoked queue's lock is held for a handler that is still running."""
WARN_INTERVAL_S = 60


class AssignedQueues:
    """The queues of this member: it adds and revokes queues, pulls their messages, and stores their offsets.

    Args:
        instance: reaches the brokers.
        group: the consumer group.
        options: the consumer's options.
        offsets: the store of the group's offsets.
        subscription: returns the subscription of a topic; None for a topic that is not subscribed.
        hand_out: gets the pulled messages.
        lost: called when a queue is dropped because another member has its lock.
        rates: counts pulls.
        spawn: runs a coroutine as a task of the consumer.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: PushOptions,
        offsets: OffsetStore,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        hand_out: Callable[[ProcessQueue, list[MessageExt]], None],
        lost: Callable[[], None],
        rates: ConsumeRates,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._begin_ms = options.begin_ms(instance.clock.now_ms())
        self._filters = options.filter_hooks
        self._offsets = offsets
        self._progress = QueueOffsets(instance, group, offsets)
        self._subscription = subscription
        self._hand_out = hand_out
        self._lost = lost
        self._rates = rates
        self._spawn = spawn
        self._retry_topic = names.retry_topic(group)
        self._locks = QueueLocks(instance, group)
        self._no_handler: dict[MessageQueue, asyncio.Event] = {}
        self._taking: set[MessageQueue] = set()
        self._unpaused = set_event()
        self._open = True
        self._persist_due = self._persisting = False
        self.table: dict[MessageQueue, ProcessQueue] = {}
        """The queues of this member, including revoked ones whose handlers are still running."""

    # --- adding and revoking ---------------------------------------------------------------------------------

    @property
    def staying(self) -> list[MessageQueue]:
        """The queues of this member that are not being revoked."""
        return [queue for queue, pq in self.table.items() if not pq.leaving]

    async def take(self, queue: MessageQueue) -> bool:
        """Add a queue and consume it from the group's offset; an orderly consumer locks it first.

        Returns:
            False when that is not possible now.
        """
        if queue in self.table:  # the last handler of its former assignment is still running
            return False
        self._taking.add(queue)
        try:
            return await self._take(queue)
        finally:
            self._taking.discard(queue)

    async def _take(self, queue: MessageQueue) -> bool:
        locked_s = self._instance.clock.monotonic()
        if self._options.locks and not (await self._locks.lock([queue])).get(queue, False):
            return False
        try:
            # Read the offset after the lock: the former owner stores the offset before it releases the lock.
            stored = await self._offsets.read(queue)
            start = await self._first_offset(queue, stored)
        except TianzhouError as error:
            _log.info("the first offset of %s for group %s is not known yet: %s", queue, self._group, error)
            if self._options.locks:
                await self._locks.unlock([queue])
            return False
        if self._open and queue not in self.table:
            # A broker answers 0 for a queue without an offset. Store the 0, so that tools show the group's offset in
            # every queue, also of its retry topic.
            pq = self._start(queue, start, stored or None)
            if self._options.locks:
                pq.locked(locked_s, self._instance.clock.now_ms())
            self._share_limits()
        return True

    async def give_up(self, queues: list[MessageQueue]) -> None:
        """Revoke queues, and store their offsets when the running handlers have finished or take too long."""
        leaving = [self.table[queue] for queue in queues if queue in self.table]
        if not leaving:
            return
        for pq in leaving:
            pq.leave()
        if self._options.orderly:
            ends = [self._spawn(self._end_in_order(pq)) for pq in leaving]
        else:
            ends = [self._spawn(self._end_at_will(leaving))]
        await asyncio.wait(ends, timeout=LEAVE_AT_ONCE_S)

    async def _end_at_will(self, leaving: list[ProcessQueue]) -> None:
        if any(pq.at_work for pq in leaving):
            await self._progress.store(leaving)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_S):
                    for pq in leaving:
                        await pq.rested()
        await self._progress.store(leaving, confirm=True)
        for pq in leaving:
            self._forget(pq)
        self._share_limits()

    async def _end_in_order(self, pq: ProcessQueue) -> None:
        clock = self._instance.clock
        deadline_s = (clock.monotonic() if pq.locked_s is None else pq.locked_s) + UNLOCK_DELAY_S
        while not pq.no_handler.is_set() and clock.monotonic() < deadline_s:
            try:
                async with asyncio.timeout(min(1.0, deadline_s - clock.monotonic())):
                    await pq.no_handler.wait()
            except TimeoutError:
                pq.unlock_tries += 1
        if not pq.no_handler.is_set():
            _log.warning(
                "group %s gives %s up though its handler has not ended: another member may overtake it",
                self._group,
                pq.queue,
            )
        await self._progress.store([pq], confirm=True)
        self._forget(pq)
        self._share_limits()
        if self._options.locks:
            await self._locks.unlock([pq.queue])

    def _forget(self, pq: ProcessQueue) -> None:
        pq.drop()
        if self.table.get(pq.queue) is pq:
            del self.table[pq.queue]

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue this member's queues at other offsets. Results of messages still being consumed are ignored."""
        ours = {queue: offset for queue, offset in offsets.items() if queue in self.staying}
        for queue, offset in ours.items():
            self._restart(self.table[queue], offset)
        await self._offsets.persist(ours, confirm=True)

    def stop_pulling(self) -> None:
        """Cancel every pull loop; the queues stay assigned until `close`."""
        self._open = False
        for pq in self.table.values():
            if pq.pull_task is not None:
                pq.pull_task.cancel()

    async def unlock_all(self) -> None:
        """Release every lock, so that other members need not wait for its expiry."""
        await self._locks.unlock(self._locks.held)

    def close(self) -> None:
        """Drop every queue."""
        for pq in self.table.values():
            pq.drop()
        self.table.clear()

    def suspend(self) -> None:
        """Pause all pulls until `resume`."""
        self._unpaused.clear()

    def resume(self) -> None:
        """Continue to pull after `suspend`."""
        self._unpaused.set()

    async def _first_offset(self, queue: MessageQueue, stored: int | None) -> int:
        begin = first_offset(self._options.begin_where, stored, queue.topic)
        if isinstance(begin, int):
            return begin
        address = self._instance.send_address(await self._instance.reader(queue))
        remoting, limit_ms = self._instance.remoting, self._instance.api_timeout_ms
        if begin is Begin.MAX_OFFSET:
            return await rpc.max_offset(remoting, address, queue, limit_ms)
        return await rpc.search_offset(remoting, address, queue, self._begin_ms, timeout_ms=limit_ms)

    def _start(
        self, queue: MessageQueue, start: int, stored: int | None, former: ProcessQueue | None = None
    ) -> ProcessQueue:
        limits = self._options.limits if former is None else former.limits
        # A handler of the queue's former assignment may still be running. In order, the new one waits for its end.
        no_handler = self._no_handler.setdefault(queue, set_event()) if self._options.orderly else None
        pq = ProcessQueue(queue, start, limits, self._instance.clock.now_ms(), stored, no_handler)
        pq.last_pull_s = self._instance.clock.monotonic()
        if former is not None:
            pq.succeed(former)
        self.table[queue] = pq
        pq.pull_task = self._spawn(self._pull_loop(pq))
        return pq

    def _restart(self, pq: ProcessQueue, offset: int) -> None:
        pq.drop()
        self._start(pq.queue, offset, None, pq)

    def _share_limits(self) -> None:
        options = self._options
        limits = shared_limits(
            options.limits,
            -1 if options.confirms_pulls else options.pull_threshold_for_topic,
            options.pull_threshold_size_for_topic_bytes,
            len(self.table),
        )
        for pq in self.table.values():
            pq.limit(limits)

    def revive(self) -> None:
        """Restart pull loops that have ended or hung for two minutes. Warn of queues that stay full."""
        # Use the monotonic clock: a change of the system time would restart every queue.
        now_s = self._instance.clock.monotonic()
        for pq in list(self.table.values()):
            if pq.given_up:
                continue
            paused = not pq.room.is_set()
            # With `commit="sync"` a queue always pauses between a pull and the confirmation of its offset.
            if paused and not self._options.confirms_pulls and now_s - pq.warned_s > WARN_INTERVAL_S:
                pq.warned_s = now_s
                why = pq.tracker.pause_reason(pq.limits)
                _log.warning("pulling %s for group %s pauses, handlers are too slow: %s", pq.queue, self._group, why)
            hangs = not paused and self._unpaused.is_set() and now_s - pq.last_pull_s > PULL_EXPIRY_S
            if pq.pull_task is not None and (hangs or pq.pull_task.done()) and self._open:
                _log.warning("pulling %s for group %s has stopped; starting again", pq.queue, self._group)
                self._restart(pq, pq.tracker.committable)

    # --- locks -----------------------------------------------------------------------------------------------

    async def keep_locks(self) -> None:
        """Renew the locks of this member's queues until cancelled."""
        while self._options.locks:
            await asyncio.sleep(LOCK_INTERVAL_S)
            await self._renew([pq for pq in self.table.values() if not pq.given_up])
            # When the reply to a granted lock is lost, this member holds a lock without a queue, which would block
            # others.
            await self._locks.unlock(self._locks.held - self.table.keys() - self._taking)

    async def relock(self, pq: ProcessQueue) -> bool | None:
        """Request a lock again that could not be renewed in time.

        Returns:
            True when this member has the lock, False when it lost the queue, None when no broker answers now.
        """
        answers = await self._renew([pq])
        return None if pq.queue not in answers else not pq.given_up

    async def _renew(self, renewed: list[ProcessQueue]) -> dict[MessageQueue, bool]:
        clock = self._instance.clock
        asked_s = clock.monotonic()
        answers = await self._locks.lock(pq.queue for pq in renewed)
        stray = [pq.queue for pq in renewed if answers.get(pq.queue) and pq.queue not in self.table]
        if stray and self._open:  # revoked while the request was under way
            await self._locks.unlock(stray)
        for pq in renewed:
            if pq.given_up or pq.queue not in answers:
                continue
            unsafe = pq.locked_s is None or clock.monotonic() - pq.locked_s > BROKER_LOCK_LIFE_S
            if answers[pq.queue] and not unsafe:
                pq.locked(asked_s, clock.now_ms())
                continue
            # Another member has or may have consumed from the queue, so its messages and offsets here are outdated.
            _log.warning("group %s has lost the lock of %s for a while and begins it again", self._group, pq.queue)
            pq.drop()
            if self.table.get(pq.queue) is pq:
                del self.table[pq.queue]
            self._lost()
        return answers

    # --- pulls -----------------------------------------------------------------------------------------------

    async def _pull_loop(self, pq: ProcessQueue) -> None:
        while True:
            if not pq.room.is_set():
                await pq.room.wait()
            if not self._unpaused.is_set():
                await self._unpaused.wait()
            if self._options.confirms_pulls:
                pq.last_pull_s = self._instance.clock.monotonic()  # waiting for the broker is not a hang
                await self.confirm(pq)
            if pq.given_up:
                return
            if self._options.locks and not pq.is_locked(self._instance.clock.monotonic()):
                await asyncio.sleep(1.0)
                continue
            pq.last_pull_ms, pq.last_pull_s = self._instance.clock.now_ms(), self._instance.clock.monotonic()
            try:
                await self._pull_once(pq)
            except TianzhouError as error:
                await self._after_error(pq, error)
            except Exception:  # noqa: BLE001 - a filter hook may raise anything, and pulls of the queue must continue
                _log.exception("pull from %s for group %s failed", pq.queue, self._group)
                await asyncio.sleep(PULL_ERROR_DELAY_MS / 1000)
            else:
                if self._options.pull_interval_ms:
                    await asyncio.sleep(self._options.pull_interval_ms / 1000)

    async def _pull_once(self, pq: ProcessQueue) -> None:
        queue = pq.queue
        subscription = self._subscription(queue.topic)
        if subscription is None:
            await asyncio.sleep(1.0)  # unsubscribed: the next rebalance drops it
            return
        routes = self._instance.routes
        address = routes.readable(queue.broker_name, pq.suggested_broker_id)
        if address is None:
            address = await self._instance.reader(queue, pq.suggested_broker_id)
        committable = pq.tracker.committable
        carries = self._options.commit == "async" and committable > 0 and not self._options.is_broadcast
        commit = carries and address == routes.master(queue.broker_name)
        began_s = self._instance.clock.monotonic()
        pq.carry(committable if commit else None, began_s)
        pulls = pq.pulls
        if pulls is None or pulls.subscription is not subscription:
            pulls = pq.pulls = self._options.pulls(self._group, queue, subscription)
        raw = await pulls.pull(self._instance.remoting, address, pq.next_offset, committable if commit else None)
        if pq.given_up:
            return
        pq.carry(None, began_s)
        pq.suggested_broker_id = raw.suggested_broker_id
        moved = raw.next_offset - pq.next_offset
        if raw.status is PullStatus.FOUND:
            messages = self._messages_of(raw, queue, subscription)
            rates = self._rates.of(queue.topic)
            rates.pulls += 1
            rates.pulled += len(messages)
            rates.pull_ms += (self._instance.clock.monotonic() - began_s) * 1000
            if queue.topic == self._retry_topic:
                for message in messages:
                    message.topic = original_topic(message.topic, message.properties, self._group)
            self._hand_out(pq, pq.take_in(messages, raw.next_offset))
            if messages and moved > 0:
                pq.pace.fruitless = 0
                return
        elif raw.status is PullStatus.OFFSET_ILLEGAL:
            moved = 0
        else:
            pq.take_in([], raw.next_offset)
        rest_s = pq.pace.rest_s(moved, self._instance.clock.monotonic() - began_s)
        if rest_s:
            await asyncio.sleep(rest_s)
        if raw.status is PullStatus.OFFSET_ILLEGAL and not pq.given_up:
            await self._correct(pq, raw)

    def _messages_of(
        self, raw: pulling.RawPull, queue: MessageQueue, subscription: SubscriptionData
    ) -> list[MessageExt]:
        namespace, bounds = self._instance.namespace, (raw.min_offset, raw.max_offset)
        limit_bytes, unpacked = self._instance.max_unpacked_body_bytes, self._instance.unpacked_bodies
        messages = pulling.messages_of(
            raw.body, queue.broker_name, subscription.tags_set, namespace, bounds, limit_bytes, unpacked
        )
        if not self._filters:
            return messages
        return let_through(self._filters, FilterContext(self._group, queue, messages, self._instance.unit_mode))

    async def _correct(self, pq: ProcessQueue, raw: pulling.RawPull) -> None:
        offset = raw.next_offset
        if offset < pq.next_offset:
            # A slave may have returned messages that its master does not have yet. Unfinished messages are pulled
            # again.
            offset = min(offset, pq.tracker.committable)
        _log.warning(
            "group %s continues %s at offset %d instead of %d: the broker says so, the queue holds %d to %d",
            self._group,
            pq.queue,
            offset,
            pq.next_offset,
            raw.min_offset,
            raw.max_offset,
        )
        pq.dropped = True  # messages still being consumed must not store an offset over this one
        await self._offsets.persist({pq.queue: offset}, confirm=True)
        if self._open and self.table.get(pq.queue) is pq:
            self._start(pq.queue, offset, offset, pq)

    async def _after_error(self, pq: ProcessQueue, error: TianzhouError) -> None:
        _log.info("pull from %s for group %s failed: %s", pq.queue, self._group, error)
        if needs_heartbeat(error) and (address := self._instance.routes.readable(pq.queue.broker_name)):
            await self._instance.heartbeats.to(address)
        if error.refresh_route:
            try:
                await self._instance.refresh_route(pq.queue.topic)
            except TianzhouError as failure:
                _log.info("no route of topic %s now: %s", pq.queue.topic, failure)
        if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            await self._begin_if_deleted(pq)
        await asyncio.sleep(pull_delay_ms(error) / 1000)

    async def _begin_if_deleted(self, pq: ProcessQueue) -> None:
        """Restart a queue at offset 0 if its topic was deleted with the group's offsets: new messages begin there."""
        if self._options.is_broadcast or not pq.next_offset:
            return
        try:
            stored = await self._offsets.read(pq.queue)
        except TianzhouError as error:
            _log.info("whether topic %s was deleted is not known yet: %s", pq.queue.topic, error)
            return
        if stored or pq.given_up or not self._open or self.table.get(pq.queue) is not pq:
            return
        _log.warning(
            "topic %s was deleted: group %s continues %s at offset 0 instead of %d when the topic is made again",
            pq.queue.topic, self._group, pq.queue, pq.next_offset,
        )  # fmt: skip
        pq.dropped = True  # messages still being consumed must not store an offset
        self._start(pq.queue, 0, None, pq)

    # --- offsets ---------------------------------------------------------------------------------------------

    async def persist(self, *, confirm: bool = False) -> None:
        """Store the offsets that have changed.

        Args:
            confirm: whether to wait until they are stored.
        """
        await self._progress.store(list(self.table.values()), confirm=confirm)

    async def confirm(self, pq: ProcessQueue) -> None:
        """See `QueueOffsets.confirm`."""
        await self._progress.confirm(pq)

    def persist_soon(self) -> None:
        """Store the offsets that have changed, before other members of the group get queues of this one."""
        if self._open and not self._options.is_broadcast:
            self._persist_due = True
            if not self._persisting:
                self._persisting = True
                self._spawn(self._persist_while_due())

    async def _persist_while_due(self) -> None:
        # One run at a time, even if a broker reports changes of the members repeatedly.
        try:
            while self._persist_due and self._open:
                self._persist_due = False
                await self.persist()
        finally:
            self._persisting = False
