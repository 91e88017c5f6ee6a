"""Records of messages that are set aside, and marks of messages that were delivered later (docs/adr/0029)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tianzhou.model import names
from tianzhou.records.codec import Record
from tianzhou.store.results import NewRecord, PutStatus
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import decode_properties, encode_properties
from tianzhou.wire.undeliverable import (
    LEDGER,
    MARK_QUEUE,
    MARK_TAG,
    MAX_REASON,
    NO_BODY,
    PLACE,
    QUEUE,
    REASON,
    TARGET,
    TARGET_QUEUE,
    SetAsideMessage,
    UndeliverableWalk,
)

_UNSTORABLE = str.maketrans({"\x00": " ", "\x01": " ", "\x02": " ", "\n": " "})

REPEATS: Final = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
    }
)
"""Refusals caused by the message itself. All others are temporary: a full disk, another leader, flow control."""


def message_of(record: NewRecord) -> SetAsideMessage:
    """Return a record to store as a message to set aside.

    The target of a delayed message is its real topic.
    """
    topic, queue_id = record.topic, record.queue_id
    if topic == names.SCHEDULE_TOPIC:
        properties = decode_properties(record.properties)
        topic, queue = properties.get(names.REAL_TOPIC, topic), properties.get(names.REAL_QID, "")
        queue_id = int(queue) if queue.isascii() and queue.isdecimal() else 0
    return SetAsideMessage(topic, queue_id, *_content(record), record.prepared_transaction_offset)


def placeless(record: Record) -> SetAsideMessage:
    """Return a waiting message without topic and queue as a message to set aside."""
    return SetAsideMessage("", 0, *_content(record))


def _content(record: NewRecord | Record) -> tuple[bytes, bytes, int, int, int, bytes, int, int]:
    """Return the fields of a set-aside message between its queue and its transaction, in their order."""
    return (
        bytes(record.body),
        bytes(record.properties),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.born_port,
        record.reconsume_times,
    )


def delivery(message: SetAsideMessage, topic: str, queue_id: int) -> NewRecord:
    """Return the record that delivers a set-aside message to a topic and queue."""
    properties = decode_properties(message.properties)
    return NewRecord(
        topic,
        queue_id,
        message.body,
        message.properties,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.born_port,
        message.reconsume_times,
        message.half_offset,
        tags_code(properties.get(names.TAGS)),
        properties.get(names.KEYS, ""),
        properties.get(names.UNIQ_KEY, ""),
    )


def aside_record(
    message: SetAsideMessage, ledger: UndeliverableWalk, reason: str, place: int, now_ms: int, host: bytes, port: int
) -> NewRecord:
    """Return the record that stores a set-aside message.

    Args:
        message: the message.
        ledger: the ledger that sets it aside.
        reason: why it cannot be delivered.
        place: commit-log offset of its source record; -1 for none.
        now_ms: the time.
        host: address of the broker.
        port: its port.
    """
    own = decode_properties(message.properties)
    properties = {
        LEDGER: ledger,
        REASON: reason[:MAX_REASON].translate(_UNSTORABLE),
        TARGET: message.topic[:MAX_REASON].translate(_UNSTORABLE),
        TARGET_QUEUE: str(message.queue),
        PLACE: str(place),
    }
    key = own.get(names.UNIQ_KEY, "")[:MAX_REASON]
    if key:
        properties[names.UNIQ_KEY] = key
    return NewRecord(
        names.UNDELIVERABLE_TOPIC,
        QUEUE,
        msgspec.msgpack.encode(message),
        encode_properties(properties),
        born_timestamp=now_ms,
        born_host=host,
        born_port=port,
        prepared_transaction_offset=message.half_offset,
        uniq_key=key,
    )


def without_body(record: NewRecord, message: SetAsideMessage) -> NewRecord:
    """Return the record of a message whose body does not fit; the log has the body at the source record."""
    rest = msgspec.structs.replace(message, body=b"", raw=b"")
    text = record.properties + encode_properties({NO_BODY: "true"})
    return msgspec.structs.replace(record, body=msgspec.msgpack.encode(rest), properties=text)


def mark(offsets: Iterable[int], now_ms: int, host: bytes, port: int) -> NewRecord:
    """Return the record that marks messages that were set aside as delivered."""
    return NewRecord(
        names.UNDELIVERABLE_TOPIC,
        MARK_QUEUE,
        ",".join(map(str, offsets)).encode(),
        encode_properties({names.TAGS: MARK_TAG}),
        born_timestamp=now_ms,
        born_host=host,
        born_port=port,
        tags_code=tags_code(MARK_TAG),
    )
