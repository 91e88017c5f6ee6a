"""Messages that brokers have set aside as undeliverable (docs/adr/0029): list, deliver again."""

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
"""Maximum number of records to read of each of the two queues of one broker."""
MOST_BYTES = 256 << 20
"""Maximum total size of these records, in bytes."""


@dataclass(frozen=True, slots=True)
class UndeliverableMessage:
    """A message that a broker has set aside as undeliverable.

    Attributes:
        broker_name: name of the broker.
        id: offset message id of the record that stores it; requests name the message by it.
        offset: the offset of that record in its queue.
        ledger: the component that has set it aside: `delay`, `retry`, `transaction` or `staged batch`.
        topic: topic of the intended delivery; empty when the message names none.
        queue: queue of the intended delivery.
        key: its unique key; empty without one.
        reason: why it cannot be delivered.
        set_aside_ms: time when it was set aside, in ms since the epoch.
        body_bytes: size of its stored body; -1 when only the log has it.
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
        delivered: ids of the delivered messages.
        failed: id and cause of each failed message.
    """

    delivered: list[str]
    failed: list[tuple[str, str]]


def undelivered(kept: Iterable[MessageExt], marks: Iterable[MessageExt]) -> list[UndeliverableMessage]:
    """Return the messages that no mark reports as delivered, the oldest first.

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
    """Operations on messages that brokers have set aside.

    Args:
        reach: finds the servers and sends the requests.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def list(self, broker_name: str | None = None) -> list[UndeliverableMessage]:
        """Return the messages that are set aside, grouped by broker, the oldest first.

        Args:
            broker_name: name of the only broker to read; None takes all.
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
        """Let brokers deliver messages that they have set aside. A message that fails stays set aside.

        Args:
            messages: results of `list`.
            to: an existing topic to deliver to; None for the intended topic of each message.
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
