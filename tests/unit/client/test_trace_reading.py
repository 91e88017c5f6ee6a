"""Trace records of all clients are decoded; other records are skipped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tianzhou.client.hooks import ConsumeOutcome, MessageKind
from tianzhou.client.tracing import trace_records as written
from tianzhou.client.tracing.trace_reading import MOST_RECORDS, TraceKind, TraceRecord, in_order, parse
from tianzhou.model import TransactionState

MESSAGE = written.Traced("T", "M1", "tag", "k")


def body(cloud: bool = False) -> str:
    return (
        written.pub(
            MESSAGE, timestamp_ms=10, region="r", group="P", store_host="h:1", body_bytes=3, cost_ms=4,
            kind=MessageKind.NORMAL, offset_msg_id="O", success=True,
        )
        + written.sub_before(MESSAGE, timestamp_ms=20, region=None, group="C", request_id="R", retry_times=2)
        + written.sub_after(
            MESSAGE, timestamp_ms=0 if cloud else 25, group="C", request_id="R", cost_ms=5, success=False,
            outcome=ConsumeOutcome.TIME_OUT, cloud=cloud,
        )
        + written.end_transaction(
            MESSAGE, timestamp_ms=30, region="r", group="P", store_host="h:1", transaction_id="X",
            state=TransactionState.COMMIT, from_check=True,
        )
    )  # fmt: skip


def test_what_we_write_is_read_back() -> None:
    assert in_order(reversed(parse(body()))) == [
        TraceRecord(TraceKind.SENT, "M1", 10, "P", "T", 4, True, "h:1", keys="k"),
        TraceRecord(TraceKind.CONSUMING, "M1", 20, "C", request_id="R", retries=2),
        TraceRecord(TraceKind.CONSUMED, "M1", 25, "C", "", 5, False, "TIME_OUT", "R", 2),
        TraceRecord(TraceKind.TRANSACTION_ENDED, "M1", 30, "P", "T", detail="COMMIT_MESSAGE"),
    ]


def test_the_hosts_of_newer_clients_are_read() -> None:
    sent = "\x01".join(["Pub", "10", "r", "P", "T", "M1", "", "k", "h:1", "3", "4", "0", "O", "true", "c:1"]) + "\x02"
    begun = "\x01".join(["SubBefore", "20", "null", "C", "R", "M1", "0", "k", "c:2"]) + "\x02"
    assert [(one.client_host, one.keys) for one in parse(sent + begun)] == [("c:1", "k"), ("c:2", "")]


def test_a_call_without_time_and_group_has_those_of_its_beginning() -> None:
    after = next(one for one in in_order(parse(body(cloud=True))) if one.kind is TraceKind.CONSUMED)
    assert (after.timestamp_ms, after.group, after.retries) == (20, "C", 2)


def test_the_form_of_old_clients_is_read() -> None:
    old = "\x01".join(["Pub", "10", "r", "P", "T", "M1", "", "", "h:1", "3", "4", "0", "false"]) + "\x02"
    assert parse(old) == [TraceRecord(TraceKind.SENT, "M1", 10, "P", "T", 4, False, "h:1")]
    recall = "\x01".join(["Recall", "10", "r", "P", "T", "M1", "true"]) + "\x02"
    assert parse(recall) == [TraceRecord(TraceKind.RECALLED, "M1", 10, "P", "T", success=True)]


@given(st.text(alphabet="PubSbAfterBo\x01\x02019-null", max_size=400))
def test_anything_at_all_may_be_in_the_trace_topic(text: str) -> None:
    for record in in_order(parse(text + "Pub" + "\x01" * 20 + text)):
        assert record.kind in TraceKind


def test_records_of_one_message_are_bounded() -> None:
    assert len(parse(body() * MOST_RECORDS)) == MOST_RECORDS
