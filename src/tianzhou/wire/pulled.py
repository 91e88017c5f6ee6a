"""Messages out of the records that a pull brings (wire.md §5)."""

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
"""Default of the largest body that is unpacked, bytes."""
_READER: Final = MessageReader(DeliveredMessage)


class Allowance:
    """Bytes and messages that the batches of one answer may still unpack to.

    Args:
        size_bytes: most bytes of unpacked batches together.
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

    The compressed bit is cleared, and a compressed body is unpacked when it is looked at (`PackedMessage`); the topic
    is the stored one (`%RETRY%…` stays). A batch that cannot be taken apart comes as one message whose body raises.

    Args:
        record: what a broker sent.
        broker_name: the broker that sent it.
        limit_bytes: largest unpacked body that is accepted.
        added: further properties, each by `pair_behind`.
        allowance: what batches may take, when several records share it.
        unpacked: counts the bodies that messages keep unpacked; by default that of the process.
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
    most, allowance.entries = allowance.entries, 0  # one batch too many is enough work for an answer
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

    The walk over a log is of no use here: it takes records only where they say they are, and leaves their bodies out.

    Args:
        buffer: the body of a pull reply; reading stops at the first bad record.
        broker_name: the broker that sent it.
        limit_bytes: largest unpacked body that is accepted, and all batches of the reply together.
        added: further properties of all messages, each by `pair_behind`.
        unpacked: counts the bodies that messages keep unpacked; by default that of the process.
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
