"""Pushed conditions narrow the read range and never drop a row that they select."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import Span
from tianzhou.spark.source.pushdown import TIME_MARGIN_MS, Needed, needed

TESTS = {
    EqualTo: lambda have, value: have == value,
    EqualNullSafe: lambda have, value: have == value,
    GreaterThan: lambda have, value: have > value,
    GreaterThanOrEqual: lambda have, value: have >= value,
    LessThan: lambda have, value: have < value,
    LessThanOrEqual: lambda have, value: have <= value,
    In: lambda have, value: have in value,
}
numbers = st.integers(-3, 12)
conditions = st.one_of(
    st.builds(
        lambda kind, column, value: kind((column,), value),
        st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
        st.sampled_from(["queueId", "queueOffset", "QUEUEOFFSET"]),
        numbers,
    ),
    st.builds(
        lambda column, values: In((column,), values),
        st.sampled_from(["queueId", "queueOffset"]),
        st.lists(numbers, min_size=1, max_size=4),
    ),
)


@given(st.lists(conditions, max_size=5))
def test_no_row_that_a_condition_keeps_is_left_out(filters):
    found = needed(filters)
    for number in range(4):
        queue = MessageQueue("orders", "broker-a", number)
        span = found.narrow(Span(queue, 0, 10))
        kept = range(span.start, span.end) if span is not None else range(0)
        for offset in range(10):
            row = {"queueid": number, "queueoffset": offset}
            if all(TESTS[type(f)](row[f.attribute[0].lower()], f.value) for f in filters):
                assert offset in kept


def test_ranges_of_offsets_and_queues_are_cut_to_what_is_needed():
    found = needed([GreaterThan(("queueOffset",), 3), LessThanOrEqual(("queueOffset",), 6), In(("queueId",), [0, 2])])
    zero, one = (MessageQueue("orders", "broker-a", number) for number in (0, 1))
    assert found.narrow(Span(zero, 0, 10)) == Span(zero, 4, 7)
    assert found.narrow(Span(zero, 7, 10)) is None
    assert found.narrow(Span(one, 0, 10)) is None


def test_names_of_topics_and_brokers():
    found = needed([EqualTo(("topic",), "orders"), In(("brokerName",), ("broker-a", "broker-c"))])
    assert found.narrow(Span(MessageQueue("orders", "broker-a", 0), 0, 1)) is not None
    assert found.narrow(Span(MessageQueue("orders", "broker-b", 0), 0, 1)) is None
    assert found.narrow(Span(MessageQueue("bills", "broker-a", 0), 0, 1)) is None


def test_times_are_widened():
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    stamp = int(noon.timestamp() * 1000)
    found = needed([GreaterThanOrEqual(("storeTimestamp",), noon), LessThan(("storeTimestamp",), noon)])
    assert (found.since_ms, found.until_ms) == (stamp - TIME_MARGIN_MS, stamp + TIME_MARGIN_MS)
    assert needed([EqualTo(("storeTimestamp",), noon)]).since_ms == stamp - TIME_MARGIN_MS
    assert needed([GreaterThan(("storeTimestamp",), noon)]).until_ms is None


def test_tags_that_an_expression_can_say():
    assert needed([EqualTo(("tags",), "A")]).tags == {"A"}
    assert needed([In(("tags",), ["A", "B", None]), EqualTo(("tags",), "B")]).tags == {"B"}
    for tag in ("", "*", " A", "A||B"):
        assert needed([EqualTo(("tags",), tag)]).tags is None


@pytest.mark.parametrize(
    "condition",
    [
        IsNotNull(("tags",)),
        IsNull(("queueId",)),
        Not(EqualTo(("queueId",), 1)),
        StringStartsWith(("topic",), "o"),
        EqualTo(("body",), b"x"),
        EqualTo(("queueId",), None),
        EqualTo(("queueOffset",), True),
        GreaterThan(("queueOffset",), 1.5),
        EqualTo(("properties", "queueId"), 1),
        GreaterThan(("storeTimestamp",), datetime(2026, 1, 31, 12)),  # noqa: DTZ001
    ],
)
def test_what_nothing_can_be_taken_from_is_passed_over(condition):
    assert needed([condition]) == Needed()
