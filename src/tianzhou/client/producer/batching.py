"""Automatic batching: messages wait a moment for others to be sent with (client.md §6.4).

The sender of a message gets the result of this message, with its own ids and offset from the batch's result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from tianzhou.client.producer.message_properties import message_properties
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.validation import check_message
from tianzhou.model import Message, MessageQueue, SendResult, names
from tianzhou.supervision import start_owned
from tianzhou.wire.properties import check_properties_size, encode_properties

ENTRY_BYTES = 22
"""Bytes that a batch adds to each message (wire.md §4.5)."""
_ID_LENGTH = 32
_ALONE = frozenset(
    {names.PGROUP, names.MSG_TYPE, names.START_DELIVER_TIME, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"}
)

SendTogether: TypeAlias = Callable[[list[Message], MessageQueue | None], Awaitable[SendResult]]


class _Key(NamedTuple):
    topic: str
    queue: MessageQueue | None
    wait_store_ok: bool
    tags: str | None


class _Batch:
    __slots__ = ("messages", "size", "timer", "waiters")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.waiters: list[asyncio.Future[SendResult]] = []
        self.size = 0
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    """Collector of messages that are sent together.

    Args:
        options: they have the maximum wait and size of a batch, and the maximum size of a body.
        send: sends messages of one topic in one request.
    """

    def __init__(self, options: ProducerOptions, send: SendTogether) -> None:
        self._options = options
        self._max_message_size = options.max_message_size
        self._send = send
        self._batches: dict[_Key, _Batch] = {}
        self._sends: set[asyncio.Task[None]] = set()
        self.held_bytes = 0
        """Bytes of messages that wait or are in flight."""

    def takes(self, message: Message) -> bool:
        """Whether a message may be sent in a batch, and there is room for it to wait."""
        return (
            message.delay_level <= 0
            and not message.topic.startswith(names.RETRY_PREFIX)
            and (not message.properties or _ALONE.isdisjoint(message.properties))
            and len(message.body) + ENTRY_BYTES < self._max_message_size
            and self.held_bytes + len(message.body) <= self._options.total_batch_max_bytes
        )

    async def add(self, message: Message, queue: MessageQueue | None) -> SendResult:
        """Send a message that `takes` accepted, together with others.

        Args:
            message: the message.
            queue: the queue to send it to; None for any.

        Raises:
            ClientError: the message cannot be sent; other messages are not affected.
            TianzhouError: the batch could not be sent.
        """
        check_message(message, self._max_message_size)
        properties = len(encode_properties(message_properties(message, "0" * _ID_LENGTH)))
        check_properties_size(properties)
        size = len(message.body) + properties + ENTRY_BYTES
        key = _Key(message.topic, queue, message.wait_store_ok, message.tags)
        loop = asyncio.get_running_loop()
        batch = self._batches.get(key)
        if batch is not None and batch.size + size > self._max_message_size:
            self._flush(key)
            batch = None
        if batch is None:
            batch = self._batches[key] = _Batch()
            batch.timer = loop.call_later(self._options.batch_max_delay_ms / 1000, self._flush, key)
        waiter: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(message)
        batch.waiters.append(waiter)
        batch.size += size
        self.held_bytes += size
        if batch.size > self._options.batch_max_bytes:
            self._flush(key)
        return await waiter

    def _flush(self, key: _Key) -> None:
        batch = self._batches.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        task = start_owned(self._deliver(key, batch), "producer")
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _deliver(self, key: _Key, batch: _Batch) -> None:
        try:
            whole = await self._send(batch.messages, key.queue)
        except BaseException as error:
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_exception(error) if isinstance(error, Exception) else waiter.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for waiter, result in zip(batch.waiters, members(whole, len(batch.messages)), strict=True):
                if not waiter.done():
                    waiter.set_result(result)
        finally:
            self.held_bytes -= batch.size

    async def close(self) -> None:
        """Send all waiting messages, and wait for the sends to end."""
        for key in list(self._batches):
            self._flush(key)
        if self._sends:
            await asyncio.wait(self._sends)


def members(whole: SendResult, count: int) -> list[SendResult]:
    """Return the result of each message of a batch, from the batch's result."""
    keys, ids = whole.msg_id.split(","), whole.offset_msg_id.split(",")
    if len(ids) != count:  # a queue of type BatchCQ stores the batch as one record
        ids = [whole.offset_msg_id] * count
    return [
        whole._replace(msg_id=key, offset_msg_id=offset_id, queue_offset=whole.queue_offset + n)
        for n, (key, offset_id) in enumerate(zip(keys, ids, strict=True))
    ]
