"""Dispatch of pulled messages to handlers in the order of their queues (client.md §14).

Each queue has at most one running handler, and only while this member holds the queue's lock. Queues that have messages
wait in a line. A worker takes one batch of the first queue and moves that queue to the end of the line, so that a long
queue does not delay the others.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.dispatcher import HandlerDispatcher, Work
from tianzhou.client.consumer.push.handlers import ConsumeContext, Handlers
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.client.consumer.push.retry_policy import Fate, NextStep
from tianzhou.client.consumer.push.typed_bodies import NotCalled, first_alike
from tianzhou.client.consumer.push.workers import Slot
from tianzhou.client.consumer.send_back import SendBack
from tianzhou.clock import Clock
from tianzhou.model import ConsumeResult, MessageExt

_log = logging.getLogger(__name__)

SHORTEST_REST_MS = 10
LONGEST_REST_MS = 30_000
LOCK_RETRY_S = 3.0
UNLIMITED_TIMES = 2**31 - 1
"""Default of an orderly consumer: the number of attempts has no limit."""


class OrderlyStep(enum.Enum):
    """The next step after a handler's result."""

    COMMIT = enum.auto()
    KEEP = enum.auto()
    ROLLBACK = enum.auto()
    REPEAT = enum.auto()


def step_after(result: ConsumeResult | None, *, raised: bool, auto_commit: bool) -> OrderlyStep:
    """Return the next step after a handler's result, by the table of client.md §14."""
    if raised or result is ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        return OrderlyStep.REPEAT
    if auto_commit or result is ConsumeResult.COMMIT:
        return OrderlyStep.COMMIT
    return OrderlyStep.ROLLBACK if result is ConsumeResult.ROLLBACK else OrderlyStep.KEEP


def rest_ms(wanted_ms: int | None, default_ms: int) -> int:
    """Return the ms that a queue pauses before its messages are delivered again."""
    chosen = default_ms if wanted_ms is None or wanted_ms < 0 else wanted_ms
    return min(max(chosen, SHORTEST_REST_MS), LONGEST_REST_MS)


class OrderlyDispatcher(HandlerDispatcher[ProcessQueue]):
    """The queues whose messages wait for handlers, and the workers that call them.

    Args:
        group: the consumer group.
        options: they limit the number of attempts of a message, and have the pause of a queue after a failure.
            Broadcasting needs no locks, and drops a message after its last attempt.
        handlers: the handlers.
        send_back: sends messages to the dead letters after their last attempt.
        rates: counts consumed messages.
        clock: source of time.
        spawn: runs a coroutine as a task of the consumer.
        relock: requests a queue's lock again. It returns True when this member has the lock, False when it lost the
            queue, None when no broker answers now.
        confirm: stores a queue's offset and returns when the broker has confirmed it; used with `commit="sync"`.
    """

    def __init__(
        self,
        group: str,
        options: PushOptions,
        handlers: Handlers,
        send_back: SendBack,
        rates: ConsumeRates,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        *,
        relock: Callable[[ProcessQueue], Awaitable[bool | None]],
        confirm: Callable[[ProcessQueue], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(group, options, handlers, send_back, rates, clock, spawn)
        self._confirm = confirm if options.confirms_calls else None
        self._relock = relock
        self._rest_default_ms = options.suspend_current_queue_time_ms
        self._max_times = options.max_reconsume_times if options.max_reconsume_times >= 0 else UNLIMITED_TIMES

    # --- the line --------------------------------------------------------------------------------------------

    def put(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """See `HandlerDispatcher.put`."""
        if messages and not pq.given_up:
            pq.waiting.extend(messages)
            self._line_up(pq)

    def _line_up(self, pq: ProcessQueue) -> None:
        if pq.waiting and not pq.scheduled and not pq.given_up:
            pq.scheduled = True
            self._to_the_end(pq)

    def _to_the_end(self, pq: ProcessQueue) -> None:
        if self._open:
            self._line.append(pq)
            self._call_one()

    def _take(self) -> Work | None:
        line = self._line
        while line:
            work = self._work_of(line.popleft())
            if work is not None:
                return work
        return None

    def _work_of(self, pq: ProcessQueue) -> Work | None:
        # A queue has one work at a time: the next one is created when this has ended.
        if pq.given_up or not pq.waiting:
            pq.scheduled = False
        elif not self._options.is_broadcast and not pq.is_locked(self._clock.monotonic()):
            self._spawn(self._wait_for_lock(pq))
        elif not pq.no_handler.is_set():  # a handler call from before the restart of the queue is still running
            self._spawn(self._wait_for_turn(pq))
        else:
            pq.no_handler.clear()
            return Work(pq, pq.take(self._handlers.batch_size))
        return None

    async def _wait_for_lock(self, pq: ProcessQueue) -> None:
        while not pq.given_up:
            answer = await self._relock(pq)
            if answer is not None:
                break
            await asyncio.sleep(LOCK_RETRY_S)
        self._to_the_end(pq)

    async def _wait_for_turn(self, pq: ProcessQueue) -> None:
        await pq.no_handler.wait()
        self._to_the_end(pq)

    async def _rest(self, pq: ProcessQueue, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)
        pq.scheduled = False
        self._line_up(pq)

    # --- handlers --------------------------------------------------------------------------------------------

    async def _consume(self, work: Work, slot: Slot) -> None:
        try:
            await self._consume_turn(work)
        finally:
            work.pq.no_handler.set()

    async def _consume_turn(self, work: Work) -> None:
        pq, messages = work
        topic = messages[0].topic
        context = ConsumeContext(pq.queue)
        failure: Exception | None = None
        result: ConsumeResult | None = None
        began_s = self._clock.monotonic()
        try:
            result = await self._handlers.call(topic, messages, context)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; the queue retries after a pause
            failure = error
        rates = self._count(topic, began_s)
        if pq.dropped:
            return
        if isinstance(failure, NotCalled):
            alike = first_alike(messages, failure)
            pq.put_back(messages[len(alike) :])
            if alike[0].queue_offset not in failure.reasons:
                await self._consume_turn(Work(pq, alike))
                return
            work = Work(pq, alike)
        match step_after(result, raised=failure is not None, auto_commit=context.auto_commit):
            case OrderlyStep.COMMIT:
                self._commit(pq)
            case OrderlyStep.KEEP:
                rates.consumed += len(messages)
                self._go_on(pq)
            case OrderlyStep.ROLLBACK:
                pq.put_back(pq.in_hand)
                self._spawn(self._rest(pq, rest_ms(context.suspend_ms, self._rest_default_ms)))
            case OrderlyStep.REPEAT:
                await self.fail(work, failure, context)

    def finish(self, work: Work) -> None:
        """See `HandlerDispatcher.finish`."""
        work.pq.no_handler.set()
        self._commit(work.pq)

    def _commit(self, pq: ProcessQueue) -> None:
        if pq.in_hand:
            self._rates.of(pq.in_hand[-1].topic).consumed += len(pq.in_hand)
        pq.commit()
        self._go_on(pq)

    def _go_on(self, pq: ProcessQueue) -> None:
        if self._confirm is not None and pq.committed != pq.tracker.committable:
            self._spawn(self._go_on_confirmed(pq, self._confirm))
            return
        pq.scheduled = False
        self._line_up(pq)

    async def _go_on_confirmed(self, pq: ProcessQueue, confirm: Callable[[ProcessQueue], Awaitable[None]]) -> None:
        await confirm(pq)
        pq.scheduled = False
        self._line_up(pq)

    async def fail(self, work: Work, failure: Exception | None, context: ConsumeContext) -> None:
        """Deliver messages again before all others of their queue. After its last attempt one is a dead letter."""
        pq, messages = work
        first = messages[0]
        if failure is not None and not isinstance(failure, NotCalled):
            _log.warning(
                "%s %s at %s: not consumed by group %s; the queue rests and tries again",
                first.topic,
                first.msg_id,
                pq.queue,
                self._group,
                exc_info=failure,
            )
        self._rates.of(first.topic).failed += len(messages)
        again, gone, rests_ms = [], [], []
        for message in messages:
            step = self._next_step(message, failure, self._max_times) or self._default_step(message)
            if step.fate is Fate.DROP or (step.fate is Fate.DEAD_LETTER and await self._give_away(message)):
                gone.append(message)
            else:
                message.reconsume_times += 1
                again.append(message)
                rests_ms.append(self._rest_default_ms if step.rest_ms is None else step.rest_ms)
        for message in gone:
            pq.in_hand.remove(message)
            pq.finish(message.queue_offset)
        pq.put_back(again)
        if again:
            self._spawn(self._rest(pq, rest_ms(context.suspend_ms, max(rests_ms))))
        else:
            self._go_on(pq)

    def _default_step(self, message: MessageExt) -> NextStep:
        return NextStep(Fate.DEAD_LETTER if message.reconsume_times >= self._max_times else Fate.AGAIN)

    async def expire(self, work: Work) -> None:
        """Do nothing: the order requires that later messages wait for a slow one."""

    async def _give_away(self, message: MessageExt) -> bool:
        if self._options.is_broadcast:
            _log.warning("%s %s: dropped after %d tries", message.topic, message.msg_id, message.reconsume_times + 1)
            return True
        return await self._send_back.store_again(message, min(message.reconsume_times, self._max_times))
