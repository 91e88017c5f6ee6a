"""Preparation of messages for any queue: checks, unique keys, properties, compression (client.md §5.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tianzhou.client.hooks import MessageKind, stamps
from tianzhou.client.instance import ClientInstance
from tianzhou.client.namespaces.namespaces import wrap
from tianzhou.client.producer.batch_splitting import batch_counts
from tianzhou.client.producer.message_properties import message_properties, retry_properties
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.client.producer.outbox.outbox_entry import OutboxEntry
from tianzhou.client.producer.send_request import BATCH, REPLY, SINGLE, PreparedMessage
from tianzhou.client.validation import (
    COMPRESSION_KINDS,
    check_attributes,
    check_batch,
    check_body,
    check_is_message,
    check_number,
)
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageExt, MessageQueue, names
from tianzhou.wire.batch import encode_batch, entry_size
from tianzhou.wire.compression import pack_body
from tianzhou.wire.properties import check_properties_size, encode_properties
from tianzhou.wire.staging import StagedMessage
from tianzhou.wire.templates import properties_json

TRANSACTION_PREPARED = 0x4
"""Bit of sysFlag (wire.md §4.4)."""


class _BatchMember(NamedTuple):
    """A message of a batch.

    Attributes:
        message: the sender's message.
        unique_key: its unique key.
        stamped: properties from stamp hooks.
        properties: its property string (wire.md §4.3).
    """

    message: Message
    unique_key: str
    stamped: dict[str, str]
    properties: bytes

    @property
    def size(self) -> int:
        """Bytes of its entry in the batch's body."""
        return entry_size(len(self.message.body), len(self.properties))


class MessageBuilder:
    """Builder of prepared messages.

    Args:
        instance: its clock, namespace and source of unique keys are used.
        options: they have the maximum size of a body, its compression, and the hooks that add properties.
    """

    def __init__(self, instance: ClientInstance, options: ProducerOptions) -> None:
        self._namespace = instance.namespace
        self._ids = instance.ids
        self._now_ms = instance.clock.now_ms
        self._max_message_size = options.max_message_size
        self._compress_over = options.compress_msg_body_over_howmuch
        self._compress_kind = COMPRESSION_KINDS[options.compress_type]
        self._compress_level = options.compress_level
        self._stamp_hooks = tuple(options.stamp_hooks)

    def pack(self, body: bytes) -> tuple[bytes, int]:
        """Return a body as it is sent, and the sysFlag bits of its compression."""
        return pack_body(body, self._compress_over, self._compress_kind, self._compress_level)

    def single(self, message: Message, extra: Mapping[str, str] | None = None) -> PreparedMessage:
        """Prepare a message.

        Args:
            message: the message.
            extra: further properties.

        Raises:
            ClientError: the message cannot be sent.
        """
        check_is_message(message)
        check_body(message.body, self._max_message_size)
        check_attributes(message)
        now_ms = self._now_ms()
        unique_key = self._ids.next(now_ms)
        properties = message_properties(message, unique_key, self._namespace)
        stamped = stamps(self._stamp_hooks, message, unique_key)
        properties |= stamped
        if extra:
            properties.update(extra)
        body, sys_flag = self.pack(bytes(message.body))
        kind = MessageKind.NORMAL
        if properties.get(names.TRAN_MSG) == "true":
            sys_flag |= TRANSACTION_PREPARED
            kind = MessageKind.TRANSACTION_HALF
        if names.DELAY in properties or names.START_DELIVER_TIME in properties:
            kind = MessageKind.DELAY
        is_reply = properties.get(names.MSG_TYPE) == names.REPLY_TYPE
        return PreparedMessage(
            # Reply topics belong to the brokers, so they have no namespace.
            message.topic if is_reply else wrap(self._namespace, message.topic),
            REPLY if is_reply else SINGLE,
            unique_key,
            now_ms,
            message.flag,
            sys_flag,
            properties_json(properties),
            body,
            messages=(message,),
            kind=kind,
            stamped=(stamped,),
        )

    def batch(self, messages: Sequence[Message]) -> PreparedMessage:
        """Prepare messages that are sent as one batch.

        Raises:
            ClientError: the messages cannot be in one batch, or one of them cannot be sent.
        """
        check_batch(messages, self._max_message_size)
        now_ms = self._now_ms()
        members = [self._member(message, now_ms) for message in messages]
        size = sum(member.size for member in members)
        if size > self._max_message_size:
            raise ClientError(
                f"the batch of {len(messages)} messages has {size} bytes, the limit is {self._max_message_size} "
                "(max_message_size); split it, as send_batch(…, split=True) does"
            )
        return self._batch_of(members, now_ms)

    def batches(self, messages: Sequence[Message], limit: int | None) -> list[PreparedMessage]:
        """Prepare messages that are sent as several batches, in order.

        Args:
            messages: messages of one topic.
            limit: maximum number of bytes of a batch; None for `max_message_size`.

        Raises:
            ClientError: the limit is out of range, the messages are of several kinds, or one of them cannot be sent.
        """
        if limit is None:
            limit = self._max_message_size
        check_number("max_bytes", limit, 1, self._max_message_size)
        check_batch(messages, self._max_message_size)
        now_ms = self._now_ms()
        members = [self._member(message, now_ms) for message in messages]
        begin, batches = 0, []
        for count in batch_counts([member.size for member in members], limit):
            batches.append(self._batch_of(members[begin : begin + count], now_ms))
            begin += count
        return batches

    def _member(self, message: Message, now_ms: int) -> _BatchMember:
        unique_key = self._ids.next(now_ms)
        stamped = stamps(self._stamp_hooks, message, unique_key)
        encoded = encode_properties(message_properties(message, unique_key, self._namespace) | stamped)
        check_properties_size(len(encoded))
        return _BatchMember(message, unique_key, stamped, encoded)

    def _batch_of(self, members: Sequence[_BatchMember], now_ms: int) -> PreparedMessage:
        messages = [member.message for member in members]
        return PreparedMessage(
            wrap(self._namespace, messages[0].topic),
            BATCH,
            ",".join([member.unique_key for member in members]),
            now_ms,
            0,
            0,
            "" if messages[0].wait_store_ok else properties_json({names.WAIT: "false"}),
            encode_batch([(member.message.flag, member.message.body, member.properties) for member in members]),
            messages=messages,
            stamped=[member.stamped for member in members],
        )

    def staged(self, message: Message, queue_id: int) -> StagedMessage:
        """Prepare a message to be staged for a queue.

        Raises:
            ClientError: the message cannot be sent.
        """
        check_is_message(message)
        check_body(message.body, self._max_message_size)
        check_attributes(message)
        properties = message_properties(message, self._ids.next(self._now_ms()), self._namespace)
        encoded = encode_properties(properties)
        check_properties_size(len(encoded))
        body, sys_flag = self.pack(bytes(message.body))
        return StagedMessage(wrap(self._namespace, message.topic), queue_id, message.flag, sys_flag, encoded, body)

    def outbox_entries(self, prepared: PreparedMessage, queue: MessageQueue | None) -> list[OutboxEntry]:
        """Return the outbox entries of messages from `single` or `batch`.

        Args:
            prepared: the messages, none of them a reply or part of a transaction.
            queue: the queue to send them to; None for any.
        """
        where = (queue.broker_name, queue.queue_id) if queue is not None else ("", -1)
        return [
            OutboxEntry(
                message.topic,
                bytes(message.body),
                message_properties(message, unique_key, self._namespace) | stamped,
                message.flag,
                prepared.born_ms,
                *where,
            )
            for message, unique_key, stamped in zip(
                prepared.messages, prepared.unique_keys.split(","), prepared.stamped, strict=True
            )
        ]

    def from_outbox(self, entries: Sequence[OutboxEntry]) -> PreparedMessage:
        """Return messages from an outbox, with the unique keys and properties of their first send."""
        first = entries[0]
        messages = [entry.message() for entry in entries]
        keys = ",".join([entry.properties[names.UNIQ_KEY] for entry in entries])
        topic = wrap(self._namespace, first.topic)
        if len(entries) == 1:
            body, sys_flag = self.pack(first.body)
            kind = MessageKind.DELAY if names.DELAY in first.properties else MessageKind.NORMAL
            properties = properties_json(first.properties)
            return PreparedMessage(
                topic, SINGLE, keys, first.born_ms, first.flag, sys_flag, properties, body, 0, None, messages, kind
            )
        body = encode_batch([(entry.flag, entry.body, encode_properties(entry.properties)) for entry in entries])
        shared = "" if messages[0].wait_store_ok else properties_json({names.WAIT: "false"})
        return PreparedMessage(topic, BATCH, keys, first.born_ms, 0, 0, shared, body, messages=messages)

    def retried(
        self, message: MessageExt, group: str, *, max_reconsume_times: int, delay_level: int
    ) -> PreparedMessage:
        """Prepare a delivered message for a group's retry topic (client.md §13.4).

        Args:
            message: the message, as delivered.
            group: the consumer group.
            max_reconsume_times: number of attempts after which it becomes a dead letter.
            delay_level: delay level of its next delivery.
        """
        body, sys_flag = self.pack(message.body)
        return PreparedMessage(
            wrap(self._namespace, names.retry_topic(group)),
            SINGLE,
            message.msg_id,
            self._now_ms(),
            message.flag,
            sys_flag,
            properties_json(retry_properties(message, delay_level)),
            body,
            message.reconsume_times + 1,
            max_reconsume_times,
        )
