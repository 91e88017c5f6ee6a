"""Messages in an outbox, and which of them are sent in one batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tianzhou.model import Message, MessageQueue, names

MOST_TOGETHER = 200
"""Maximum number of messages in one batch when the cluster is available again."""


class OutboxEntry(msgspec.Struct, array_like=True, gc=False):
    """A message in the outbox, with all values that the later send needs.

    Attributes:
        topic: its topic, by its users' name.
        body: its body, not compressed.
        properties: all properties, including the unique key.
        flag: the user's flag.
        born_ms: time of its first send.
        broker_name: broker of the queue to send it to; empty for any.
        queue_id: id of that queue.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int
    born_ms: int
    broker_name: str = ""
    queue_id: int = -1

    @property
    def queue(self) -> MessageQueue | None:
        """The queue to send it to; None for any."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id) if self.broker_name else None

    def message(self) -> Message:
        """Return the sender's message."""
        own = dict(self.properties)
        own.pop(names.UNIQ_KEY, None)
        return Message(
            self.topic,
            self.body,
            own.pop(names.TAGS, None),
            own.pop(names.KEYS, ""),
            self.flag,
            delay_level=int(own.pop(names.DELAY, "0")),
            sharding_key=own.pop(names.SHARDING_KEY, None),
            wait_store_ok=own.pop(names.WAIT, "true") != "false",
            properties=own,
        )


class OutboxStatus(NamedTuple):
    """Status of an outbox.

    Attributes:
        place: its folder, or its address and stream in Redis, without the password.
        pending: number of waiting messages.
        bytes: their bytes.
        max_bytes: maximum number of bytes.
        oldest_ms: time of the first message's send, milliseconds since the epoch; None when the outbox is empty.
        sent: number of messages that it has sent since the producer started.
        refused: number of messages that brokers rejected since then. They are set aside: in `refused.jsonl` of the
            folder, or in the stream with the suffix `:refused`.
        last_error: error of the latest attempt; None when it succeeded.
        lost: number of stored messages that the store no longer has, as noticed since the start. The log has an error
            with the cause.
    """

    place: str
    pending: int
    bytes: int
    max_bytes: int
    oldest_ms: int | None
    sent: int
    refused: int
    last_error: str | None
    lost: int = 0


def together(entries: Sequence[OutboxEntry]) -> int:
    """Return the number of first messages that may be sent as one batch: same topic, queue, sharding key and `WAIT`."""

    def kind(message: OutboxEntry) -> tuple[object, ...]:
        properties = message.properties
        return (
            message.topic,
            message.queue,
            properties.get(names.SHARDING_KEY),
            properties.get(names.WAIT),
        )

    if _goes_alone(entries[0]):
        return 1
    count = 1
    for message in entries[1:MOST_TOGETHER]:
        if _goes_alone(message) or kind(message) != kind(entries[0]):
            break
        count += 1
    return count


def _goes_alone(message: OutboxEntry) -> bool:
    properties = message.properties
    return names.DELAY in properties or any(
        name.startswith(("TIMER_", names.START_DELIVER_TIME)) for name in properties
    )
