"""Messages that brokers have set aside because they cannot deliver them (docs/adr/0029): list, deliver after all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tianzhou.admin.queue_reading import ReadAllowance, read_range
from tianzhou.admin.reach import Reach
from tianzhou.client.cluster import rpc
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt, MessageQueue, names
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.properties import decode_properties
from tianzhou.wire.undeliverable import (
    LEDGER,
    MARK_QUEUE,
    NO_BODY,
    QUEUE,
    REASON,
    TARGET,
    TARGET_QUEUE,
    kept_message,
    marked,
)

MOST_READ = 10_000
"""Records of each of the two queues that are read of one broker."""
MOST_BYTES = 256 << 20
"""Bytes of these records."""


@dataclass(frozen=True, slots=True)
class UndeliverableMessage:
    """A message that a broker has set aside.

    Attributes:
        broker_name: the broker.
        id: the offset message id of the record that keeps it; names the message in requests.
        offset: the offset of that record in its queue.
        ledger: the ledger that has set it aside: `delay`, `retry`, `transaction` or `staged batch`.
        topic: the topic it was to be delivered to; empty where it names none.
        queue: queue of that topic.
        key: its unique key; empty without one.
        reason: why it cannot be delivered.
        set_aside_ms: when it was set aside, milliseconds since the epoch.
        body_bytes: size of its body as stored; -1 where the log alone has it.
    """

    broker_name: str
    id: str
    offset: int
    ledger: str
    topic: str
    queue: int
    key: str
    reason: str
    set_aside_ms: int
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Redelivery:
    """Result of a request to deliver messages.

    Attributes:
        delivered: ids of messages that were delivered.
        failed: id and cause of each that was not.
    """

    delivered: list[str]
    failed: list[tuple[str, str]]


def undelivered(kept: Iterable[MessageExt], marks: Iterable[MessageExt]) -> list[UndeliverableMessage]:
    """Return the messages that no mark says are delivered, the oldest first.

    Args:
        kept: records of the queue of messages.
        marks: records of the queue of marks.
    """
    done = {offset for mark in marks for offset in marked(mark.body)}
    return [_described(record) for record in kept if record.queue_offset not in done]


def _described(record: MessageExt) -> UndeliverableMessage:
    properties = record.properties
    queue = properties.get(TARGET_QUEUE, "")
    size, key = -1, ""
    if NO_BODY not in properties:
        try:
            message = kept_message(record.body)
        except ValueError:
            pass
        else:
            size, key = len(message.body or message.raw), decode_properties(message.properties).get(names.UNIQ_KEY, "")
    return UndeliverableMessage(
        record.broker_name,
        record.offset_msg_id,
        record.queue_offset,
        properties.get(LEDGER, ""),
        properties.get(TARGET, ""),
        int(queue) if queue.isascii() and queue.isdecimal() and len(queue) < 10 else 0,
        key or properties.get(names.UNIQ_KEY, ""),
        properties.get(REASON, ""),
        record.store_timestamp,
        size,
    )


class Undeliverable:
    """Messages that brokers have set aside.

    Args:
        reach: finds and asks the servers.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def list(self, broker_name: str | None = None) -> list[UndeliverableMessage]:
        """Return the messages that are set aside, broker by broker, the oldest first.

        Args:
            broker_name: one broker alone; None takes all.
        """
        found = []
        for name, address in sorted((await self._reach.masters()).items()):
            if broker_name in (None, name):
                kept = await self._records(name, address, QUEUE)
                marks = await self._records(name, address, MARK_QUEUE) if kept else []
                found += undelivered(kept, marks)
        return found

    async def _records(self, broker_name: str, address: str, queue_id: int) -> Sequence[MessageExt]:
        queue, remoting = MessageQueue(names.UNDELIVERABLE_TOPIC, broker_name, queue_id), self._reach.remoting
        begin, end = await rpc.min_offset(remoting, address, queue), await rpc.max_offset(remoting, address, queue)
        if begin >= end:
            return []
        allowance = ReadAllowance(MOST_BYTES)
        return await read_range(self._reach, address, queue, max(begin, end - MOST_READ), end, allowance)

    async def resend(self, messages: Iterable[UndeliverableMessage], *, to: str | None = None) -> Redelivery:
        """Have brokers deliver messages that they have set aside; a message that fails stays where it is.

        Args:
            messages: of `list`.
            to: the topic to deliver to, which has to exist; None for the topic that each was to go to.
        """
        masters = await self._reach.masters()
        done: list[str] = []
        failed: list[tuple[str, str]] = []
        for message in messages:
            try:
                address = masters.get(message.broker_name)
                if address is None:
                    failed.append((message.id, f"broker {message.broker_name} has no master now"))
                    continue
                code = RequestCode.RESUME_CHECK_HALF_MESSAGE
                await self._reach.call(address, code, msg_id=message.id, topic=to or message.topic)
            except TianzhouError as error:
                failed.append((message.id, str(error)))
            else:
                done.append(message.id)
        return Redelivery(done, failed)
