"""The checkers of exchanged folders: foreign entries, and members that halt, in small histories."""

from __future__ import annotations

import itertools

import pytest

from tianzhou.testing.simulation import checkers
from tianzhou.testing.simulation.faults import EMPTY, GROUP, LIFE, OLDER
from tianzhou.testing.simulation.folder_checkers import folder_problems
from tianzhou.testing.simulation.history import Agreed, Exchanged, Foreign, Halted, History, Joined, Leads

OURS, FOREIGN = "aa", "ff"
WHY = "an entry differs"


def story(*events: tuple[object, ...]) -> History:
    """Return a history of these events, one a second, after one that makes `FOREIGN` a foreign entry."""
    steps = itertools.count(1)
    history = History(lambda: (next(steps), 1.0))
    history.add(Foreign, 3, FOREIGN)
    for kind, *values in events:
        history.add(kind, *values)  # type: ignore[arg-type]
    return history


def agreed(member: str, content: str) -> tuple[object, ...]:
    return Agreed, "broker-a", member, 3, content


@pytest.mark.parametrize("kind", [GROUP, LIFE])
def test_a_member_may_have_foreign_entries_while_it_has_a_foreign_folder(kind: str) -> None:
    held = (Exchanged, "member-0", kind), agreed("member-0", FOREIGN)
    assert folder_problems(story(*held)) == []
    [problem] = folder_problems(story(*held, (Exchanged, "member-0", EMPTY), agreed("member-0", FOREIGN)))
    assert problem.checker == "followed"


def test_no_other_member_takes_a_foreign_entry() -> None:
    [problem] = folder_problems(story((Exchanged, "member-0", GROUP), agreed("member-1", FOREIGN)))
    assert problem.text == "member-1 takes the foreign entry ff for committed, as entry 3"


def test_no_member_leads_with_a_foreign_entry() -> None:
    [problem] = folder_problems(story((Exchanged, "member-0", GROUP), (Leads, "broker-a", 2, "member-0", 1)))
    assert problem.text == "member-0 leads in term 2 with 1 foreign entries"
    assert folder_problems(story((Leads, "broker-a", 2, "member-0"))) == []


def test_foreign_entries_are_no_second_entry_of_an_index() -> None:
    assert list(checkers.agreed(story(agreed("member-0", FOREIGN), agreed("member-1", OURS)))) == []


def test_a_member_halts_only_with_an_exchanged_folder() -> None:
    halt = Halted, "member-0", WHY
    assert folder_problems(story((Exchanged, "member-0", OLDER), halt)) == []
    assert folder_problems(story((Halted, "member-0", ""))) == []
    for before in ([], [(Exchanged, "member-1", OLDER)], [(Exchanged, "member-0", OLDER), (Joined, "member-0")]):
        [problem] = folder_problems(story(*before, halt))
        assert problem.text == f"member-0 follows no further: {WHY}"
