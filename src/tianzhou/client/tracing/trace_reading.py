"""Decoder of trace records in the formats of all clients (wire.md §13). Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tianzhou.client.tracing.trace_records import FIELD_END, RECORD_END

OUTCOMES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""Names of consumption outcomes by number."""
MOST_RECORDS = 1_000
"""Maximum number of records that are decoded in one trace message."""


class TraceKind(enum.StrEnum):
    """Kind of a record."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    TRANSACTION_ENDED = "EndTransaction"
    RECALLED = "Recall"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A record.

    Attributes:
        kind: kind of the record.
        msg_id: the message's unique key.
        timestamp_ms: begin of the send or call, or creation time of the record; 0 when it is missing.
        group: the producer or consumer group; empty when it is missing.
        topic: the message's topic; empty when the record has none.
        cost_ms: duration of the send or the call.
        success: whether the operation succeeded; None when it is missing.
        detail: further information as text: the host that stores the message, an outcome, or a state.
        request_id: common id of the records before and after a call.
        retries: number of earlier deliveries of the message.
        keys: keys of a sent message, from its producer.
        client_host: host of the send or the call; only clients since 4.7 write it.
    """

    kind: TraceKind
    msg_id: str
    timestamp_ms: int = 0
    group: str = ""
    topic: str = ""
    cost_ms: int = 0
    success: bool | None = None
    detail: str = ""
    request_id: str = ""
    retries: int = 0
    keys: str = ""
    client_host: str = ""


def parse(text: str) -> list[TraceRecord]:
    """Decode the records of a trace message's body; skip parts that are no record."""
    found = []
    for line in text.split(RECORD_END)[:MOST_RECORDS]:
        record = _read(line.split(FIELD_END))
        if record is not None:
            found.append(record)
    return found


def _read(fields: list[str]) -> TraceRecord | None:
    count = len(fields) - 1
    rest = ["" if field == "null" else field for field in fields[1:]] + [""] * 14
    match fields[0]:
        case TraceKind.SENT if count >= 12:
            at, _region, group, topic, msg_id, _tags, keys, host, _size, cost = rest[:10]
            success = rest[12] or rest[11]  # old clients write no offset id before this field
            return TraceRecord(
                TraceKind.SENT, msg_id, _number(at), group, topic, _number(cost), _flag(success),
                detail=host, keys=keys, client_host=rest[13],
            )  # fmt: skip
        case TraceKind.CONSUMING if count >= 5:
            at, _region, group, request_id, msg_id, retries, _keys, client_host = rest[:8]
            return TraceRecord(
                TraceKind.CONSUMING, msg_id, _number(at), group,
                request_id=request_id, retries=_number(retries), client_host=client_host,
            )  # fmt: skip
        case TraceKind.CONSUMED if count >= 4:
            request_id, msg_id, cost, success, _keys, code, at, group = rest[:8]
            known = code in {str(number) for number in range(len(OUTCOMES))}
            return TraceRecord(
                TraceKind.CONSUMED,
                msg_id,
                _number(at),
                group,
                cost_ms=_number(cost),
                success=_flag(success),
                detail=OUTCOMES[int(code)] if known else "",
                request_id=request_id,
            )
        case TraceKind.TRANSACTION_ENDED if count >= 11:
            at, _region, group, topic, msg_id = rest[:5]
            return TraceRecord(TraceKind.TRANSACTION_ENDED, msg_id, _number(at), group, topic, detail=rest[10])
        case TraceKind.RECALLED if count >= 6:
            at, _region, group, topic, msg_id, success = rest[:6]
            return TraceRecord(TraceKind.RECALLED, msg_id, _number(at), group, topic, success=_flag(success))
    return None


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 19 else 0


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def in_order(records: Iterable[TraceRecord]) -> list[TraceRecord]:
    """Return records by time. A record after a call gets missing time and group from the record before the call."""
    found = list(records)
    begun = {record.request_id: record for record in found if record.kind is TraceKind.CONSUMING}

    def completed(record: TraceRecord) -> TraceRecord:
        before = begun.get(record.request_id) if record.kind is TraceKind.CONSUMED else None
        if before is None:
            return record
        return replace(
            record,
            timestamp_ms=record.timestamp_ms or before.timestamp_ms,
            group=record.group or before.group,
            retries=before.retries,
        )

    order = list(TraceKind)
    return sorted(map(completed, found), key=lambda record: (record.timestamp_ms, order.index(record.kind)))
