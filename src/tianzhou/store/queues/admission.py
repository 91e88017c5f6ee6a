"""The rejection of messages that cannot be stored, with limit, value and remedy (store.md §3.3, §4.1)."""

from __future__ import annotations

from tianzhou.limits import BODY_BYTES, PROPERTIES_BYTES
from tianzhou.model import names
from tianzhou.model.name_rules import LONGEST_GROUP, LONGEST_TOPIC, TOPIC, folder_name_problem
from tianzhou.records.layout import INNER_BATCH, PREPARED, TRANSACTION_BITS
from tianzhou.records.opening import OPENING_TOPIC
from tianzhou.store.queues.batchqueue import MAX_BATCH
from tianzhou.store.results import NewRecord, PutResult, PutStatus
from tianzhou.wire.properties import MAX_BYTES as MAX_PROPERTIES
from tianzhou.wire.properties import get_property


def illegal(record: NewRecord, text: str, status: PutStatus = PutStatus.MESSAGE_ILLEGAL, limit: str = "") -> PutResult:
    """Return the answer to a message that can never be stored in its present form.

    Args:
        record: the message.
        text: the fault and the remedy.
        status: status of the answer.
        limit: name of the exceeded limit of `tianzhou.limits`; empty when no limit is exceeded.
    """
    return PutResult(status, remark=f"message for topic {record.topic!r} refused: {text}", limit=limit)


def refuse_reserved(record: NewRecord) -> PutResult | None:
    """Return the refusal of a message in the form of the group's own entries; None for every other message.

    Prepared records of this topic open terms and hold changes of tables (docs/adr/0024). A client can set the
    transaction bits of `sysFlag`, and every property.
    """
    if record.topic != OPENING_TOPIC or record.sys_flag & TRANSACTION_BITS != PREPARED:
        return None
    return illegal(record, "prepared messages of this topic are the broker's own; send without the transaction bits")


def refuse_place(record: NewRecord) -> PutResult | None:
    """Return the refusal of a queue that cannot exist, for its first message; None when it can."""
    topic, queue_id = record.topic, record.queue_id
    length = len(topic.encode("utf-8", "surrogatepass"))
    limit = LONGEST_GROUP if topic.startswith(names.RETRY_PREFIX) else LONGEST_TOPIC
    if not 0 < length <= limit:
        return illegal(record, f"the topic is {length} bytes long, allowed are 1 to {limit}; use a shorter name")
    if queue_id < 0 or folder_name_problem(topic) is not None or TOPIC.problem(topic) is not None:
        text = (
            f"queue {queue_id}: no folder can have such a name; topics consist of letters, digits, %, |, - and _, "
            "queue ids begin at 0"
        )
        return illegal(record, text)
    return None


def refuse_message(record: NewRecord, max_body: int) -> PutResult:
    """Return the refusal of a message whose body or properties are too long."""
    if len(record.body) > max_body:
        text = f"the body is {len(record.body)} bytes, maxMessageSize is {max_body}; send less or raise it"
        return illegal(record, text, limit=BODY_BYTES.name)
    if len(record.properties) > MAX_PROPERTIES:
        length = len(record.properties)
        text = f"the properties are {length} bytes, the limit is {MAX_PROPERTIES}; move data into the body"
        return illegal(record, text, PutStatus.PROPERTIES_SIZE_EXCEEDED, PROPERTIES_BYTES.name)
    raise AssertionError("a message was refused that need not be")


def refuse_inner_batch(record: NewRecord, *, batched: bool) -> PutResult | None:
    """Return the refusal of a batch to store as one record; None when it may be stored (store.md §4.1, §16.2).

    Args:
        record: with the whole batch as its body.
        batched: whether the queue is of type BatchCQ.
    """
    if not batched:
        text = f"sysFlag {record.sys_flag:#x} says inner batch (0x80), the topic's queue type is not BatchCQ"
        return illegal(record, text + "; send an ordinary batch")
    if record.sys_flag & TRANSACTION_BITS:
        return illegal(record, f"sysFlag {record.sys_flag:#x} of an inner batch says transaction; send single messages")
    if inner_count(record.properties) is None:
        text = f"an inner batch without its number of messages (INNER_NUM, 1 to {MAX_BATCH}); send smaller batches"
        return illegal(record, text)
    return None


def inner_count(properties: bytes) -> int | None:
    """Return the number of messages of an inner batch by its property; None without a valid one."""
    text = get_property(properties, names.INNER_NUM) or ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MAX_BATCH:
        return None
    return int(text)


def refuse_multi_dispatch(record: NewRecord, queue: tuple[str, int], *, batched: bool) -> PutResult | None:
    """Return the refusal of a message that names a further queue; None when it can be stored (store.md §7).

    Args:
        record: the message.
        queue: name and number of the further queue.
        batched: whether that queue is of type BatchCQ.
    """
    named = f"INNER_MULTI_DISPATCH names queue {queue[0]!r}"
    if refuse_place(NewRecord(*queue, b"", b"")) is not None:
        return illegal(record, f"{named}, which no folder can be named after; use letters, digits, %, |, - and _")
    if batched:
        return illegal(record, f"{named} of type BatchCQ; name queues of type SimpleCQ")
    return None


def refuse_batch(record: NewRecord, members: int, total: int, max_body: int) -> PutResult | None:
    """Return the refusal of a whole batch; None when it may be stored.

    Args:
        record: the common fields of the members.
        members: number of messages.
        total: bytes of their bodies.
        max_body: `maxMessageSize`.
    """
    if not members:
        return illegal(record, "a batch without messages; send at least one")
    if total > max_body:
        text = f"the bodies of the batch are {total} bytes, maxMessageSize is {max_body}; send smaller batches"
        return illegal(record, text, limit=BODY_BYTES.name)
    if record.sys_flag & (TRANSACTION_BITS | INNER_BATCH):
        text = f"sysFlag {record.sys_flag:#x} of a batch says transaction or inner batch; send messages one by one"
        return illegal(record, text)
    return None
