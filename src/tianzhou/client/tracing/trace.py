"""Message trace: records of sends and handler calls, as messages of a trace topic (client.md §20.2).

`TraceDispatcher` has hooks that collect records, and sends these in the background. Neither waits for the other:
records that cannot be sent, or that exceed the limit of waiting records, are dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from tianzhou.client.hooks import ConsumeOutcome, EndTransactionContext, HandlerCall, SendContext
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import unwrap
from tianzhou.client.tracing import trace_records as records
from tianzhou.client.tracing.options import TraceOptions
from tianzhou.client.tracing.trace_records import Traced
from tianzhou.errors import TianzhouError
from tianzhou.model import Message, MessageExt, SendResult, SendStatus, names

_log = logging.getLogger(__name__)

GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"
CLOUD_TOPIC_PREFIX = "rmq_sys_TRACE_DATA_"
MOST_WAITING = 2_048
"""Maximum number of waiting contexts; further ones are dropped."""
MOST_PER_FLUSH = 20
FLUSH_EVERY_S = 5.0
SEND_TIMEOUT_MS = 5_000
MAX_MESSAGE_BYTES = 128_000
LAST_FLUSH_S = 5.0
"""Timeout in seconds for sending the last records when a dispatcher stops."""

_serial = itertools.count(1)


class _Entry(NamedTuple):
    """Records of one event, and the keys to find them by."""

    data_topic: str
    trace_topic: str
    text: str
    keys: set[str]


class TraceProducer(Protocol):
    """The producer that sends the records of a dispatcher."""

    async def start(self) -> None:
        """Start the producer."""
        ...

    async def send_outside(self, message: Message) -> SendResult:
        """Send a message whose topic is already the servers' name, without the namespace."""
        ...

    async def stop(self) -> None:
        """Stop the producer."""
        ...


class TraceDispatcher:
    """Collector and sender of trace records.

    Args:
        instance: the client instance of the producer or consumer.
        group: its group, by its users' name.
        options: the options of the trace.
        producer: sends the records; the dispatcher owns it.
    """

    def __init__(self, instance: ClientInstance, group: str, options: TraceOptions, producer: TraceProducer) -> None:
        self._instance = instance
        self._group = group
        self._producer = producer
        self._cloud = options.access_channel == "CLOUD"
        self._topic = options.trace_topic or names.TRACE_TOPIC
        self._batch = min(options.trace_msg_batch_num, MOST_PER_FLUSH)
        self._now_ms = instance.clock.now_ms
        self._waiting: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """Number of contexts that were not sent."""
        self.sent = 0
        """Number of trace messages that were stored."""

    # --- hooks -----------------------------------------------------------------------------------------------

    def on_send(self, context: SendContext) -> Callable[[SendContext], None] | None:
        """Record an attempt; a send hook."""
        if context.queue.topic.startswith(self._topic):
            return None
        began_ms = self._now_ms()

        def after(context: SendContext) -> None:
            result = context.result
            if result is None or result.region is None or not result.trace_on:
                return
            count = len(context.messages)
            record = partial(
                records.pub,
                timestamp_ms=began_ms,
                region=result.region,
                group=self._group,
                store_host=context.address,
                cost_ms=(self._now_ms() - began_ms) // max(count, 1),
                kind=context.kind,
                success=result.status is SendStatus.SEND_OK,
            )
            places = _per_member(result.offset_msg_id, count)
            traced, texts = [], []
            for message, msg_id, place in zip(context.messages, result.msg_id.split(","), places, strict=False):
                size = context.body_bytes if count == 1 else len(message.body)
                traced.append(_traced(message, msg_id))
                texts.append(record(traced[-1], body_bytes=size, offset_msg_id=place))
            self._note(result.region, traced, texts)

        return after

    def on_consume(self, call: HandlerCall) -> Callable[[HandlerCall], None] | None:
        """Record a call of a handler; a consume hook."""
        wanted = [
            message
            for message in call.messages
            if message.properties.get(names.TRACE_ON) != "false" and not message.topic.startswith(self._topic)
        ]
        if not wanted:
            return None
        began_ms = self._now_ms()
        request_id = self._instance.ids.next(began_ms)
        # Brokers of RocketMQ 4 do not write their region into messages.
        region = wanted[-1].properties.get(names.MSG_REGION) or records.DEFAULT_REGION
        traced = [_delivered(self._instance, message) for message in wanted]
        before = partial(
            records.sub_before, timestamp_ms=began_ms, region=region, group=self._group, request_id=request_id
        )
        times = [message.reconsume_times for message in wanted]
        self._note(region, traced, [before(one, retry_times=n) for one, n in zip(traced, times, strict=True)])

        def after(call: HandlerCall) -> None:
            now_ms = self._now_ms()
            record = partial(
                records.sub_after,
                timestamp_ms=now_ms,
                group=self._group,
                request_id=request_id,
                cost_ms=(now_ms - began_ms) // max(len(call.messages), 1),
                success=call.success,
                outcome=call.outcome if call.outcome is not None else ConsumeOutcome.FAILED,
                cloud=self._cloud,
            )
            self._note(region, traced, [record(one) for one in traced])

        return after

    def on_end_transaction(self, context: EndTransactionContext) -> Callable[[EndTransactionContext], None] | None:
        """Record the end of a transaction; an end-of-transaction hook."""
        message = context.message
        if message.topic.startswith(self._topic):
            return None

        def after(context: EndTransactionContext) -> None:
            if isinstance(message, MessageExt):
                traced = _delivered(self._instance, message)
            else:
                traced = _traced(message, context.msg_id)
            region = message.properties.get(names.MSG_REGION) or records.DEFAULT_REGION
            text = records.end_transaction(
                traced,
                timestamp_ms=self._now_ms(),
                region=region,
                group=self._group,
                store_host=context.address,
                transaction_id=context.transaction_id,
                state=context.state,
                from_check=context.from_check,
            )
            self._note(region, [traced], [text])

        return after

    def _note(self, region: str, traced: list[Traced], texts: list[str]) -> None:
        if not traced:
            return
        if len(self._waiting) >= MOST_WAITING or self._task is None:
            self.dropped += 1
            return
        keys = {key for message in traced for key in message.index_keys()}
        topic = CLOUD_TOPIC_PREFIX + region if self._cloud else self._topic
        self._waiting.append(_Entry(traced[0].topic, topic, "".join(texts), keys))
        if len(self._waiting) >= self._batch:
            self._wake.set()

    # --- start and stop --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start sending."""
        if self._task is None:
            await self._producer.start()
            self._task = self._instance.keep("traces", self._run)

    async def stop(self) -> None:
        """Send the waiting records, for `LAST_FLUSH_S` seconds at most, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            async with asyncio.timeout(LAST_FLUSH_S):
                while self._waiting:
                    await self._flush()
        except TimeoutError:
            _log.info("%d trace contexts of group %s are lost: no time was left", len(self._waiting), self._group)
            self.dropped += len(self._waiting)
            self._waiting.clear()
        await self._producer.stop()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            while self._waiting:
                await self._flush()

    async def _flush(self) -> None:
        """Send the next records in line; records of one topic share a message."""
        by_topic: dict[tuple[str, str], list[_Entry]] = {}
        for _ in range(min(self._batch, len(self._waiting))):
            entry = self._waiting.popleft()
            by_topic.setdefault((entry.data_topic, entry.trace_topic), []).append(entry)
        for (_, trace_topic), entries in by_topic.items():
            for text, keys in _filled(entries):
                await self._send(trace_topic, text, keys, len(entries))

    async def _send(self, topic: str, text: str, keys: set[str], count: int) -> None:
        message = Message(topic, text.encode("utf-8", "replace"), keys=sorted(keys))
        try:
            await self._producer.send_outside(message)
        except TianzhouError as error:
            self.dropped += count
            level = logging.WARNING if self.dropped == count else logging.DEBUG
            _log.log(level, "trace records of group %s are lost, and sends go on: %s", self._group, error)
        else:
            self.sent += 1


def trace_group(group: str, kind: str) -> str:
    """Return the name of a trace producer's own group."""
    return f"{GROUP_PREFIX}{group}-{kind}-{next(_serial)}"


def _filled(entries: Iterable[_Entry]) -> Iterable[tuple[str, set[str]]]:
    """Yield the texts and keys of messages that are small enough, from joined entries."""
    text, keys, size = "", set[str](), 0
    for entry in entries:
        bytes_ = len(entry.text.encode("utf-8", "replace"))
        if text and size + bytes_ > MAX_MESSAGE_BYTES:
            yield text, keys
            text, keys, size = "", set(), 0
        text += entry.text
        keys |= entry.keys
        size += bytes_
    if text:
        yield text, keys


def _per_member(joined: str, count: int) -> list[str]:
    parts = joined.split(",")
    return parts if len(parts) == count else [joined] * count


def _traced(message: Message, msg_id: str) -> Traced:
    return Traced(message.topic, msg_id, message.tags or None, message.key_text() or None)


def _delivered(instance: ClientInstance, message: MessageExt) -> Traced:
    return Traced(
        unwrap(instance.namespace, message.topic),
        message.msg_id,
        message.tags,
        message.properties.get(names.KEYS),
    )
