"""The checker of tables: allowed entries of a member after changes that were acknowledged, or not."""

from __future__ import annotations

import pytest

from tianzhou.testing.simulation.history import History
from tianzhou.testing.simulation.table_changes import ABSENT, TableChanged, TableRemains, table_problems

ENTRY = "topic Table_1"


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ([], {ABSENT}),
        ([(3, True)], {3}),
        ([(3, True), (4, False)], {3, 4}),
        ([(3, False)], {ABSENT, 3}),
        ([(3, False), (4, True)], {4}),
        ([(3, True), (ABSENT, True)], {ABSENT}),
        ([(3, True), (ABSENT, False), (5, False)], {3, ABSENT, 5}),
    ],
)
def test_a_member_has_the_last_change_answered_ok_or_a_later_one(
    changes: list[tuple[int, bool]], allowed: set[int]
) -> None:
    for value in (ABSENT, 3, 4, 5):
        history = History(lambda: (1, 1.0))
        for changed, ok in changes:
            history.add(TableChanged, ENTRY, changed, ok)
        history.add(TableRemains, "member-0", ENTRY, value)
        assert (table_problems(history) == []) is (value in allowed)
