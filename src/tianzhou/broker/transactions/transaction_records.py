"""Records of transactions in the log: half messages, copies, marks and committed messages (broker.md §13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

from msgspec import structs

from tianzhou.broker.delays.delay import waiting_room, wanted_level
from tianzhou.broker.messages.copies import copy_of
from tianzhou.broker.transactions.transactions import HalfIdentity, WaitingHalf
from tianzhou.model import names
from tianzhou.records.codec import Record, encode_record
from tianzhou.records.layout import COMMIT, TRANSACTION_BITS
from tianzhou.store.results import NewRecord
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.properties import decode_properties, encode_properties

CHECK_GROUP = "CID_RMQ_SYS_TRANS"
"""Consumer group whose offsets are the progress in the half queue and the op queue."""
GIVEN_UP_TOPIC = names.CHECK_MAX_TIME_TOPIC
QUEUE = 0
"""Id of the only queue of half messages, and of marks."""

TRANSACTION_ID = "__transactionId__"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
MOVED_FROM = "TRAN_PREPARED_QUEUE_OFFSET"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MARK_TAG = "d"
_MARK_PROPERTIES = encode_properties({names.WAIT: "true", names.TAGS: MARK_TAG})


def prepare(properties: MutableMapping[str, str], topic: str, queue_id: int) -> None:
    """Give a message the properties of a half message."""
    properties[TRANSACTION_ID] = properties[names.UNIQ_KEY]
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QID] = str(queue_id)


def half_of(record: Record) -> WaitingHalf | None:
    """Return the ledger's entry for a half message; None when it names no topic and queue.

    The age counts from the record's store time, also for a copy, because the producer's time is not reliable.
    """
    properties = decode_properties(record.properties)
    if not properties.get(names.REAL_TOPIC) or not properties.get(names.REAL_QID, "").isdigit():
        return None
    half = make_half(
        properties,
        record.queue_offset,
        record.physical_offset,
        record.store_timestamp,
        (record.born_timestamp, record.born_host, record.born_port),
    )
    half.checks = _number(properties.get(CHECK_TIMES)) or 0
    half.moved_from = _number(properties.get(MOVED_FROM))
    return half


def make_half(
    properties: MutableMapping[str, str], offset: int, place: int, stored_ms: int, born: tuple[int, bytes, int]
) -> WaitingHalf:
    """Return the ledger's entry for a half message that its producer has just sent.

    Args:
        properties: the message's properties.
        offset: queue offset in the half queue.
        place: physical offset in the commit log.
        stored_ms: store time, ms.
        born: the producer's time, address and port.
    """
    seconds = _number(properties.get(IMMUNITY))
    return WaitingHalf(
        _identity(properties, *born),
        offset,
        place,
        stored_ms,
        properties.get(names.REAL_TOPIC, ""),
        None if seconds is None or seconds == -1 else seconds * 1000,
    )


def identity_of(record: Record) -> HalfIdentity:
    """Return the identity that all copies of a half message share."""
    return _identity(decode_properties(record.properties), record.born_timestamp, record.born_host, record.born_port)


def _identity(properties: Mapping[str, str], timestamp: int, host: bytes, port: int) -> HalfIdentity:
    return HalfIdentity(properties.get(names.UNIQ_KEY, ""), properties.get(names.PGROUP, ""), timestamp, host, port)


def committed(record: Record, capped: int) -> NewRecord:
    """Return the record of a committed half message.

    Args:
        record: the half message.
        capped: requested delay level, capped to the existing levels; 0 for none. The property text is unchanged:
            consumers see TRAN_MSG, REAL_TOPIC and REAL_QID, as with Apache.
    """
    properties = decode_properties(record.properties)
    topic, queue_id = properties[names.REAL_TOPIC], int(properties[names.REAL_QID])
    text = record.properties
    if capped > 0:
        properties[names.DELAY] = str(capped)
        text = encode_properties(properties)
        topic, queue_id = waiting_room(capped)
    sys_flag = (record.sys_flag & ~TRANSACTION_BITS) | COMMIT
    return copy_of(
        record, topic, queue_id, properties, text=text, sys_flag=sys_flag, half_offset=record.physical_offset
    )


def delay_of(record: Record) -> int:
    """Return the delay level that a half message requests; 0 for none."""
    try:
        return max(wanted_level(decode_properties(record.properties)), 0)
    except ValueError:
        return 0


def copied(record: Record, half: WaitingHalf, *, checked: bool) -> NewRecord:
    """Return a copy of a half message with one more check, or with its former offset."""
    properties = decode_properties(record.properties)
    if checked:
        properties[CHECK_TIMES] = str(half.checks + 1)
    else:
        properties.setdefault(MOVED_FROM, str(half.offset))
    return copy_of(record, names.HALF_TOPIC, QUEUE, properties)


def given_up(record: Record) -> NewRecord:
    """Return the record of an abandoned half message."""
    properties = decode_properties(record.properties)
    return copy_of(record, GIVEN_UP_TOPIC, QUEUE, properties, text=record.properties)


def resumed(record: Record) -> NewRecord:
    """Return an abandoned message as a half message without checks."""
    properties = decode_properties(record.properties)
    properties[CHECK_TIMES] = "0"
    properties.pop(MOVED_FROM, None)
    return copy_of(record, names.HALF_TOPIC, QUEUE, properties)


def question(record: Record, copy: NewRecord, offset: int, place: int) -> bytes:
    """Return the body of a check: the producer's half message at the offsets of its newest copy."""
    properties = decode_properties(copy.properties)
    return encode_record(
        structs.replace(
            record,
            topic=properties[names.REAL_TOPIC],
            queue_id=int(properties[names.REAL_QID]),
            queue_offset=offset,
            physical_offset=place,
            properties=copy.properties,
        )
    )


def mark(offsets: Iterable[int], now_ms: int, host: bytes, port: int) -> NewRecord:
    """Return the op-queue record that marks half queue offsets as done."""
    body = "".join([f"{offset}," for offset in offsets]).encode()
    return NewRecord(
        names.OP_HALF_TOPIC,
        QUEUE,
        body,
        _MARK_PROPERTIES,
        born_timestamp=now_ms,
        born_host=host,
        born_port=port,
        tags_code=tags_code(MARK_TAG),
    )


def marks_of(record: Record) -> list[int]:
    """Return the half queue offsets that an op-queue record marks; 4.9 writes one, 5.x several with commas."""
    parts = record.body.decode("utf-8", "replace").split(",")
    return [int(part) for part in parts if part.strip().isdigit()]


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
