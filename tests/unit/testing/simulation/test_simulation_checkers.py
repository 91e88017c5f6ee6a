"""Findings of a simulated cluster's checkers on small histories."""

from __future__ import annotations

import itertools

import pytest

from tianzhou.testing.simulation import checkers
from tianzhou.testing.simulation.checkers import Promise
from tianzhou.testing.simulation.history import (
    Acked,
    Agreed,
    Committed,
    Consumed,
    Ended,
    Fault,
    History,
    Leads,
    PowerLoss,
    QueuePlace,
    Refused,
    Remains,
    Sent,
    Serves,
    Stored,
)

QUEUE = QueuePlace("broker-a", "Orders", 0)
PROMISE = Promise(frozenset({"SEND_OK"}), ["Ledger"], ["Ledger"])


def story(*events: tuple[object, ...], holds: dict[int, str] | None = None) -> History:
    """Return a history of these events, one a second, and of the broker's messages at the end."""
    steps = itertools.count(1)

    def clock() -> tuple[int, float]:
        step = next(steps)
        return step, float(step)

    history = History(clock)
    for kind, *values in events:
        history.add(kind, *values)  # type: ignore[arg-type]
        if kind is Sent:
            history.bodies[str(values[0])] = b"body"
    if holds is not None:
        history.remains = [remains(holds)]
    return history


def remains(holds: dict[int, str], server: str = "broker-a", *, is_master: bool = True, log: bytes = b"log") -> Remains:
    return Remains(server, "broker-a", is_master, {QUEUE: list(holds.items())}, 0, 100, log)


def sent(name: str, offset: int, status: str = "SEND_OK") -> list[tuple[object, ...]]:
    return [(Sent, name, "writer"), (Acked, name, status, QUEUE, offset)]


def consumed(name: str, offset: int, *, attempt: int = 0) -> tuple[object, ...]:
    return Consumed, name, "Ledger", "member", QUEUE, offset, attempt


def said(history: History, promise: Promise = PROMISE) -> list[str]:
    return [problem.checker for problem in checkers.problems(history, promise)]


def test_a_run_in_which_all_went_well_has_no_problems() -> None:
    history = story(
        *sent("a", 0),
        consumed("a", 0),
        *sent("b", 1),
        consumed("b", 1),
        (Committed, "Ledger", "member", QUEUE, 2),
        (Stored, "broker-a.1", "Ledger", QUEUE, 2),
        holds={0: "a", 1: "b"},
    )
    assert checkers.problems(history, PROMISE) == []


def test_a_message_that_was_acknowledged_is_where_the_answer_says() -> None:
    history = story(*sent("a", 0), *sent("b", 1), consumed("a", 0), holds={0: "a"})
    [problem] = checkers.problems(history, PROMISE)
    assert (problem.step, problem.checker) == (4, "lost")
    assert "b was acknowledged (SEND_OK) at broker-a/Orders/0 offset 1; in the end nothing is there" in problem.text


def test_what_was_not_promised_may_be_lost() -> None:
    assert (
        said(story(*sent("a", 0, "FLUSH_DISK_TIMEOUT"), (Sent, "b", "writer"), (Refused, "b", "timeout"), holds={}))
        == []
    )


def test_an_offset_names_one_message() -> None:
    assert set(said(story(*sent("a", 0), *sent("b", 0), consumed("b", 0), holds={0: "b"}))) == {
        "lost",
        "places",
        "order",
    }
    assert "places" in said(
        story(*sent("a", 0), consumed("a", 0), *sent("b", 2), consumed("b", 1), holds={0: "a", 2: "b"})
    )


def test_who_sends_after_an_answer_is_behind_it() -> None:
    history = story(*sent("a", 1), *sent("b", 0), consumed("b", 0), consumed("a", 1), holds={0: "b", 1: "a"})
    assert said(history) == ["order"]


def test_two_that_were_sent_at_once_are_in_any_order() -> None:
    history = story(
        (Sent, "a", "one"),
        (Sent, "b", "other"),
        (Acked, "b", "SEND_OK", QUEUE, 1),
        (Acked, "a", "SEND_OK", QUEUE, 0),
        consumed("a", 0),
        consumed("b", 1),
        holds={0: "a", 1: "b"},
    )
    assert said(history) == []


def test_a_group_in_order_is_given_nothing_before_its_turn() -> None:
    history = story(*sent("a", 0), *sent("b", 1), consumed("b", 1), consumed("a", 0), holds={0: "a", 1: "b"})
    assert said(history) == ["order"]
    assert said(history, Promise(PROMISE.statuses, ["Ledger"], [])) == []


def test_nothing_is_committed_that_was_not_given() -> None:
    history = story(*sent("a", 0), (Committed, "Ledger", "member", QUEUE, 1), consumed("a", 0), holds={0: "a"})
    assert said(history) == ["commits"]


def test_a_stored_offset_goes_back_only_after_something_went_wrong() -> None:
    forth = [*sent("a", 0), consumed("a", 0), *sent("b", 1), consumed("b", 1), (Stored, "m.1", "Ledger", QUEUE, 2)]
    holds = {0: "a", 1: "b"}
    assert said(story(*forth, (Stored, "m.1", "Ledger", QUEUE, 1), holds=holds)) == ["offsets"]
    assert said(story(*forth, (Fault, "kill"), (Stored, "m.1", "Ledger", QUEUE, 1), holds=holds)) == []
    assert said(story(*forth, (Stored, "m.2", "Ledger", QUEUE, 1), holds=holds)) == []


def test_a_term_has_one_leader() -> None:
    assert said(story((Leads, "g", 1, "n0"), (Leads, "g", 1, "n0"), (Leads, "g", 2, "n1"))) == []
    assert said(story((Leads, "g", 1, "n0"), (Leads, "g", 1, "n1"))) == ["leaders"]


def test_copies_are_equal() -> None:
    history = story(*sent("a", 0), consumed("a", 0))
    copy = remains({0: "a"}, "slave", is_master=False)
    history.remains = [remains({0: "a"}), copy]
    assert said(history) == []
    history.remains = [remains({0: "a"}), remains({0: "a"}, "slave", is_master=False, log=b"other")]
    assert said(history) == ["replicas"]
    assert said(history, Promise(PROMISE.statuses, ["Ledger"], [], excused="the master is gone")) == []


def test_the_copy_counts_where_the_master_is_gone() -> None:
    history = story(*sent("a", 0), consumed("a", 0))
    history.remains = [remains({0: "a"}, "slave", is_master=False)]
    assert said(history) == []
    history.remains = [remains({}, "slave", is_master=False)]
    assert said(history) == ["lost"]


def test_every_message_reaches_every_group() -> None:
    assert said(story(*sent("a", 0), holds={0: "a"})) == ["undelivered"]


def test_nobody_is_given_what_nobody_sent() -> None:
    assert said(story(consumed("never sent: b'?'", 0), holds={})) == ["phantom"]


@pytest.mark.parametrize(("last", "problems"), [((Ended, "writer"), []), ((Fault, "cut"), ["unanswered"])])
def test_who_asks_gets_an_answer_unless_it_dies(last: tuple[object, ...], problems: list[str]) -> None:
    assert said(story((Sent, "a", "writer"), last, holds={})) == problems


def test_an_answer_comes_in_time() -> None:
    waits = [(Fault, "slow")] * 25
    assert said(story((Sent, "a", "writer"), *waits, (Refused, "a", "timeout"), holds={})) == ["unanswered"]


def test_a_leader_that_goes_on_answering_for_the_group_is_found() -> None:
    begins = [(Serves, "g", 1, "n0", True), (Serves, "g", 2, "n1", True)]
    ends = (Serves, "g", 1, "n0", False)
    promise = Promise(PROMISE.statuses, PROMISE.groups, PROMISE.orderly, wait_s=2.0)
    assert said(story(*begins, ends), promise) == []
    waiting = [(Fault, "time passes")] * 4
    assert said(story(*begins, *waiting, ends), promise) == ["alone"]
    assert said(story(*begins, *waiting), promise) == ["alone"]
    assert said(story(begins[0], ends, *waiting, begins[1], *waiting), promise) == []


def test_an_entry_that_is_committed_twice_in_two_ways_is_found() -> None:
    same = [(Agreed, "g", "n0", 3, "aa"), (Agreed, "g", "n1", 3, "aa"), (Agreed, "h", "n0", 3, "bb")]
    assert said(story(*same)) == []
    assert said(story(*same, (Agreed, "g", "n2", 3, "cc"))) == ["agreed"]


def test_what_was_not_promised_may_be_missing_with_what_is_behind_it_whole() -> None:
    """A disk refused to sync, then the power failed: of two messages with that reply, the second one is left."""

    def found(status: str) -> list[str]:
        history = story(
            *sent("a", 0),
            *sent("b", 1, status),
            *sent("c", 2, "FLUSH_DISK_TIMEOUT"),
            consumed("a", 0),
            consumed("c", 2),
            (Committed, "Ledger", "member", QUEUE, 3),
            holds={0: "a", 2: "c"},
        )
        return sorted({problem.checker for problem in checkers.problems(history, PROMISE)})

    assert found("FLUSH_DISK_TIMEOUT") == []
    assert found("SEND_OK") == ["commits", "lost", "order", "places"]


def test_what_was_never_answered_may_go_with_the_power() -> None:
    """Of two messages that were about to be synced, the second one is left; no producer got a reply, or only
    the first.
    """

    def found(*happened: tuple[object, ...]) -> list[str]:
        history = story(
            *sent("a", 0),
            (Sent, "b", "writer"),
            (Sent, "c", "other"),
            *happened,
            consumed("a", 0),
            consumed("c", 2),
            (Acked, "c", "SEND_OK", QUEUE, 2),
            (Ended, "writer"),
            holds={0: "a", 2: "c"},
        )
        return sorted({problem.checker for problem in checkers.problems(history, PROMISE)})

    assert found((PowerLoss, "m has lost its power")) == []
    assert found((Fault, "m is dead")) == ["order", "places"]
    assert found((PowerLoss, "m has lost its power"), consumed("b", 1)) != []
