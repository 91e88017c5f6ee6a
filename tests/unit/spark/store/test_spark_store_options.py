"""Options of stores and lakes: what is refused, with the answers of `bad_input_rows`, and what is taken."""

from __future__ import annotations

import bad_input_rows as rows
import pytest

from tianzhou.errors import ConfigError
from tianzhou.model import MessageQueue
from tianzhou.spark.lake.options import parse_lake
from tianzhou.spark.option_values import BATCH, STREAM
from tianzhou.spark.source.offsets import Bounds
from tianzhou.spark.store.store_options import parse_store

GIVEN = {"storePath": "data", "subscribe": "orders"}
QUEUES = {MessageQueue("orders", "store", number): Bounds(5, 50) for number in (0, 1)}


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


def test_the_path_of_load_is_the_store() -> None:
    assert parse_store({"path": "data", "subscribe": "orders"}).path == "data"
    with pytest.raises(ConfigError, match=r"storePath=other and load\('data'\) name two folders"):
        parse_store({"path": "data", "storePath": "other", "subscribe": "orders"})
