"""Whether a broker is drained, from one observation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tianzhou.cli.drain.leftovers import GroupLeft, Leftovers, judge

EMPTY = Leftovers("broker-a", "127.0.0.1:10911", pop=0)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(EMPTY, writable=("10.0.0.1:9876",)), "producers may write to it: 10.0.0.1:9876 says so"),
        (replace(EMPTY, in_per_second=0.3), "messages come in, 0.3 per second"),
        (replace(EMPTY, groups=(GroupLeft("billing", 1, 2),)), "group billing has 1 message to consume"),
        (replace(EMPTY, groups=(GroupLeft("billing", 5, 0),)), "5 messages to consume and no members here: start some"),
        (replace(EMPTY, delayed=1), "1 delayed message waits for their time"),
        (replace(EMPTY, delayed=3), "3 delayed messages wait for their time"),
        (replace(EMPTY, half=2), "2 half messages wait for the end of their transactions"),
        (replace(EMPTY, half_unread=7), "7 half messages behind those were not looked at"),
        (replace(EMPTY, pop=4), "4 messages are with POP consumers"),
    ],
)
def test_what_is_left_holds_the_broker_up_and_is_named(seen: Leftovers, words: str) -> None:
    verdict = judge(seen)
    assert not verdict.drained
    (reason,) = verdict.reasons
    assert words in reason


@pytest.mark.parametrize("pop", [0, None])
def test_where_nothing_is_left_it_is_safe_to_stop(pop: int | None) -> None:
    assert judge(replace(EMPTY, pop=pop)).drained


def test_producers_get_time_to_notice() -> None:
    verdict = judge(EMPTY, notice_left_s=12)
    assert not verdict.drained
    assert "12 s more to notice" in verdict.reasons[0]


def test_everything_that_is_left_is_named_in_one_look() -> None:
    seen = replace(EMPTY, writable=("a", "b"), groups=(GroupLeft("x", 2, 1), GroupLeft("y", 1, 1)), delayed=1, half=1)
    assert len(judge(seen).reasons) == 5


def test_groups_that_are_ignored_hold_nothing_up_and_are_named() -> None:
    seen = replace(EMPTY, groups=(GroupLeft("old", 9, 0), GroupLeft("billing", 1, 1)))
    verdict = judge(seen, {"old", "elsewhere"})
    assert verdict.ignored == ("old",)
    assert verdict.reasons == ("group billing has 1 message to consume",)
    assert judge(seen, {"old", "billing"}).drained
