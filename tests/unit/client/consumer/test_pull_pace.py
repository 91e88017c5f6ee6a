"""Pauses of pulls after replies without messages."""

from __future__ import annotations

from tianzhou.client.consumer.pull_pace import FREE_ANSWERS, PullPace


def rests(moved: int, took_s: float, count: int, pace: PullPace | None = None) -> list[float]:
    pace = pace or PullPace()
    return [pace.rest_s(moved, took_s) for _ in range(count)]


def test_the_first_answers_that_bring_nothing_cost_no_time_and_then_more_and_more() -> None:
    found = rests(0, 0.0, FREE_ANSWERS + 10)
    assert found[:FREE_ANSWERS] == [0.0] * FREE_ANSWERS
    assert [round(s, 2) for s in found[FREE_ANSWERS:]] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]


def test_a_filter_that_passes_messages_over_is_followed_at_once() -> None:
    assert rests(800, 0.0, 1_000) == [0.0] * 1_000


def test_a_broker_that_waits_for_messages_is_pulled_again_at_once() -> None:
    assert rests(0, 15.0, 100) == [0.0] * 100
    assert rests(0, 1.0, 100) == [0.0] * 100


def test_small_steps_forward_rest_a_tenth_of_a_second_at_most() -> None:
    assert max(rests(1, 0.0, 1_000)) == 0.1


def test_going_backwards_is_no_progress() -> None:
    assert rests(-5, 0.0, 100)[-1] == 1.0


def test_what_leads_on_again_is_forgiven() -> None:
    pace = PullPace()
    assert rests(0, 0.0, 50, pace)[-1] == 1.0
    assert pace.rest_s(100, 0.0) == 0.0
    assert rests(0, 0.0, FREE_ANSWERS, pace) == [0.0] * FREE_ANSWERS
