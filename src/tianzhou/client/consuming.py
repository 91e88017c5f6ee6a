"""Handing pulled messages to handlers without an order, and what follows from what they say (client.md §13)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tianzhou.client.consume_rates import ConsumeRates
from tianzhou.client.handing import Handing, Work
from tianzhou.client.handlers import ConsumeContext, Handlers
from tianzhou.client.process_queue import ProcessQueue
from tianzhou.client.retry import SEND_BACK_RETRY_MS
from tianzhou.client.send_back import SendBack
from tianzhou.client.workers import Slot
from tianzhou.clock import Clock
from tianzhou.model import ConsumeResult, MessageExt, MessageModel

_log = logging.getLogger(__name__)

EXPIRED_DELAY_LEVEL = 3
"""Messages that took too long come again at this delay level (client.md §13.5)."""

SWEEPS_PER_TIMEOUT = 4
SLOWEST_SWEEP_S = 1.0


class Consuming(Handing[Work]):
    """The messages waiting for handlers, and the workers that call them.

    What may wait is bounded by the limits of each queue; see `PullLimits`.

    Args:
        group: the consumer group.
        model: broadcast messages are not delivered again.
        handlers: who consumes.
        send_back: takes what was not consumed.
        rates: counts what was consumed.
        clock: source of time.
        spawn: runs a coroutine as a task of the consumer.
        timeout_s: limit of one call.
    """

    def __init__(
        self,
        group: str,
        model: MessageModel,
        handlers: Handlers,
        send_back: SendBack,
        rates: ConsumeRates,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        *,
        timeout_s: float,
    ) -> None:
        super().__init__(group, model, handlers, send_back, rates, clock, spawn)
        self._timeout_s = timeout_s

    def start_workers(self, count: int) -> None:
        """See `Consumption.start_workers`."""
        super().start_workers(count)
        self._spawn(self._sweep())

    def put(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """See `Consumption.put`."""
        if not messages:
            return
        size = self._handlers.batch_size
        if size == 1:
            self._line.extend([Work(pq, [message]) for message in messages])
        else:
            by_topic: dict[str, list[MessageExt]] = {}
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
            for same in by_topic.values():
                self._line.extend(Work(pq, same[i : i + size]) for i in range(0, len(same), size))
        self._arrived.set()

    def _work_of(self, first: Work) -> Work | None:
        return None if first.pq.given_up else first

    async def _consume(self, work: Work, slot: Slot) -> None:
        work.pq.begin()
        try:
            await self._consume_one(work, slot)
        finally:
            work.pq.end()

    async def _consume_one(self, work: Work, slot: Slot) -> None:
        topic = work.messages[0].topic
        context = ConsumeContext(work.pq.queue)
        failure: Exception | None = None
        result: ConsumeResult | None = None
        expired = False
        began_s = slot.since_s = self._clock.monotonic()
        try:
            result = await self._handlers.call(topic, work.messages, context)
        except asyncio.CancelledError:
            if not slot.expired or slot.task is None:
                raise
            slot.expired = False
            slot.task.uncancel()
            expired = True
        except Exception as error:  # noqa: BLE001 - a handler may raise anything; it means "again later"
            failure = error
        finally:
            slot.since_s = None
        self._called(topic, began_s)
        if work.pq.dropped:
            return
        if expired:
            await self.expire(work)
        elif failure is not None or result is ConsumeResult.RECONSUME_LATER:
            await self.fail(work, failure, context)
        elif context.ack_index is None:
            self.finish(work)
        else:
            await self._finish_first(work, context.ack_index + 1, context)

    async def _finish_first(self, work: Work, count: int, context: ConsumeContext) -> None:
        count = max(count, 0)
        if done := work.messages[:count]:
            self.finish(Work(work.pq, done))
        if rest := work.messages[count:]:
            await self.fail(Work(work.pq, rest), None, context)

    async def _sweep(self) -> None:
        # One look at all workers now and then, instead of a timer for each message.
        pause_s = min(SLOWEST_SWEEP_S, self._timeout_s / SWEEPS_PER_TIMEOUT)
        while True:
            await asyncio.sleep(pause_s)
            latest_s = self._clock.monotonic() - self._timeout_s
            for slot in self._workers.slots:
                if slot.since_s is not None and slot.since_s <= latest_s and slot.task is not None:
                    slot.since_s = None
                    slot.expired = True
                    slot.task.cancel()

    def finish(self, work: Work) -> None:
        """See `Consumption.finish`."""
        for message in work.messages:
            work.pq.finish(message.queue_offset)
        self._rates.of(work.messages[0].topic).consumed += len(work.messages)

    async def fail(self, work: Work, failure: Exception | None, context: ConsumeContext) -> None:
        """Send messages back, or keep those that nobody takes and try again here.

        Args:
            work: the messages.
            failure: what the handler raised, None when it asked for a later delivery.
            context: when they are delivered again.
        """
        if failure is not None:
            _log.warning("%s: not consumed by group %s", _named(work), self._group, exc_info=failure)
        await self._give_back(work, context.delay_level)

    async def expire(self, work: Work) -> None:
        """See `Consumption.expire`."""
        _log.warning("%s: not consumed by group %s within %.0f s", _named(work), self._group, self._timeout_s)
        await self._give_back(work, EXPIRED_DELAY_LEVEL)

    async def _give_back(self, work: Work, delay_level: int) -> None:
        self._rates.of(work.messages[0].topic).failed += len(work.messages)
        if self._model is MessageModel.BROADCASTING:
            _log.warning("%s: dropped, a broadcast message is not delivered again", _named(work))
            for message in work.messages:
                work.pq.finish(message.queue_offset)
            return
        kept = []
        for message in work.messages:
            if message.queue_offset not in work.pq.tracker:
                continue
            if await self._send_back.give(message, delay_level):
                work.pq.finish(message.queue_offset)
            else:
                message.reconsume_times += 1
                kept.append(message)
        if kept and self._open:
            self._spawn(self._again(Work(work.pq, kept)))

    async def _again(self, work: Work) -> None:
        await asyncio.sleep(SEND_BACK_RETRY_MS / 1000)
        self._line.append(work)
        self._arrived.set()


def _named(work: Work) -> str:
    first = work.messages[0]
    others = len(work.messages) - 1
    return f"{first.topic} {first.msg_id}" + (f" and {others} more" if others else "")
