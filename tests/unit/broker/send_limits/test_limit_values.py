"""Limits as values: refused names and rates, and their stored form."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tianzhou.broker.send_limits.table import SendLimitTable, decode_limits
from tianzhou.errors import ConfigError, LimitExceeded, ProtocolError
from tianzhou.limits import Bounds
from tianzhou.model.send_limit import LimitScope, SendLimit, decode_limit, limit_of


def test_a_burst_is_one_second_unless_it_is_given() -> None:
    assert limit_of(LimitScope.TOPIC, "orders", 500) == SendLimit(LimitScope.TOPIC, "orders", 500, 500)
    assert limit_of(LimitScope.TOPIC, "orders", 0.1).burst == 1
    limit = limit_of(LimitScope.GROUP, "shop", None, None, 1e6)
    assert (limit.rate, limit.rate_bytes, limit.burst_bytes) == (0, 1e6, 1e6)
    assert limit.text == "1000000 bytes/s (burst 1000000)"


@pytest.mark.parametrize(
    ("scope", "name", "rates", "says"),
    [
        ("topic", "orders", (), "names neither messages nor bytes"),
        ("topic", "orders", (0,), "above 0"),
        ("topic", "orders", (-5,), "above 0"),
        ("topic", "orders", (math.nan,), "above 0"),
        ("topic", "orders", (math.inf,), "rate=inf"),
        ("topic", "orders", (1, 0.5), "burst of rate=0.5"),
        ("topic", "orders", (None, 5, 100), "a burst needs a rate"),
        ("topic", "a b", (1,), "illegal characters"),
        ("topic", "", (1,), "blank"),
        ("topic", "%RETRY%shop", (1,), "retries and dead letters"),
        ("group", "a/b", (1,), "illegal characters"),
        ("client", "", (1,), "IP address or the name of an account"),
        ("client", "a b", (1,), "IP address or the name of an account"),
    ],
)
def test_what_is_no_limit_is_refused_with_the_reason(scope: str, name: str, rates: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        limit_of(LimitScope(scope), name, *rates)


@pytest.mark.parametrize(
    "limit",
    [
        limit_of(LimitScope.TOPIC, "*", 500, 1_000),
        limit_of(LimitScope.GROUP, "shop", 0.5, 1, 1e6, 2e6),
        limit_of(LimitScope.CLIENT, "0:0:0:0:0:0:0:1", 5),
    ],
)
def test_a_limit_is_the_same_after_it_was_stored(limit: SendLimit) -> None:
    assert decode_limit(limit.key, limit.to_json()) == limit
    table = SendLimitTable()
    table.put([limit])
    assert decode_limits(table.to_json()) == {limit.key: limit}


def test_addresses_have_one_spelling() -> None:
    assert limit_of(LimitScope.CLIENT, "2001:DB8:0::1", 1).key == "client:2001:db8::1"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"sendLimitTable": None},
        {"sendLimitTable": {"orders": {"rate": 1, "burst": 1}}},
        {"sendLimitTable": {"topic:orders": {"rate": "much", "burst": 1}}},
        {"sendLimitTable": {"topic:orders": {"rate": 1}}},
        {"sendLimitTable": {"topic:orders": [1]}},
        {"sendLimitTable": {"topic:orders": {"rate": 1e999, "burst": 1}}},
    ],
)
def test_a_table_that_cannot_be_read_is_an_error(value: Any) -> None:
    with pytest.raises(ProtocolError, match="sendLimitTable"):
        decode_limits(value)


@pytest.mark.over_limit("maxSendLimits")
def test_the_number_of_limits_is_bounded() -> None:
    class Few:
        max_send_limits = 2

    table = SendLimitTable(Bounds(Few()))
    table.put([limit_of(LimitScope.TOPIC, name, 1) for name in ("a", "b")])
    with pytest.raises(LimitExceeded, match="maxSendLimits"):
        table.put([limit_of(LimitScope.TOPIC, "c", 1)])
    table.put([limit_of(LimitScope.TOPIC, "b", 2)])
    assert [str(one) for one in table.all().values()] == ["topic a", "topic b"]
    # The master's limits replace all limits.
    table.put([limit_of(LimitScope.TOPIC, "c", 1)], bounded=False)
    assert len(table) == 3
