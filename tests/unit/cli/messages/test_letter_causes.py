"""Dead letters counted by cause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.cli.messages.letter_causes import CauseCounter, condition_of_letters
from tianzhou.errors import ConfigError

REASONS = ("reason", "exception")


def letter(number: int, properties: dict[str, str], times: int = 16, stored: int = 0) -> Any:
    return SimpleNamespace(
        topic="%DLQ%billing",
        broker_name="broker-a",
        queue_id=0,
        queue_offset=number,
        properties={"UNIQ_KEY": f"id{number}", **properties},
        reconsume_times=times,
        store_timestamp=stored,
        msg_id=f"id{number}",
    )


def test_letters_are_counted_by_cause_the_most_frequent_first() -> None:
    counter = CauseCounter(2, REASONS)
    origin = {"DLQ_ORIGIN_TOPIC": "orders"}
    for number in range(3):
        counter.add(letter(number, {**origin, "reason": "Timeout"}, stored=100 - number))
    counter.add(letter(3, {**origin, "exception": "ValueError", "TAGS": "a"}))
    counter.add(letter(4, {**origin}))
    counter.add(letter(5, {}))
    found = counter.ordered()
    assert [cause for cause, _ in found] == [
        ("orders", None, "Timeout", 16),
        (None, None, None, 16),
        ("orders", None, None, 16),
        ("orders", "a", "ValueError", 16),
    ]
    first = found[0][1]
    assert (first.letters, first.first_ms, first.last_ms) == (3, 98, 100)
    assert [one.msg_id for one in first.newest] == ["id0", "id1"]


def test_a_condition_names_columns_of_letters() -> None:
    fulfils = condition_of_letters("reason = 'Timeout' AND originTopic = 'orders' AND queueOffset < 2", REASONS)
    properties = {"DLQ_ORIGIN_TOPIC": "orders", "exception": "Timeout"}
    assert [fulfils(letter(number, properties)) for number in range(3)] == [True, True, False]
    with pytest.raises(ConfigError, match="other conditions of SQL: tianzhou pipeline dlq --where"):
        condition_of_letters("reason LIKE 'T%'", REASONS)
