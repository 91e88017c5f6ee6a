"""Repeated events do not fill the log: the first few are logged, the others counted, and no event is stored
permanently.
"""

from __future__ import annotations

from tianzhou.repeats import MAX_KEYS, Once, Repeats


def test_the_first_few_of_a_span_are_let_through_and_the_others_counted() -> None:
    repeats = Repeats(lines=2, span_s=60)
    assert [repeats.due("a", now) for now in (0, 1, 2, 59)] == [0, 0, None, None]
    assert repeats.due("b", 59) == 0
    assert [repeats.due("a", now) for now in (60, 61, 62)] == [2, 0, None]
    assert repeats.due("a", 1000) == 1


def test_only_so_many_keys_are_remembered() -> None:
    once, repeats = Once(), Repeats()
    for key in range(3 * MAX_KEYS):
        assert once.first(key)
        assert repeats.due(key, 0) == 0
    assert not once.first(3 * MAX_KEYS - 1)
    assert once.first(0)
    assert repeats.due(3 * MAX_KEYS - 1, 0) is None
    assert repeats.due(0, 0) == 0
