"""Dispatch of pulled messages to handlers without an order, and the actions after their results (client.md §13)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tianzhou._hot import HandlerCalls
from tianzhou._hot.deliveries import Unfinished
from tianzhou.client.consumer.push.consume_rates import TopicRates
from tianzhou.client.consumer.push.dispatcher import TURN_MESSAGES, HandlerDispatcher, Work
from tianzhou.client.consumer.push.handlers import ConsumeContext
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.client.consumer.push.processor_time import Spent, measured
from tianzhou.client.consumer.push.retry_policy import Fate
from tianzhou.client.consumer.push.typed_bodies import NotCalled, split
from tianzhou.client.consumer.push.workers import Slot
from tianzhou.client.consumer.send_back import DEFAULT_MAX_RECONSUME_TIMES
from tianzhou.client.retry import SEND_BACK_RETRY_MS
from tianzhou.model import ConsumeResult, MessageExt, names
from tianzhou.remoting.callbacks import failure_of
from tianzhou.wire.delivered import DeliveredMessage, pair_behind

_log = logging.getLogger(__name__)

EXPIRED_DELAY_LEVEL = 3
"""Delay level for the redelivery of messages whose handler exceeded the time limit (client.md §13.5)."""

SWEEPS_PER_TIMEOUT = 4
SLOWEST_SWEEP_S = 1.0
ALONE_AFTER_WAIT = 32
"""Number of messages handed out one by one after a handler that waited, because its next calls will wait, too."""


class PulledMessages:
    """The messages of a pull that wait for handlers: one item for each call, the next one last."""

    __slots__ = ("pq", "rest")

    def __init__(self, pq: ProcessQueue, calls: list[list[MessageExt]] | list[MessageExt]) -> None:
        calls.reverse()
        self.pq = pq
        self.rest: list[Any] = calls


class ConcurrentDispatcher(HandlerDispatcher[PulledMessages]):
    """The messages that wait for handlers, and the workers that call the handlers.

    The limits of each queue bound the number of waiting messages; see `PullLimits`.
    """

    _calls: HandlerCalls

    def start_workers(self, count: int) -> None:
        """See `HandlerDispatcher.start_workers`."""
        self._calls = HandlerCalls(DeliveredMessage, self._clock.monotonic, self._clock.now_ms, _began_at)
        super().start_workers(count)
        self._spawn(self._sweep())

    def put(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """See `HandlerDispatcher.put`."""
        if not messages:
            return
        if self._single:
            self._line.append(PulledMessages(pq, messages.copy()))
        else:
            size = self._handlers.batch_size
            by_topic = {messages[0].topic: messages}
            if any(message.topic != messages[0].topic for message in messages):  # pulled from the retry topic
                by_topic = {}
                for message in messages:
                    by_topic.setdefault(message.topic, []).append(message)
            calls = [same[i : i + size] for same in by_topic.values() for i in range(0, len(same), size)]
            self._line.append(PulledMessages(pq, calls))
        self._call_one()

    def _take(self) -> Work | None:
        line = self._line
        while line:
            lot = line[0]
            if lot.pq.given_up:
                line.popleft()
                continue
            found = lot.rest.pop()
            if not lot.rest:
                line.popleft()
            return Work(lot.pq, [found] if self._single else found)
        return None

    @property
    def _max_times(self) -> int:
        times = self._options.max_reconsume_times
        return times if times >= 0 else DEFAULT_MAX_RECONSUME_TIMES

    @property
    def _limit_s(self) -> float:
        return self._options.consume_timeout_ms / 1000

    async def _work(self, slot: Slot) -> None:
        await (self._work_single(slot) if self._single else super()._work(slot))

    async def _work_single(self, slot: Slot) -> None:  # noqa: C901 - one loop: no call that can be avoided
        # Inlines `next`, `HandlerDispatcher._work` and `_consume` for handlers without hooks around them. Most of these
        # do not wait, so the code between two calls is most of the cost of a message.
        line, plain, rates_of = self._line, self._handlers.plain, self._rates.of
        monotonic, now_ms = self._clock.monotonic, self._clock.now_ms
        cpu_s, in_loop = self._handlers.cpu_s, self._handlers.in_loop
        # Read the monotonic clock once per message: each call begins where the one before ended. Read the wall clock
        # again only when it can have changed.
        began_s = stale_s = monotonic()
        present_ms, stamp, stamped = 0, b"", b""
        more: bytes | None = None
        rated: str | None = None
        rates: TopicRates
        message: MessageExt | None
        failure: BaseException | None
        run = self._calls.run if self._calls.calls else None
        alone = 0  # number of messages to hand out one by one after a handler that waited
        while not slot.retiring:
            if not line or self._turn >= TURN_MESSAGES:
                message = failure = None  # a waiting worker must not hold references to a message
                if not await self._pause(slot):
                    return
                began_s = monotonic()
                continue
            lot = line[0]
            pq = lot.pq
            if pq.dropped or pq.leaving:
                self._turn += 1
                line.popleft()
                continue
            if alone:
                alone -= 1
            elif run is not None:
                topic = lot.rest[-1].topic
                handler = plain.get(topic)
                if handler is not None:
                    if self._idle and not self._called and (len(lot.rest) > 1 or len(line) > 1):
                        self._call_one()  # that worker continues if this handler waits
                    rates = rates_of(topic)
                    calls, call_ms, cpu_began_s = rates.calls, rates.call_ms, cpu_s()
                    count, unfinished = run(line, lot, handler, rates, slot, TURN_MESSAGES - self._turn)
                    self._turn += count
                    if topic in in_loop:
                        # Read the processor clock once for all calls of a run. It covers the first step of a handler
                        # that waits now; `_finish_call` adds the other steps.
                        wall_s = (rates.call_ms - call_ms) / 1000
                        rates.time(rates.calls - calls, cpu_s() - cpu_began_s, wall_s)
                    if unfinished is not None:
                        alone = ALONE_AFTER_WAIT if unfinished.waiting is not None else 0
                        await self._finish_call(pq, unfinished, rates, slot)
                        unfinished = None
                    if count:
                        began_s = monotonic()
                        rated = None
                        continue
            self._turn += 1
            message = lot.rest.pop()
            if not lot.rest:
                line.popleft()
            if self._idle and line and not self._called:
                self._call_one()  # that worker continues if this handler waits
            if began_s >= stale_s:
                stale_s = began_s + 0.001
                present_ms = now_ms()
                more, stamp = None, pair_behind(names.CONSUME_START_TIME, str(present_ms))
            pq.last_consume_ms = present_ms
            if type(message) is DeliveredMessage and message.raw_properties is not None:
                if message.more_properties is not more:  # all messages of a pull share one object
                    more = message.more_properties
                    stamped = more + stamp
                message.more_properties = stamped
            else:
                message.properties[names.CONSUME_START_TIME] = str(present_ms)
            topic = message.topic
            handler = plain.get(topic)
            if handler is None:
                await self._consume(Work(pq, [message]), slot)
                began_s = monotonic()
                continue
            if topic is not rated:
                rated, rates = topic, rates_of(topic)
            failure = None
            result: ConsumeResult | None = None
            spent = Spent() if topic in in_loop and rates.is_due else None
            pq.at_work += 1
            try:
                slot.since_s = began_s
                try:
                    if spent is None:
                        result = await handler(message)
                    else:
                        result = await measured(handler(message), spent, cpu_s)
                    if result is not None:
                        result = self._handlers.answer(topic, result)
                except BaseException as error:  # noqa: BLE001 - `_follow` raises errors of other origin
                    failure = error
                finally:
                    slot.since_s = None
                ended_s = monotonic()
                rates.calls += 1
                rates.call_ms += (ended_s - began_s) * 1000
                if spent is not None:
                    rates.time(1, spent.cpu_s, ended_s - began_s)
                began_s = ended_s
                if failure is None and result is None and not pq.dropped:
                    pq.finish(message.queue_offset)
                    rates.consumed += 1
                else:
                    await self._follow(Work(pq, [message]), result, failure, ConsumeContext(pq.queue), slot)
                    began_s = monotonic()
            finally:
                pq.at_work -= 1
                if pq.rest is not None:
                    pq.look_for_rest()

    async def _finish_call(self, pq: ProcessQueue, call: Unfinished, rates: TopicRates, slot: Slot) -> None:
        """Wait for a handler that has begun, and act on its result."""
        message, failure, result = call.message, call.failure, call.wanted
        spent = Spent()
        pq.at_work += 1
        try:
            if failure is None:
                slot.since_s = call.began_s
                try:
                    if call.waiting is not None:
                        result = await measured(call.waiting, spent, self._handlers.cpu_s, call.wanted)
                    if result is not None:
                        result = self._handlers.answer(message.topic, result)
                except BaseException as error:  # noqa: BLE001 - `_follow` raises errors of other origin
                    failure = error
                finally:
                    slot.since_s = None
            took_s = self._clock.monotonic() - call.began_s
            rates.called(took_s)
            if message.topic in self._handlers.in_loop:
                rates.time(1, spent.cpu_s, took_s)
            if failure is None and result is None and not pq.dropped:
                pq.finish(message.queue_offset)
                rates.consumed += 1
            else:
                await self._follow(Work(pq, [message]), result, failure, ConsumeContext(pq.queue), slot)
        finally:
            pq.at_work -= 1
            if pq.rest is not None:
                pq.look_for_rest()

    async def _pause(self, slot: Slot) -> bool:
        """Yield to other workers, or wait for messages. Return False when no message will come."""
        slot.idle = True
        if self._line:
            self._turn = 0
            await asyncio.sleep(0)
        elif not self._open:
            return False
        else:
            await self._called_for()
        slot.idle = False
        return True

    async def _consume(self, work: Work, slot: Slot) -> None:
        topic = work.messages[0].topic
        context = ConsumeContext(work.pq.queue)
        failure: BaseException | None = None
        result: ConsumeResult | None = None
        work.pq.at_work += 1
        try:
            began_s = slot.since_s = self._clock.monotonic()
            try:
                result = await self._handlers.call(topic, work.messages, context)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every error means "redeliver later"
                failure = error
            finally:
                slot.since_s = None
            self._count(topic, began_s)
            await self._follow(work, result, failure, context, slot)
        finally:
            work.pq.at_work -= 1
            work.pq.look_for_rest()

    async def _follow(
        self,
        work: Work,
        result: ConsumeResult | None,
        failure: BaseException | None,
        context: ConsumeContext,
        slot: Slot,
    ) -> None:
        """Act on a handler's result or failure."""
        expired = isinstance(failure, asyncio.CancelledError) and _is_cut_short(slot)
        reason = None if failure is None or expired else failure_of(failure, slot.task)
        if work.pq.dropped:
            return
        if expired:
            await self.expire(work)
        elif isinstance(reason, NotCalled):
            await self._set_aside(work, reason)
        elif reason is not None or result is ConsumeResult.RECONSUME_LATER:
            await self.fail(work, reason, context)
        elif context.ack_index is None:
            self.finish(work)
        else:
            await self._finish_first(work, context.ack_index + 1, context)

    async def _set_aside(self, work: Work, failure: NotCalled) -> None:
        """Apply the retry options to messages whose bodies cannot be decoded; queue the other messages again."""
        good, bad = split(work.messages, failure)
        if good and self._open:
            self._line.appendleft(PulledMessages(work.pq, [good]))
            self._call_one()
        await self._give_back(Work(work.pq, bad), 0, failure)

    async def _finish_first(self, work: Work, count: int, context: ConsumeContext) -> None:
        count = max(count, 0)
        if done := work.messages[:count]:
            self.finish(Work(work.pq, done))
        if rest := work.messages[count:]:
            await self.fail(Work(work.pq, rest), None, context)

    async def _sweep(self) -> None:
        # Check all workers periodically, instead of a timer for each message.
        pause_s = min(SLOWEST_SWEEP_S, self._limit_s / SWEEPS_PER_TIMEOUT)
        while True:
            await asyncio.sleep(pause_s)
            latest_s = self._clock.monotonic() - self._limit_s
            for slot in self._workers.slots:
                if slot.since_s is not None and slot.since_s <= latest_s and slot.task is not None:
                    slot.since_s = None
                    slot.expired = True
                    slot.task.cancel()

    def finish(self, work: Work) -> None:
        """See `HandlerDispatcher.finish`."""
        work.pq.finish_all(work.messages)
        self._rates.of(work.messages[0].topic).consumed += len(work.messages)

    async def fail(self, work: Work, failure: Exception | None, context: ConsumeContext) -> None:
        """Send messages back to the broker. Messages that no broker accepts are consumed here again."""
        if failure is not None:
            _log.warning("%s: not consumed by group %s", _named(work), self._group, exc_info=failure)
        await self._give_back(work, context.delay_level, failure)

    async def expire(self, work: Work) -> None:
        """See `HandlerDispatcher.expire`."""
        _log.warning("%s: not consumed by group %s within %.0f s", _named(work), self._group, self._limit_s)
        has_policy = self._handlers.retry_of(work.messages[0].topic) is not None
        await self._give_back(work, 0 if has_policy else EXPIRED_DELAY_LEVEL)

    async def _give_back(self, work: Work, delay_level: int, failure: Exception | None = None) -> None:
        self._rates.of(work.messages[0].topic).failed += len(work.messages)
        if self._options.is_broadcast:
            _log.warning("%s: dropped, a broadcast message is not delivered again", _named(work))
            for message in work.messages:
                self._next_step(message, failure, 0)
                work.pq.finish(message.queue_offset)
            return
        refused = []
        for message in work.messages:
            if message.queue_offset not in work.pq.tracker:
                continue
            if await self._let_go(message, delay_level, failure):
                work.pq.finish(message.queue_offset)
            else:
                message.reconsume_times += 1
                refused.append(message)
        if refused and self._open:
            self._spawn(self._again(Work(work.pq, refused)))

    async def _let_go(self, message: MessageExt, delay_level: int, failure: Exception | None) -> bool:
        step = self._next_step(message, failure, self._max_times, delay_level)
        if step is None:
            return await self._send_back.give(message, delay_level)
        if step.fate is Fate.DROP:
            return True
        level = -1 if step.fate is Fate.DEAD_LETTER else step.delay_level
        return await self._send_back.give(message, level, step.max_times)

    async def _again(self, work: Work) -> None:
        await asyncio.sleep(SEND_BACK_RETRY_MS / 1000)
        self._line.append(PulledMessages(work.pq, work.messages.copy() if self._single else [work.messages]))
        self._call_one()


def _is_cut_short(slot: Slot) -> bool:
    """Revoke the cancellation by `_sweep`, and return whether the handler was cancelled for no other reason."""
    if not slot.expired or slot.task is None:
        return False
    slot.expired = False
    return slot.task.uncancel() == 0


def _began_at(now_ms: int) -> bytes:
    return pair_behind(names.CONSUME_START_TIME, str(now_ms))


def _named(work: Work) -> str:
    first = work.messages[0]
    others = len(work.messages) - 1
    return f"{first.topic} {first.msg_id}" + (f" and {others} more" if others else "")
