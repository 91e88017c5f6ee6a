"""Conditions of `dlq resend --where`: those evaluated without Spark, and those that need it."""

from __future__ import annotations

import pytest

from tianzhou.cli.messages.letter_causes import CONDITION_COLUMNS
from tianzhou.pipelines.conditions import condition_of

ROWS = [
    {"reason": "Timeout", "keys": "k1", "reconsumeTimes": 16, "originTopic": "orders"},
    {"reason": None, "keys": "k2", "reconsumeTimes": 3, "originTopic": "orders"},
    {"reason": "Declined", "keys": None, "reconsumeTimes": 1, "originTopic": "payments"},
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("reason = 'Timeout'", [0]),
        ("REASON <> 'Timeout'", [2]),
        ("reason IS NULL", [1]),
        ("reason IS NOT NULL AND (keys = 'k1' OR originTopic = 'payments')", [0, 2]),
        ("reason IN ('Timeout', 'Declined')", [0, 2]),
        ("reason NOT IN ('Timeout')", [2]),
        ("reconsumeTimes > 3 OR originTopic = 'payments'", [0, 2]),
        ("reconsumeTimes <= 3 AND originTopic = 'orders'", [1]),
        ("keys = 'k2' OR reason = 'Declined'", [1, 2]),
    ],
)
def test_conditions_mean_what_they_mean_in_sql(text, chosen):
    fulfils = condition_of(text, CONDITION_COLUMNS)
    assert [number for number, row in enumerate(ROWS) if fulfils(row)] == chosen


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "keys < 'k3'",
        "keys = 7",
        "reconsumeTimes = '7'",
        "reconsumeTimes > 3.5",
        "reconsumeTimes = 99999999999",
        "NOT reason = 'Timeout'",
        "reason = 'it''s'",
        "reason = 'a\\'b'",
        'reason = "Timeout"',
        "`reason` = 'Timeout'",
        "length(body) > 3",
        "reason LIKE 'T%'",
        "reason = 'a' = TRUE",
        "TRUE",
        "reason = originTopic",
        "reason =",
        "",
    ],
)
def test_what_may_mean_something_else_is_left_to_spark(text):
    assert condition_of(text, CONDITION_COLUMNS) is None
