"""Dispatch of pulled messages to handlers: a line of waiting work, and workers that serve it.

`concurrent.ConcurrentDispatcher` has no order. `orderly.OrderlyDispatcher` preserves the order of the queues (client.md
§13, §14).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

from tianzhou.client.consumer.push.consume_rates import ConsumeRates, TopicRates
from tianzhou.client.consumer.push.handlers import ConsumeContext, Handlers
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.client.consumer.push.retry_policy import Fate, NextStep
from tianzhou.client.consumer.push.typed_bodies import NotCalled
from tianzhou.client.consumer.push.workers import Slot, Workers
from tianzhou.client.consumer.send_back import SendBack
from tianzhou.clock import Clock
from tianzhou.model import MessageExt, names
from tianzhou.wire.delivered import add_property

T = TypeVar("T")

TURN_MESSAGES = 100
"""Number of messages consumed without waiting after which other tasks of the event loop run."""


_FATES = {
    Fate.AGAIN: "tries it again later",
    Fate.DEAD_LETTER: "makes a dead letter of it",
    Fate.DROP: "skips it",
}

_log = logging.getLogger(__name__)


def _place(message: MessageExt) -> str:
    return f"{message.topic} queue {message.queue_id} queue_offset {message.queue_offset} msg_id {message.msg_id}"


class Work(NamedTuple):
    """Messages for one call of a handler, and their queue."""

    pq: ProcessQueue
    messages: list[MessageExt]


class HandlerDispatcher(ABC, Generic[T]):
    """A line of work for handlers, and the workers that serve it.

    Args:
        group: the consumer group.
        options: the consumer's options.
        handlers: the handlers.
        send_back: returns messages that were not consumed to the brokers.
        rates: counts consumed messages.
        clock: source of time.
        spawn: runs a coroutine as a task of the consumer.
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
    ) -> None:
        self._group = group
        self._options = options
        self._handlers = handlers
        self._single = handlers.batch_size == 1
        self._send_back = send_back
        self._rates = rates
        self._clock = clock
        self._spawn = spawn
        self._line: deque[T] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._called = False
        self._workers = Workers(self._work, spawn)
        self._turn = 0
        self._open = True

    def start_workers(self, count: int) -> None:
        """Start `count` workers, which call handlers at the same time."""
        self._workers.resize(count)

    def resize(self, count: int) -> None:
        """Change the number of workers."""
        if self._workers.slots:
            self._workers.resize(count)

    async def drain(self, timeout_s: float) -> None:
        """Dispatch no more work, and wait up to `timeout_s` seconds for running handlers."""
        self._open = False
        self._line.clear()
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        await self._workers.drain(timeout_s)

    async def next(self) -> Work | None:
        """Return the next work whose queue is still assigned; None when the consumer has stopped."""
        self._turn += 1
        if self._turn >= TURN_MESSAGES:
            self._turn = 0
            await asyncio.sleep(0)
        while True:
            work = self._take()
            if work is not None:
                if self._line:
                    self._call_one()
                work.pq.last_consume_ms = now_ms = self._clock.now_ms()
                add_property(work.messages, names.CONSUME_START_TIME, str(now_ms))
                return work
            if not self._open:
                return None
            await self._called_for()

    def _call_one(self) -> None:
        """Wake one idle worker to serve the line; wake no other before it has run."""
        while self._idle and not self._called:
            waiter = self._idle.pop()
            if not waiter.done():
                self._called = True
                waiter.set_result(None)

    async def _called_for(self) -> None:
        """Wait until the line may have work, or the consumer stops."""
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._idle:
                    self._idle.remove(waiter)
            else:
                self._called = False
                if self._line:
                    self._call_one()
            raise
        self._called = False

    async def _work(self, slot: Slot) -> None:
        while not slot.retiring:
            slot.idle = True
            work = await self.next()
            slot.idle = False
            if work is None:
                return
            await self._consume(work, slot)

    def _count(self, topic: str, began_s: float) -> TopicRates:
        """Count a handler call that ends now, and return the topic's counters."""
        rates = self._rates.of(topic)
        rates.called(self._clock.monotonic() - began_s)
        return rates

    def _next_step(
        self, message: MessageExt, failure: Exception | None, max_times: int, wanted_level: int = 0
    ) -> NextStep | None:
        """Return and log the next step for a message that was not consumed, see `Handlers.next_step`."""
        step = self._handlers.next_step(message, failure, max_times, wanted_level)
        fate = Fate.AGAIN if step is None else step.fate
        if isinstance(failure, NotCalled):
            reason = failure.reasons[message.queue_offset]
            _log.warning(
                "%s: its body does not decode, group %s %s: %s", _place(message), self._group, _FATES[fate], reason
            )
        elif fate is Fate.DROP:
            attempts = message.reconsume_times + 1
            _log.warning("%s: group %s drops it after %d attempts", _place(message), self._group, attempts)
        return step

    @abstractmethod
    def put(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """Add pulled messages to the line; their topics are the original ones already."""

    @abstractmethod
    def finish(self, work: Work) -> None:
        """Count messages as consumed."""

    @abstractmethod
    async def fail(self, work: Work, failure: Exception | None, context: ConsumeContext) -> None:
        """Request another delivery of messages that were not consumed.

        Args:
            work: the messages.
            failure: the error that the handler raised; None when it requested a later delivery.
            context: the handler's context, with the time of the delivery.
        """

    @abstractmethod
    async def expire(self, work: Work) -> None:
        """Request another delivery of messages that took too long."""

    @abstractmethod
    def _take(self) -> Work | None:
        """Remove and return the first work in the line that may run now; None without any."""

    @abstractmethod
    async def _consume(self, work: Work, slot: Slot) -> None:
        """Call the handler, and process its result."""
