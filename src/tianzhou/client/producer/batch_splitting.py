"""Division of messages into batches below a size limit, and of a batch's result among its messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tianzhou.client.producer.message_properties import message_properties
from tianzhou.client.validation import MAX_MESSAGE_SIZE, check_body, check_is_message
from tianzhou.errors import ClientError
from tianzhou.model import Message, SendResult
from tianzhou.wire.batch import entry_size
from tianzhou.wire.properties import encode_properties

_UNIQUE_KEY: Final = "0" * 32
"""Placeholder of a unique key, of the length of all unique keys."""


def split_batches(messages: Iterable[Message], limit: int = MAX_MESSAGE_SIZE) -> list[list[Message]]:
    """Divide messages into batches, in order, each of which `send_batch` accepts.

    Args:
        messages: messages of one topic.
        limit: maximum number of bytes of a batch, with the properties of its messages (wire.md §4.5). Brokers accept
            4 MiB by default; RocketMQ's documents recommend 1 MiB.

    Returns:
        The batches; an empty list for no messages.

    Raises:
        ClientError: a single message is larger than the limit, or an object is no message; the error has its position.
    """
    all_messages = list(messages)
    sizes = []
    for message in all_messages:
        check_is_message(message)
        check_body(message.body, limit)
        sizes.append(entry_size(len(message.body), len(encode_properties(message_properties(message, _UNIQUE_KEY)))))
    begin, batches = 0, []
    for count in batch_counts(sizes, limit):
        batches.append(all_messages[begin : begin + count])
        begin += count
    return batches


def batch_counts(sizes: Sequence[int], limit: int) -> list[int]:
    """Return the number of entries of each batch, in order, so that each batch is as full as the limit allows.

    Args:
        sizes: bytes of each entry.
        limit: maximum number of bytes of a batch.

    Raises:
        ClientError: one entry is larger than the limit.
    """
    counts: list[int] = []
    count = filled = 0
    for number, size in enumerate(sizes):
        if size > limit:
            raise ClientError(
                f"message {number} of the batch has {size} bytes with its properties, the limit of a batch is {limit}; "
                "make it smaller, or send it alone"
            )
        if filled + size > limit:
            counts.append(count)
            count = filled = 0
        count += 1
        filled += size
    return [*counts, count] if count else counts


def results_of_messages(batch: SendResult, count: int) -> list[SendResult]:
    """Return the result of each message of a batch.

    Args:
        batch: the result of the batch, from the broker or from the outbox.
        count: number of messages of the batch.
    """
    offset_ids = batch.offset_msg_id.split(",")
    if len(offset_ids) != count:
        offset_ids = [batch.offset_msg_id] * count  # a topic of batch queues has one id for the whole batch
    is_stored = batch.queue_offset >= 0
    return [
        batch._replace(
            msg_id=key, offset_msg_id=offset_id, queue_offset=batch.queue_offset + number if is_stored else -1
        )
        for number, (key, offset_id) in enumerate(zip(batch.msg_id.split(","), offset_ids, strict=True))
    ]
