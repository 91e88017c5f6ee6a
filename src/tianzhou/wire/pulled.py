"""Decoder of messages from the records of a pull reply (wire.md §5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tianzhou._hot import MessageReader
from tianzhou.errors import CorruptRecord, ProtocolError
from tianzhou.limits import ENTRIES_OF_ANSWER, UNPACKED_BODY
from tianzhou.model import MessageExt
from tianzhou.records.checksum import Octets
from tianzhou.records.codec import Record, decode_record
from tianzhou.records.layout import INNER_BATCH_BITS, OVERHEAD
from tianzhou.unpacked_bodies import UnpackedBodies
from tianzhou.wire.batch import decode_batch
from tianzhou.wire.compression import COMPRESSED, decompress
from tianzhou.wire.delivered import DeliveredMessage, PackedMessage
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import decode_properties

MAX_UNPACKED: Final = UNPACKED_BODY.default
"""Default maximum size of an unpacked body, in bytes."""
_READER: Final = MessageReader(DeliveredMessage)


class Allowance:
    """Limits for the batches of one answer: bytes and messages that they may still unpack to.

    Args:
        size_bytes: maximum bytes of all unpacked batches together.
    """

    __slots__ = ("entries", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.entries = ENTRIES_OF_ANSWER.default


def to_message(
    record: Record,
    broker_name: str,
    limit_bytes: int = MAX_UNPACKED,
    added: bytes = b"",
    allowance: Allowance | None = None,
    unpacked: UnpackedBodies | None = None,
) -> list[MessageExt]:
    """Return the messages that a record delivers: one message, or the messages of an inner batch (wire.md §5).

    The message does not have the compressed bit. A compressed body is unpacked at an access (`PackedMessage`). The
    topic is the stored one, so `%RETRY%…` stays. A batch that cannot be decoded becomes one message whose body raises
    an error.

    Args:
        record: the record from a broker.
        broker_name: the broker that sent it.
        limit_bytes: maximum size of an unpacked body.
        added: further properties, each from `pair_behind`.
        allowance: limits for batches that several records share.
        unpacked: bound that counts the unpacked bodies of messages; by default the bound of the process.
    """
    sys_flag = record.sys_flag & ~COMPRESSED
    message = DeliveredMessage(
        record.topic,
        record.body,
        record.flag,
        decode_properties(record.properties + added),
        broker_name,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
        host_text(record.born_host, record.born_port),
        record.store_timestamp,
        host_text(record.store_host, record.store_port),
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body_crc,
        record.size,
        offset_msg_id(record.store_host, record.store_port, record.physical_offset),
    )
    if sys_flag & INNER_BATCH_BITS != INNER_BATCH_BITS:
        if record.sys_flag & COMPRESSED:
            return [PackedMessage.of(message, record.sys_flag, limit_bytes, unpacked=unpacked)]
        return [message]
    try:
        entries = _entries(record, allowance or Allowance(limit_bytes))
    except ProtocolError as error:
        return [PackedMessage.of(message, record.sys_flag, limit_bytes, error.with_traceback(None))]
    return [
        replace(
            message,
            flag=flag,
            body=bytes(inner),
            properties=decode_properties(bytes(properties) + added),
            queue_offset=record.queue_offset + n,
        )
        for n, (flag, inner, properties) in enumerate(entries)
    ]


def _entries(record: Record, allowance: Allowance) -> list[tuple[int, memoryview, memoryview]]:
    body = record.body
    if record.sys_flag & COMPRESSED:
        body = decompress(body, record.sys_flag, allowance.size_bytes)
        allowance.size_bytes -= len(body)
    most, allowance.entries = allowance.entries, 0  # after a batch above the limit, decode no further batch
    entries = decode_batch(body, most)
    allowance.entries = most - len(entries)
    return entries


def decode_messages(
    buffer: Octets,
    broker_name: str,
    limit_bytes: int = MAX_UNPACKED,
    added: bytes = b"",
    unpacked: UnpackedBodies | None = None,
) -> list[MessageExt]:
    """Return all messages of a reply body, as `decode_records` and `to_message` together do, at half their cost.

    The walk over a log cannot replace it: the walk accepts a record only at its own log offset, and omits bodies.

    Args:
        buffer: the body of a pull reply; decoding stops at the first corrupt record.
        broker_name: the broker that sent it.
        limit_bytes: maximum size of an unpacked body, and of all batches of the reply together.
        added: further properties of all messages, each from `pair_behind`.
        unpacked: bound that counts the unpacked bodies of messages; by default the bound of the process.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    messages: list[MessageExt] = []
    allowance: Allowance | None = None
    at = 0
    while True:
        at = _READER.read(data, at, broker_name, added, messages)
        if len(data) - at < OVERHEAD:
            break
        try:
            record = decode_record(data, at)
        except CorruptRecord:
            break
        if allowance is None:
            allowance = Allowance(limit_bytes)
        messages += to_message(record, broker_name, limit_bytes, added, allowance, unpacked)
        at += record.size
    return messages
