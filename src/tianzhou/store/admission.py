"""Which messages are refused, and in what words: limit, value, remedy (store.md §3.3, §4.1)."""

from __future__ import annotations

from typing import Final

from tianzhou.model import names
from tianzhou.store.logscan import TRANSACTION_BITS
from tianzhou.store.results import NewRecord, PutResult, PutStatus
from tianzhou.wire.properties import MAX_BYTES as MAX_PROPERTIES

INNER_BATCH: Final = 0x80
_MAX_TOPIC: Final = 127
_MAX_RETRY_TOPIC: Final = 255


def illegal(record: NewRecord, text: str, status: PutStatus = PutStatus.MESSAGE_ILLEGAL) -> PutResult:
    """The answer to a message that will never be stored as it is."""
    return PutResult(status, remark=f"message for topic {record.topic!r} refused: {text}")


def refuse_place(record: NewRecord, foreign_topics: frozenset[str]) -> PutResult | None:
    """The refusal of a queue that cannot exist; None when it can.

    Args:
        record: the first message for the queue.
        foreign_topics: topics of queue type BatchCQ.
    """
    topic, queue_id = record.topic, record.queue_id
    length = len(topic.encode("utf-8", "surrogatepass"))
    limit = _MAX_RETRY_TOPIC if topic.startswith(names.RETRY_PREFIX) else _MAX_TOPIC
    if not 0 < length <= limit:
        return illegal(record, f"the topic is {length} bytes long, allowed are 1 to {limit}; use a shorter name")
    if "/" in topic or "\0" in topic or topic in {".", ".."} or queue_id < 0:
        text = (
            f"queue {queue_id}: no folder can have such a name; topics consist of letters, digits, %, |, - and _, "
            "queue ids begin at 0"
        )
        return illegal(record, text)
    if topic in foreign_topics:
        return illegal(record, "its queue type is BatchCQ, which is not served yet; use a topic of type SimpleCQ")
    return None


def refuse_message(record: NewRecord, max_body: int) -> PutResult:
    """The refusal of a message whose body or properties are too long, or that claims to be an inner batch."""
    if len(record.body) > max_body:
        return illegal(
            record, f"the body is {len(record.body)} bytes, maxMessageSize is {max_body}; send less or raise it"
        )
    if len(record.properties) > MAX_PROPERTIES:
        length = len(record.properties)
        text = f"the properties are {length} bytes, the limit is {MAX_PROPERTIES}; move data into the body"
        return illegal(record, text, PutStatus.PROPERTIES_SIZE_EXCEEDED)
    text = f"sysFlag {record.sys_flag:#x} says inner batch (0x80), the topic's queue type is not BatchCQ"
    return illegal(record, text + "; send an ordinary batch")


def refuse_batch(record: NewRecord, members: int, total: int, max_body: int) -> PutResult | None:
    """The refusal of a batch as a whole; None when it may be stored.

    Args:
        record: what the members have in common.
        members: how many there are.
        total: bytes of their bodies.
        max_body: `maxMessageSize`.
    """
    if not members:
        return illegal(record, "a batch without messages; send at least one")
    if total > max_body:
        text = f"the bodies of the batch are {total} bytes, maxMessageSize is {max_body}; send smaller batches"
        return illegal(record, text)
    if record.sys_flag & (TRANSACTION_BITS | INNER_BATCH):
        text = f"sysFlag {record.sys_flag:#x} of a batch says transaction or inner batch; send messages one by one"
        return illegal(record, text)
    return None
