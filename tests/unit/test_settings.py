"""Settings and RocketMQ's keys."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ConfigError
from tianzhou.settings import (
    MAX_SUGGESTIONS,
    apply,
    bind,
    dump,
    format_properties,
    keyed,
    parse_properties,
    unknown_keys,
)
from tianzhou.store.settings import StoreSettings


@dataclass(frozen=True)
class Example:
    listen_port: int = 10911
    broker_ip1: str = keyed("brokerIP1", "127.0.0.1")
    auto_create_topic_enable: bool = True
    ratio: float = 0.5


def test_keys_are_camel_case_or_named() -> None:
    assert set(dump(Example())) == {"listenPort", "brokerIP1", "autoCreateTopicEnable", "ratio"}


def test_bind_reads_each_type() -> None:
    values = {"listenPort": " 9 ", "brokerIP1": "10.0.0.1", "autoCreateTopicEnable": "FALSE", "ratio": "0.25"}
    assert bind(Example, values) == Example(9, "10.0.0.1", False, 0.25)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("listenPort", "ten", "broker.conf: listenPort=ten: expected a whole number"),
        ("autoCreateTopicEnable", "yes", "broker.conf: autoCreateTopicEnable=yes: expected true or false"),
        ("ratio", "", "broker.conf: ratio=: expected a number"),
    ],
)
def test_a_bad_value_is_named_with_its_key_and_what_is_accepted(key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(Example, {key: value}, source="broker.conf")
    assert str(caught.value) == expected


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    assert unknown_keys(["listenPrt", "zzz", "ratio"], Example) == {"listenPrt": "listenPort", "zzz": None}


def test_hints_are_looked_for_a_few_keys_of_likely_length_only() -> None:
    many = [f"listenPrt{'x' * n}" for n in range(3)] + [f"q{n}" for n in range(MAX_SUGGESTIONS)] + ["listenPort1"]
    assert unknown_keys(many, Example)["listenPrt"] == "listenPort"
    assert unknown_keys(many, Example)["listenPort1"] is None
    long = "listenPort" * 100
    assert unknown_keys([long, "listenPort1"], Example) == {long: None, "listenPort1": "listenPort"}


def test_properties_text_follows_java() -> None:
    text = "# comment\n! too\n a = 1 \nb:2\nc 3\nlong=one,\\\n   two\npath=C\\:\\\\x\nuni=\\u00e9\nempty=\n"
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "long": "one,two", "path": "C:\\x", "uni": "é", "empty": "",
    }  # fmt: skip


@given(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))
def test_dump_and_bind_are_inverse(port: int, create: bool, ratio: float) -> None:
    one = Example(port, "10.1.2.3", create, ratio)
    assert bind(Example, parse_properties(format_properties(dump(one)))) == one
    assert apply(Example(), dump(one)) == one


def test_the_key_of_rocketmq_4_counts_where_the_present_one_is_not_set() -> None:
    assert bind(StoreSettings, {"haSlaveFallbehindMax": "7"}).ha_max_gap_not_in_sync == 7
    both = {"haSlaveFallbehindMax": "7", "haMaxGapNotInSync": "8"}
    assert bind(StoreSettings, both).ha_max_gap_not_in_sync == 8
    assert unknown_keys(both, StoreSettings) == {}
