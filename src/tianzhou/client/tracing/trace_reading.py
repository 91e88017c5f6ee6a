"""Trace records read back (wire.md §13), in the forms of all clients. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tianzhou.client.tracing.trace_records import FIELD_END, RECORD_END

OUTCOMES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""Names of a consumption's outcome by its number."""
MOST_RECORDS = 1_000
"""Records of one trace message; more are left unread."""


class TraceKind(enum.StrEnum):
    """What a record is about."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    TRANSACTION_ENDED = "EndTransaction"
    RECALLED = "Recall"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A record.

    Attributes:
        kind: what it is about.
        msg_id: the message's unique key.
        timestamp_ms: when the send or call began, or the record was made; 0 when it does not say.
        group: of the producer or the consumers; empty when it does not say.
        topic: the message's, where the record has it.
        cost_ms: how long the send or the call took.
        success: whether it went well; None where the record does not say.
        detail: what else there is in words: the host it is stored at, an outcome, a state.
        request_id: joins the records before and after a call.
        retries: how often the message was delivered before.
        keys: of a message that was sent, as its producer gave them.
        client_host: where the send or the call was, where the record has it, as those of clients since 4.7.
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
    """The records of a trace message's body; what is no record is left out."""
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
            success = rest[12] or rest[11]  # old clients write no offset id before it
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
    """Records by time; those after a call get time and group of the one before where they have none themselves."""
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
