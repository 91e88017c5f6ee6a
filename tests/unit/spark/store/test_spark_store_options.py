"""Options of stores and lakes: refused values, with the answers of `bad_input_rows`, and accepted values."""

from __future__ import annotations

import bad_input_rows as rows
import pytest

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.option_values import BATCH, STREAM
from tianzhou.spark.source.offsets import QueueBounds
from tianzhou.spark.store.store_options import parse_store

GIVEN = {"storePath": "data", "subscribe": "orders"}
QUEUES = {MessageQueue("orders", "store", number): QueueBounds(5, 50) for number in (0, 1)}


@pytest.mark.parametrize("row", rows.OFFLINE, ids=lambda row: f"{row.what} {dict(row.options)}")
def test_a_wrong_option_is_answered_with_the_fix(row) -> None:
    parse = {
        rows.STORE: lambda: parse_store(row.options, BATCH),
        rows.STORE_STREAM: lambda: parse_store(row.options, STREAM),
        rows.LAKE: lambda: parse_lake(row.options),
    }[row.what]
    with pytest.raises(ConfigError, match=row.pattern):
        parse()


def test_offsets_with_and_without_the_brokers_name() -> None:
    for text in ('{"orders": {"0": 10, "1": -2}}', '{"orders": {"broker-a": {"0": 10, "1": -2}}}'):
        starting = parse_store({**GIVEN, "startingOffsets": text}, BATCH).starting
        assert sorted(starting.resolve(QUEUES).values()) == [5, 10]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"orders": {"0": 10}}', "startingOffsets: no offset for orders:1; give one for each queue that is read"),
        ('{"orders": {"0": 1, "1": 1, "2": 1}}', "startingOffsets: no such queue as orders:2; .*: orders:0, orders:1"),
        ('{"orders": {"0": 51, "1": 1}}', "startingOffsets: offset 51 of orders:0 lies behind its end; .* at most 50"),
    ],
)
def test_offsets_that_do_not_fit_the_store(text, problem) -> None:
    starting = parse_store({**GIVEN, "startingOffsets": text}, BATCH).starting
    with pytest.raises(ConfigError, match=problem):
        starting.resolve(QUEUES)


@pytest.mark.parametrize(
    "text",
    [
        '{"end": {"orders@broker-a:0": 10, "orders@broker-a:1": 5}, "from": {"orders@broker-a:0": 0}}',
        '{"orders@store:0": 10, "orders@store:1": -2}',
        '{"orders": {"broker-a": {"0": 10, "1": 5}}}',
    ],
)
def test_offsets_of_a_live_query_are_those_of_the_store_whatever_its_name(text) -> None:
    starting = parse_store({**GIVEN, "startingOffsets": text}, BATCH).starting
    assert sorted(starting.resolve(QUEUES).values()) == [5, 10]


def test_one_offset_for_all_queues_of_the_store() -> None:
    assert list(
        parse_store({**GIVEN, "startingOffsets": '{"orders": 7}'}, BATCH).starting.resolve(QUEUES).values()
    ) == [
        *(7, 7),
    ]


def test_of_offsets_of_several_brokers_those_of_the_named_one_count() -> None:
    text = '{"orders": {"broker-a": {"0": 10, "1": 5}, "broker-b": {"0": 1}}}'
    named = parse_store({**GIVEN, "startingOffsets": text, "brokerName": "broker-a"}, BATCH).starting
    assert sorted(named.resolve(QUEUES).values()) == [5, 10]
    unnamed = parse_store({**GIVEN, "startingOffsets": text}, BATCH).starting
    with pytest.raises(
        ConfigError, match="orders has offsets of the brokers broker-a, broker-b, and a store is one br"
    ):
        unnamed.resolve(QUEUES)


def test_malformed_offsets_are_named_with_what_is_expected() -> None:
    for text, says in {
        '{"orders": {"0": "x"}}': 'startingOffsets: "x" for the queues of orders on 0 cannot be; expected an offset',
        "{": r"startingOffsets=\{: .*; expected JSON like",
        '{"end": {"orders@broker-a": 5}}': "startingOffsets: 'orders@broker-a' names no queue; expected topic@broker",
    }.items():
        with pytest.raises(ConfigError, match=says):
            parse_store({**GIVEN, "startingOffsets": text}, BATCH)


def test_the_path_of_load_is_the_store() -> None:
    assert parse_store({"path": "data", "subscribe": "orders"}).path == "data"
    with pytest.raises(ConfigError, match=r"storePath=other and load\('data'\) name two folders"):
        parse_store({"path": "data", "storePath": "other", "subscribe": "orders"})
