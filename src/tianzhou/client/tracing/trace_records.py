"""Trace records as RocketMQ's clients write them and its tools read them (wire.md §13, broker.md §21). Pure.

U+0001 separates fields, and U+0002 ends every record; an absent value is the text `null`. Common arguments of several
records:

    message: the message of the record.
    timestamp_ms: begin of the send or call, or creation time of the record; milliseconds since the epoch.
    region: the broker's region.
    group: the producer or consumer group.
    store_host: the broker's `host:port`.
    request_id: common id of the records before and after a call of a handler.
    cost_ms: duration of the send, or of the call per message.
    success: whether flush and replicas were confirmed, or the message counts as consumed.
"""

from __future__ import annotations

from typing import NamedTuple

from tianzhou.client.hooks import ConsumeOutcome, MessageKind
from tianzhou.model import TransactionState

FIELD_END = "\x01"
RECORD_END = "\x02"
DEFAULT_REGION = "DefaultRegion"
STATE_NAMES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class Traced(NamedTuple):
    """A message, as records name it.

    Attributes:
        topic: its topic, without a namespace.
        msg_id: its unique key.
        tags: its tag; None without one.
        keys: its keys joined by spaces; None without keys.
    """

    topic: str
    msg_id: str
    tags: str | None
    keys: str | None

    def index_keys(self) -> set[str]:
        """Return the keys by which the trace message can be found."""
        return {self.msg_id, *(self.keys or "").split()}


def _record(*fields: object) -> str:
    return FIELD_END.join(map(_text, fields)) + RECORD_END


def _text(field: object) -> str:
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)


def pub(
    message: Traced,
    *,
    timestamp_ms: int,
    region: str,
    group: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: MessageKind,
    offset_msg_id: str,
    success: bool,
) -> str:
    """Return the record of a sent message, with `body_bytes` as sent, stored at `offset_msg_id`."""
    return _record(
        "Pub",
        timestamp_ms,
        region,
        group,
        message.topic,
        message.msg_id,
        message.tags,
        message.keys,
        store_host,
        body_bytes,
        cost_ms,
        kind.value,
        offset_msg_id,
        success,
    )


def sub_before(
    message: Traced, *, timestamp_ms: int, region: str | None, group: str, request_id: str, retry_times: int
) -> str:
    """Return the record before a handler call, for a message that was delivered `retry_times` times before."""
    return _record("SubBefore", timestamp_ms, region, group, request_id, message.msg_id, retry_times, message.keys)


def sub_after(
    message: Traced,
    *,
    timestamp_ms: int,
    group: str,
    request_id: str,
    cost_ms: int,
    success: bool,
    outcome: ConsumeOutcome,
    cloud: bool = False,
) -> str:
    """Return the record after a handler call; the cloud service's format has no time and group."""
    fields = ["SubAfter", request_id, message.msg_id, cost_ms, success, message.keys, outcome.value]
    # The cloud's format ends with an empty field in 5.3.3. In 4.9.7 the end of the record is missing there.
    return _record(*fields, "") if cloud else _record(*fields, timestamp_ms, group)


def end_transaction(
    message: Traced,
    *,
    timestamp_ms: int,
    region: str,
    group: str,
    store_host: str,
    transaction_id: str | None,
    state: TransactionState,
    from_check: bool,
) -> str:
    """Return the record of a transaction's end at its broker; `from_check` means that the broker had checked it."""
    return _record(
        "EndTransaction",
        timestamp_ms,
        region,
        group,
        message.topic,
        message.msg_id,
        message.tags,
        message.keys,
        store_host,
        MessageKind.TRANSACTION_COMMIT.value,
        transaction_id,
        STATE_NAMES[state],
        from_check,
    )
