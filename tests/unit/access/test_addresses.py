"""Patterns of addresses of both kinds of access control."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.access.addresses import parse_network, parse_pattern
from tianzhou.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["10.0.0.1", "::1", ""]),
        ("  ", [], ["10.0.0.1"]),
        ("*", ["10.0.0.1", "::1"], []),
        ("*.*.*.*", ["10.0.0.1", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["10.0.0.1", "::1"], []),
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.10", "10.0.0.2", "x"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255", "::ffff:10.0.0.9"], ["10.0.1.0", "::1"]),
        ("10.0.*.*", ["10.0.7.9"], ["10.1.0.0"]),
        ("10.*.*.*", ["10.3.7.9"], ["11.0.0.0"]),
        ("10.0.0.1-20", ["10.0.0.1", "10.0.0.20"], ["10.0.0.0", "10.0.0.21", "10.0.1.5"]),
        ("10.0.1-20.*", ["10.0.1.200", "10.0.20.1"], ["10.0.0.1", "10.0.21.1"]),
        ("10.0.0.{1,7}", ["10.0.0.1", "10.0.0.7"], ["10.0.0.17"]),
        ("10.0.0.1,10.0.0.7,fe80::1", ["10.0.0.7", "fe80:0::1"], ["10.0.0.2"]),
        ("fe80::1", ["FE80::1", "fe80:0:0:0:0:0:0:1", "fe80::1%eth0"], ["fe80::2"]),
        ("fe80::{1,20}", ["fe80::1", "fe80:0:0::20"], ["fe80::2"]),
        ("fe80::7:1-20", ["fe80::7:1", "fe80::7:20", "fe80::7:1f"], ["fe80::7:21", "fe80::1:1", "10.0.0.1"]),
        ("fe80::7:1-20:*", ["fe80::7:1f:abcd"], ["fe80::7:21:0", "fe80::7:5"]),
        ("127.0.0.*.", ["127.0.0.9"], ["127.0.1.9"]),
        ("fe80::*", ["fe80::ffff"], ["fe80::1:1"]),
        ("1:2:3:4:5:6:7:*", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:8:8"]),
    ],
)
def test_pattern_of_4_matches_what_rocketmq_lets_in(pattern: str, inside: list[str], outside: list[str]) -> None:
    compiled = parse_pattern(pattern)
    assert [ip for ip in inside if not compiled.matches(ip)] == []
    assert [ip for ip in outside if compiled.matches(ip)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "10.0.0", "10.0.0.256", "10.0.0.20-1", "10.0.0.-5", "10.0.0.5-", "10.0.0.1-300", "*.0.0.1", "256.0.0.*",
        "10.0.0.1{2,3}", "{1,2}", "10.0.0.{1,x}", "10.0.*.7", "fe80::*:1:1", "fe80::20-1", "g::*", "1:2:3:4:5:6:7:8:*",
        "fe80::1-20", "fe80::1-20:*", "::1-20", "fe80::0-0", "10.0.0.0-0", "010.0.0.*", "10.0.{0.1}",
        "::ffff:10.0.0.1", "10.0.0.1-2-3", "10.0.0.1 - 2",
        "10.0.0.1, 10.0.0.2", "localhost", "10.0.0.0/8", "}", "1" * 9000,
    ],
)  # fmt: skip
def test_wrong_pattern_is_named_with_the_forms(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"address pattern .*expected an address"):
        parse_pattern(pattern)


@given(st.text(alphabet="0123456789abcdef.:*-,{} %/", max_size=40), st.ip_addresses())
def test_no_pattern_raises_anything_else(pattern: str, ip: object) -> None:
    with contextlib.suppress(ConfigError):
        parse_pattern(pattern).matches(str(ip))


def test_source_ip_of_5_is_an_address_or_a_range() -> None:
    assert parse_network("10.0.0.0/8").matches("10.9.9.9")
    assert parse_network("10.0.0.9/8").matches("::ffff:10.1.1.1")
    assert parse_network("10.0.0.1").matches("10.0.0.1")
    assert not parse_network("10.0.0.1").matches("10.0.0.2")
    assert not parse_network("fe80::/10").matches("10.0.0.1")
    assert not parse_network("10.0.0.0/8").matches("unknown")


@pytest.mark.parametrize("text", ["", "10.*", "10.0.0.0/40", "host"])
def test_wrong_source_ip_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"source IP .*CIDR"):
        parse_network(text)
