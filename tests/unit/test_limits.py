"""Refusals name the limit, the value and the key; strangers' text cannot forge a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import LimitExceeded
from tianzhou.escaping import escaped, shown
from tianzhou.limits import LIMITS, QUEUES_OF_TOPIC, Refusals


def test_a_refusal_names_what_how_much_and_the_key_and_is_counted() -> None:
    refusals = Refusals()
    refusals.check(QUEUES_OF_TOPIC, 7, 7, "topic orders")
    with pytest.raises(LimitExceeded) as caught:
        refusals.check(QUEUES_OF_TOPIC, 8, 7, "topic or\nders")
    assert str(caught.value) == (
        "topic or\\nders: 8 queues, at most 7 are allowed; raise maxQueuesPerTopic if that is meant"
    )
    assert refusals.counts == {"maxQueuesPerTopic": 1}


def test_limits_are_found_by_their_names() -> None:
    assert all(name == limit.name for name, limit in LIMITS.items())


@given(st.text())
def test_escaped_text_is_one_line_that_moves_no_cursor(text: str) -> None:
    result = escaped(text)
    assert len(result.splitlines()) <= 1
    assert "\x1b" not in result
    result.encode()


def test_long_text_is_cut_and_counted() -> None:
    assert shown("a" * 300, 10) == "aaaaaaaaaa… (300 characters)"
    assert shown("a\x1b[2J") == "a\\x1b[2J"
