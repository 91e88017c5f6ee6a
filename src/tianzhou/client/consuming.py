"""Handing pulled messages to handlers, and what follows from what they say (client.md §13)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

from tianzhou.client.process_queue import ProcessQueue
from tianzhou.client.retry import SEND_BACK_RETRY_MS
from tianzhou.client.send_back import SendBack
from tianzhou.clock import Clock
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeResult, MessageExt, MessageModel

_log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Any], "ConsumeResult | Awaitable[ConsumeResult | None] | None"]
"""Consumes a message, or a list of messages when `consume_message_batch_max_size` is above 1.

Returning nothing or SUCCESS means consumed; RECONSUME_LATER or raising means: deliver it again later.
"""

EXPIRED_DELAY_LEVEL = 3
"""Messages that took too long come again at this delay level (client.md §13.5)."""


TURN_MESSAGES = 100
"""After so many messages consumed without waiting, the loop's other tasks get their turn."""
SWEEPS_PER_TIMEOUT = 4
SLOWEST_SWEEP_S = 1.0


class Work(NamedTuple):
    """Messages for one call of a handler, and the queue they are from."""

    pq: ProcessQueue
    messages: list[MessageExt]


class _Slot:
    """One worker: since when it runs a handler, None while it does not, and whether that was cut short."""

    __slots__ = ("expired", "since_s", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.since_s: float | None = None
        self.expired = False


class Consuming:
    """The messages waiting for handlers, and the workers that call them.

    What may wait is bounded by the limits of each queue; see `PullLimits`.

    Args:
        group: the consumer group.
        model: broadcast messages are not delivered again.
        send_back: takes what was not consumed.
        clock: source of time.
        spawn: runs a coroutine as a task of the consumer.
        batch_size: most messages of one call; above 1, handlers get lists.
        timeout_s: limit of one call.
        concurrency: how many calls run at the same time.
    """

    def __init__(
        self,
        group: str,
        model: MessageModel,
        send_back: SendBack,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        *,
        batch_size: int,
        timeout_s: float,
        concurrency: int,
    ) -> None:
        self._group = group
        self._model = model
        self._send_back = send_back
        self._clock = clock
        self._spawn = spawn
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._waiting: deque[Work] = deque()
        self._arrived = asyncio.Event()
        self._slots: list[_Slot] = []
        self._turn = 0
        self._executor: ThreadPoolExecutor | None = None
        self._open = True
        self.batch_size = batch_size
        self.handlers: dict[str, tuple[Handler, bool]] = {}
        """Handlers by topic, and whether they are coroutine functions."""
        self.consumed = 0
        self.failed = 0

    def subscribe(self, topic: str, handler: Handler) -> None:
        """Have a topic's messages consumed by `handler`."""
        self.handlers[topic] = (handler, inspect.iscoroutinefunction(handler))

    def start_workers(self) -> None:
        """Begin to call handlers."""
        for _ in range(self._concurrency):
            slot = _Slot()
            slot.task = self._spawn(self._work(slot))
            self._slots.append(slot)
        self._spawn(self._expire())

    async def drain(self, timeout_s: float) -> None:
        """Hand out nothing more, and let running handlers finish for so long."""
        self._open = False
        self._waiting.clear()
        self._arrived.set()
        workers = [slot.task for slot in self._slots if slot.task is not None]
        if workers:
            await asyncio.wait(workers, timeout=timeout_s)

    def close(self) -> None:
        """Drop the threads; handlers that still run in them are not waited for."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def put(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        """Queue pulled messages, whose topics are the original ones already."""
        if not messages:
            return
        size = self.batch_size
        if size == 1:
            self._waiting.extend([Work(pq, [message]) for message in messages])
        else:
            by_topic: dict[str, list[MessageExt]] = {}
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
            for same in by_topic.values():
                self._waiting.extend(Work(pq, same[i : i + size]) for i in range(0, len(same), size))
        self._arrived.set()

    async def next(self) -> Work | None:
        """The next work whose queue is still ours; None when the consumer has stopped."""
        self._turn += 1
        if self._turn >= TURN_MESSAGES:
            self._turn = 0
            await asyncio.sleep(0)
        while True:
            while self._waiting:
                work = self._waiting.popleft()
                if not work.pq.dropped:
                    work.pq.last_consume_ms = self._clock.now_ms()
                    return work
            if not self._open:
                return None
            self._arrived.clear()
            await self._arrived.wait()

    async def _work(self, slot: _Slot) -> None:
        while (work := await self.next()) is not None:
            failure: Exception | None = None
            result: ConsumeResult | None = None
            delay_level = 0
            slot.since_s = self._clock.monotonic()
            try:
                result = await self.call(work.messages[0].topic, work.messages)
            except asyncio.CancelledError:
                if not slot.expired or slot.task is None:
                    raise
                slot.expired = False
                slot.task.uncancel()
                delay_level = EXPIRED_DELAY_LEVEL
            except Exception as error:  # noqa: BLE001 - a handler may raise anything; it means "again later"
                failure = error
            finally:
                slot.since_s = None
            if work.pq.dropped:
                continue
            if delay_level or failure is not None or result is ConsumeResult.RECONSUME_LATER:
                await self.fail(work, failure, delay_level)
            else:
                self.finish(work)

    async def _expire(self) -> None:
        # One look at all workers now and then, instead of a timer for each message.
        pause_s = min(SLOWEST_SWEEP_S, self._timeout_s / SWEEPS_PER_TIMEOUT)
        while True:
            await asyncio.sleep(pause_s)
            latest_s = self._clock.monotonic() - self._timeout_s
            for slot in self._slots:
                if slot.since_s is not None and slot.since_s <= latest_s and slot.task is not None:
                    slot.since_s = None
                    slot.expired = True
                    slot.task.cancel()

    async def call(self, topic: str, messages: list[MessageExt]) -> ConsumeResult | None:
        """Call the topic's handler; sync ones in a thread.

        Raises:
            Exception: what the handler raises.
            ClientError: there is no handler, or it returned what nobody understands.
        """
        try:
            handler, is_async = self.handlers[topic]
        except KeyError:
            raise ClientError(
                f"group {self._group} got a message of topic {topic} but has no handler for it; subscribe with one, "
                "or use handlers for all topics or for none"
            ) from None
        argument = messages if self.batch_size > 1 else messages[0]
        outcome: Any
        if is_async:
            outcome = await handler(argument)  # type: ignore[misc]
        else:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._concurrency, f"consume-{self._group}")
            outcome = await asyncio.get_running_loop().run_in_executor(self._executor, handler, argument)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        if outcome is None or isinstance(outcome, ConsumeResult):
            return outcome
        raise ClientError(
            f"the handler of topic {topic} returned {outcome!r}; return None, ConsumeResult.SUCCESS or "
            "ConsumeResult.RECONSUME_LATER"
        )

    def finish(self, work: Work) -> None:
        """Its messages are consumed."""
        for message in work.messages:
            work.pq.finish(message.queue_offset)
        self.consumed += len(work.messages)

    async def fail(self, work: Work, failure: Exception | None, delay_level: int = 0) -> None:
        """Its messages were not consumed: send them back, or keep those that nobody takes and try again here.

        Args:
            work: the messages.
            failure: what the handler raised, None when it asked for a later delivery.
            delay_level: when they are delivered again; 0 lets the broker decide.
        """
        self.failed += len(work.messages)
        first = work.messages[0]
        others = len(work.messages) - 1
        what = f"{first.topic} {first.msg_id}" + (f" and {others} more" if others else "")
        if delay_level == EXPIRED_DELAY_LEVEL:
            _log.warning("%s: not consumed by group %s within %.0f s", what, self._group, self._timeout_s)
        elif failure is not None:
            _log.warning("%s: not consumed by group %s", what, self._group, exc_info=failure)
        if self._model is MessageModel.BROADCASTING:
            _log.warning("%s: dropped, a broadcast message is not delivered again", what)
            self.finish(work)
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
        self._waiting.append(work)
        self._arrived.set()
