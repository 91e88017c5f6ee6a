"""Iteration over messages with `async for`, and the result of each message (client.md §13, §20.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.dispatcher import HandlerDispatcher, Work
from tianzhou.client.consumer.push.handlers import ConsumeContext
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.hooks import After, ConsumeHook, ConsumeOutcome, HandlerCall, begin, end
from tianzhou.clock import Clock
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeResult, MessageExt
from tianzhou.wire.delivered import unreadable


class MessageIteration:
    """The message that the iteration returned last. It counts as consumed when the next one is requested.

    Args:
        group: the consumer group.
        options: they have the timeout after which a message is sent back, unless in order or broadcast.
        consuming: returns the messages, and gets back messages that were not consumed.
        hooks: called when a message is returned, and when its result is known.
        rates: measures how long the iterating code processes a message.
        clock: source of time.
    """

    def __init__(
        self,
        group: str,
        options: PushOptions,
        consuming: HandlerDispatcher[Any],
        hooks: Sequence[ConsumeHook],
        rates: ConsumeRates,
        clock: Clock,
    ) -> None:
        self._group = group
        self._consuming = consuming
        self._hooks = hooks
        self._rates = rates
        self._clock = clock
        self._timeout_s = None if options.orderly or options.is_broadcast else options.consume_timeout_ms / 1000
        self._current: Work | None = None
        self._call: HandlerCall | None = None
        self._afters: list[After[HandlerCall]] = []
        self._waiting = False
        self._since_s = 0.0
        self._expires_s = 0.0

    @property
    def begun(self) -> bool:
        """Whether a message was returned that has no result yet."""
        return self._current is not None

    async def next(self) -> MessageExt:
        """Count the last message as consumed, and return the next one.

        Raises:
            StopAsyncIteration: the consumer has stopped.
            ClientError: another task is already waiting for the next message.
        """
        if self._waiting:
            raise ClientError(f"two tasks iterate the consumer of group {self._group}; iterate in one, or use handlers")
        self._finish()
        self._waiting = True
        try:
            work = await self._next_readable()
        finally:
            self._waiting = False
        if work is None:
            raise StopAsyncIteration
        self._current = work
        self._since_s = self._clock.monotonic()
        self._expires_s = self._since_s + (self._timeout_s or 0)
        if self._hooks:
            self._call = HandlerCall(self._group, work.messages, work.pq.queue)
            self._afters = begin(self._hooks, self._call)
        return work.messages[0]

    async def _next_readable(self) -> Work | None:
        # An unreadable body would raise in the middle of the caller's loop, and end it before the messages behind it.
        while (work := await self._consuming.next()) is not None:
            if (error := unreadable(work.messages[0])) is None:
                break
            await self._consuming.fail(work, error, ConsumeContext(work.pq.queue))
        return work

    def _finish(self) -> None:
        current = self._settle(ConsumeOutcome.SUCCESS, result=ConsumeResult.SUCCESS)
        if current is not None and not current.pq.dropped:
            self._consuming.finish(current)

    async def leave(self, error: BaseException | None) -> None:
        """Set the last message's result at the end of the `async with` block: consumed, unless an error ended it."""
        if error is None:
            self._finish()
        elif isinstance(error, Exception):
            current = self._settle(ConsumeOutcome.EXCEPTION, error=error)
            if current is not None and not current.pq.dropped:
                await self._consuming.fail(current, error, ConsumeContext(current.pq.queue))

    def abandon(self) -> None:
        """Drop the last message when the consumer stops; it will be delivered again."""
        self._settle(ConsumeOutcome.FAILED)

    async def expire(self) -> None:
        """Send back the last message when its timeout has passed."""
        current, now_s = self._current, self._clock.monotonic()
        if current is None or self._timeout_s is None or now_s <= self._expires_s:
            return
        self._expires_s = now_s + self._timeout_s
        self._end(ConsumeOutcome.TIME_OUT, None, None)
        await self._consuming.expire(current)

    def _settle(
        self, outcome: ConsumeOutcome, *, result: ConsumeResult | None = None, error: BaseException | None = None
    ) -> Work | None:
        current, self._current = self._current, None
        if current is not None:
            self._rates.of(current.messages[0].topic).called(self._clock.monotonic() - self._since_s)
            self._end(outcome, result, error)
        return current

    def _end(self, outcome: ConsumeOutcome, result: ConsumeResult | None, error: BaseException | None) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.outcome, call.result, call.error = outcome, result, error
            end(self._afters, call)
