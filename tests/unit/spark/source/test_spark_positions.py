"""Start and end positions from options: by offset, by time, per queue or for all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.source.offsets import EARLIEST, LATEST, QueueBounds, to_json
from tianzhou.spark.source.positions import each, holds, milliseconds, parse_offsets, parse_times, resolve

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
ELSEWHERE = MessageQueue("orders", "broker-b", 0)


def test_given_offsets_with_marks():
    wanted = parse_offsets('{"orders": {"broker-a": {"0": 5, "1": -1, "2": -2}}}', "startingOffsets")
    bounds = {A: QueueBounds(0, 9), B: QueueBounds(3, 8), C: QueueBounds(4, 7)}
    assert resolve(wanted, bounds, "startingOffsets") == {A: 5, B: 8, C: 4}


def test_one_value_for_all_queues_of_a_topic_or_broker():
    bounds = {A: QueueBounds(0, 9), B: QueueBounds(3, 8), ELSEWHERE: QueueBounds(1, 4)}
    assert resolve(parse_offsets('{"orders": -2}', "x"), bounds, "x") == {A: 0, B: 3, ELSEWHERE: 1}
    mixed = parse_offsets('{"orders": {"broker-a": -1, "broker-b": {"0": 2}}}', "x")
    assert resolve(mixed, bounds, "x") == {A: 9, B: 8, ELSEWHERE: 2}
    assert holds(mixed, LATEST)
    assert not holds(mixed, EARLIEST)


def test_times_are_numbers_or_text():
    wanted = parse_times('{"orders": {"broker-a": {"0": 5, "1": "1970-01-01T00:00:02"}}}', "startingTimestamp")
    assert each(wanted, [A, B], "startingTimestamp") == {A: 5, B: 2000}


@given(st.integers(0, 4_000_000_000_000))
def test_milliseconds_are_taken_as_they_are(value):
    assert milliseconds(str(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "newest",
        "[1]",
        "5",
        '{"orders": "latest"}',
        '{"orders": -3}',
        '{"orders": [5]}',
        '{"orders": {"broker-a": {"x": 5}}}',
        '{"orders": {"broker-a": {"-1": 5}}}',
        '{"orders": {"broker-a": {"0": -3}}}',
        '{"orders": {"broker-a": {"0": 1.5}}}',
        '{"orders": {"broker-a": {"0": true}}}',
        '{"orders": {"broker-a": {"0": null}}}',
        '{"orders": {"broker-a": {"0": {"1": 2}}}}',
    ],
)
def test_other_texts_are_refused_with_the_option_and_what_is_expected(text):
    with pytest.raises(ConfigError, match=r"startingOffsets.*expected"):
        parse_offsets(text, "startingOffsets")
    with pytest.raises(ConfigError, match=r"startingTimestamp.*expected"):
        parse_times(text, "startingTimestamp")


def test_queues_left_out_or_unknown_are_named():
    wanted = parse_offsets('{"orders": {"broker-a": {"0": 5, "7": 1}, "broker-z": 3}, "bills": 0}', "startingOffsets")
    with pytest.raises(ConfigError) as caught:
        resolve(wanted, {A: QueueBounds(0, 9), B: QueueBounds(0, 9)}, "startingOffsets")
    text = str(caught.value)
    assert "startingOffsets: nothing is given for orders@broker-a:1 and there is no" in text
    assert "queue orders@broker-a:7, broker broker-z of topic orders, topic bills" in text
    assert text.endswith("give one for each queue of what is read: orders@broker-a:0, orders@broker-a:1")


BOUNDS = {A: QueueBounds(0, 9), B: QueueBounds(3, 8), ELSEWHERE: QueueBounds(0, 4)}
REPORTED = to_json({A: 0, B: 3, ELSEWHERE: 0}, {A: 5, B: 8, ELSEWHERE: 2})


@pytest.mark.parametrize("offset", [REPORTED, {"end": REPORTED["end"]}, REPORTED["end"]])
def test_what_a_query_reports_as_its_end_is_taken_as_offsets(offset):
    wanted = parse_offsets(json.dumps(offset), "startingOffsets")
    assert resolve(wanted, BOUNDS, "startingOffsets") == {A: 5, B: 8, ELSEWHERE: 2}


def test_topics_may_be_called_as_the_parts_of_a_reported_offset():
    wanted = parse_offsets('{"end": {"broker-a": {"0": 5}}, "from": 0}', "startingOffsets")
    named = {
        MessageQueue("end", "broker-a", 0): QueueBounds(0, 9),
        MessageQueue("from", "broker-a", 0): QueueBounds(0, 9),
    }
    assert list(resolve(wanted, named, "startingOffsets").values()) == [5, 0]


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (
            {"end": {"orders@broker-a:x": 5}, "from": {}},
            "startingOffsets: 'orders@broker-a:x' names no queue; expected",
        ),
        ({"end": {"orders@broker-a:0": "5"}}, 'startingOffsets: "5" for orders@broker-a:0 cannot be; expected an offs'),
        (
            {"orders@broker-a:0": 5, "orders": 7},
            "startingOffsets: 'orders' names no queue; expected topic@broker:queue",
        ),
    ],
)
def test_a_reported_offset_that_is_malformed_is_named(offset, says):
    with pytest.raises(ConfigError, match=says):
        parse_offsets(json.dumps(offset), "startingOffsets")


def test_a_reported_offset_of_other_queues_names_them():
    wanted = parse_offsets(json.dumps(REPORTED), "startingOffsets")
    with pytest.raises(
        ConfigError, match="nothing is given for orders@broker-a:2 and there is no queue orders@broker-b"
    ):
        resolve(wanted, {A: QueueBounds(0, 9), B: QueueBounds(3, 8), C: QueueBounds(0, 1)}, "startingOffsets")


def test_kafkas_form_names_no_broker_where_there_is_one():
    wanted = parse_offsets('{"orders": {"0": 5, "1": -2}}', "startingOffsets")
    assert resolve(wanted, {A: QueueBounds(0, 9), B: QueueBounds(3, 8)}, "startingOffsets") == {A: 5, B: 3}
    with pytest.raises(ConfigError, match="queue 0 of orders is on broker-a and broker-b; name the broker"):
        resolve(wanted, BOUNDS, "startingOffsets")
    with pytest.raises(ConfigError, match="there is no queue or broker 1 of topic orders"):
        resolve(wanted, {A: QueueBounds(0, 9)}, "startingOffsets")
