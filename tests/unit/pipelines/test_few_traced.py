"""Figures of traces that the client makes; that Spark makes the same ones: tests/spark/pipelines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.pipelines import few_traced
from tianzhou.pipelines.few_traced import Traces, number_at, percentile, text_at, truth_at


@pytest.mark.parametrize(
    ("text", "number", "truth"),
    [
        ("7", 7, None), (" -7\n", -7, None), ("+7", 7, None), ("007", 7, None), ("1", 1, True), ("0", 0, False),
        ("7.0", None, None), ("", None, None), ("null", None, None), ("1_000", None, None), ("٣", None, None),
        (str((1 << 63) - 1), (1 << 63) - 1, None), (str(1 << 63), None, None), ("9" * 5000, None, None),
        ("TRUE", None, True), (" yes ", None, True), ("n", None, False), ("F", None, False), ("truth", None, None),
    ],
)  # fmt: skip
def test_fields_are_read_as_spark_reads_them(text: str, number: int | None, truth: bool | None) -> None:
    assert (number_at(["Pub", text], 1), truth_at(["Pub", text], 1)) == (number, truth)
    assert text_at(["Pub", text], 1) == (None if text == "null" else text)
    assert (text_at(["Pub"], 1), number_at(["Pub"], 1), truth_at(["Pub"], 1)) == (None, None, None)


def test_percentiles_lie_between_their_neighbours() -> None:
    assert percentile([], 0.5) is None
    assert [percentile([3], share) for share in (0, 0.5, 1)] == [3, 3, 3]
    assert [percentile([1, 2, 4], share) for share in (0, 0.25, 0.5, 0.75, 1)] == [1, 1.5, 2, 3, 4]


@given(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1).map(sorted), st.floats(0, 1))
def test_a_percentile_is_no_less_than_the_least_and_no_more_than_the_most(values: list[int], share: float) -> None:
    found = percentile(values, share)
    assert found is not None
    assert values[0] - 1e-3 <= found <= values[-1] + 1e-3


def of(*records: list[str]) -> Traces:
    traces = Traces()
    for fields in records:
        traces(("\x01".join(fields) + "\x02").encode())
    return traces


def pub(message: str, began: str = "1000", took: str = "5", ok: str = "true", topic: str = "orders") -> list[str]:
    return ["Pub", began, "r", "shop", topic, message, "t", "k", "h", "3", took, "0", "0A", ok]


def test_a_delivery_has_the_topic_and_the_time_of_its_send() -> None:
    traces = of(
        pub("id1", "1000"), pub("id1", "900", topic="other"), pub("id2", "null"),
        ["SubBefore", "1500", "r", "billing", "q1", "id1", "0", "k"], ["SubAfter", "q1", "id1", "7", "true"],
        ["SubBefore", "1500", "r", "billing", "q2", "id2", "0", "k"], ["SubAfter", "q2", "id2", "9", "false"],
        ["SubBefore", "1500", "r", "billing", "q3", "id3", "0", "k"], ["SubAfter", "q3", "id3", "11", "true"],
        ["SubBefore", "1500", "r", "billing", "q4", "id1", "0", "k"], ["SubAfter", "q5", "id1", "11", "true"],
        ["SubBefore", "1500", "r", "billing"], ["SubAfter"], ["?"], [""],
    )  # fmt: skip
    unknown, orders = traces.deliveries()
    assert (unknown["topic"], unknown["messages"], unknown["p50_ms"], unknown["p50_waited"]) == (None, 1, 11, None)
    assert (orders["topic"], orders["messages"], orders["success"]) == ("orders", 2, 0.5)
    assert (orders["p50_ms"], orders["max_ms"], orders["p50_waited"]) == (8, 9, 600)


def test_a_send_without_its_fields_counts_and_has_not_succeeded() -> None:
    (bare, whole) = of(["Pub"], pub("id1"), pub("id2", took="null", ok="false")).sends()
    assert (bare["topic"], bare["group"], bare["messages"], bare["success"]) == (None, None, 1, 0)
    assert (bare["p50_ms"], bare["max_ms"]) == (None, None)
    assert (whole["messages"], whole["success"], whole["p99_ms"], whole["max_ms"]) == (2, 0.5, 5, 5)


def test_what_is_no_text_counts_as_far_as_it_can_be_read() -> None:
    traces = Traces()
    traces(b"\xff\xfe\x02Pub\x011\x01\x01g\xff\x01t\x02")
    assert [(row["topic"], row["group"]) for row in traces.sends()] == [("t", "g\ufffd")]


async def test_more_records_than_memory_should_hold_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(*_: object) -> object:
        class Page:
            passed = 1
            messages = (type("Message", (), {"body": b"Pub\x02" * 10}),)

        for _ in range(3):
            yield Page

    seen: list[int] = []
    monkeypatch.setattr(few_traced, "pages", pages)
    traces = await few_traced.read(None, [], seen.append)  # type: ignore[arg-type]
    assert traces is not None
    assert (traces.records, seen) == (30, [1, 2, 3])
    monkeypatch.setattr(few_traced, "MOST_RECORDS", 19)
    assert await few_traced.read(None, [], seen.append) is None  # type: ignore[arg-type]
    assert seen == [1, 2, 3, 1, 2]
