"""Changes of offsets: their figures, their line in the audit log, and the effects and refusals of an undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin.progress import OffsetChange
from tianzhou.console.audit import AuditLog
from tianzhou.console.changes.offset_changes import (
    REFUSED,
    RecordedChange,
    UndoState,
    UndoStep,
    change_rows,
    changes_of_now,
    details_of,
    earlier_offsets,
    last_entries,
    recorded_in,
    totals_of,
    undo_of,
    undo_rows,
    undo_states,
)
from tianzhou.console.layout import View
from tianzhou.console.pages.audit_log import undo_cells
from tianzhou.console.texts import TEXTS
from tianzhou.model import MessageQueue

VIEW = View(None, None, "", "en")  # type: ignore[arg-type]


def queue(number: int = 0, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue("orders", broker, number)


def recorded(before: int | None, after: int, name: str = "c1", undoes: str = "") -> RecordedChange:
    return RecordedChange(name, "billing", "orders", (OffsetChange(queue(), before, after),), undoes)


# --- figures -----------------------------------------------------------------------------------------------------


def test_a_preview_has_the_messages_skipped_and_consumed_again_by_queue() -> None:
    changes = [OffsetChange(queue(0), 5, 20), OffsetChange(queue(1), 20, 3), OffsetChange(queue(2), 7, 7)]
    assert [(row["skipped"], row["repeated"]) for row in change_rows(changes, "billing")] == [(15, 0), (0, 17), (0, 0)]
    totals = totals_of(changes)
    assert (totals.queues, totals.skipped, totals.repeated, totals.unknown) == (2, 15, 17, 0)


@pytest.mark.parametrize(
    ("agreed", "now", "expected"),
    [
        ((5, 20), (12, 20), (12, 20)),
        ((5, 20), (26, 20), (26, 26)),  # it has consumed past the last message of the preview
        ((20, 3), (26, 3), (26, 3)),
        ((None, 20), (26, 20), (26, 26)),
        ((None, 20), (None, 20), (None, 20)),
    ],
)
def test_a_change_is_what_was_agreed_to_and_consumes_no_further_message_again(
    agreed: tuple[int | None, int], now: tuple[int | None, int], expected: tuple[int | None, int]
) -> None:
    found = changes_of_now([OffsetChange(queue(), *agreed)], [OffsetChange(queue(), *now)])
    assert found == [OffsetChange(queue(), *expected)]


def test_figures_of_a_queue_without_an_offset_are_unknown() -> None:
    changes = [OffsetChange(queue(0), None, 20)]
    (row,) = change_rows(changes, "billing")
    assert (row["before"], row["skipped"], row["repeated"]) == ("-", "?", "?")
    assert (totals_of(changes).unknown, totals_of(changes).queues) == (1, 1)


def test_rows_of_several_groups_and_brokers_have_keys_of_their_own() -> None:
    changes = [OffsetChange(queue(0), 0, 1), OffsetChange(queue(0, "broker-b"), 0, 1)]
    rows = change_rows(changes, "billing") + change_rows(changes, "shipping")
    assert len({row["key"] for row in rows}) == 4


# --- the audit log -----------------------------------------------------------------------------------------------

CHANGE = RecordedChange(
    "c1",
    "billing",
    "orders",
    (
        OffsetChange(queue(0), 5, 20),
        OffsetChange(queue(1), None, 20),
        OffsetChange(queue(0, "b:c"), 0, 9),
    ),
)


def test_the_audit_log_keeps_the_earlier_offsets_of_each_queue(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.write("t", "alice", "::1", "reset offsets", "billing in orders to latest", "begun", details_of(CHANGE))
    (entry,) = log.tail(10)
    assert entry["offsets"]["queues"] == {"broker-a": {"0": [5, 20], "1": [None, 20]}, "b:c": {"0": [0, 9]}}
    found = recorded_in(entry)
    assert found is not None
    assert (found.id, found.group, found.topic, set(found.changes)) == ("c1", "billing", "orders", set(CHANGE.changes))
    assert earlier_offsets(found) == {queue(0): 5, queue(0, "b:c"): 0}


@pytest.mark.parametrize(
    "entry",
    [
        {}, {"id": "c1"}, {"id": "c1", "offsets": []},
        {"id": "", "offsets": {"group": "g", "topic": "t", "queues": {}}},
        {"id": "c1", "offsets": {"group": "g", "topic": 7, "queues": {}}},
        {"id": "c1", "offsets": {"group": "g", "topic": "t", "queues": {"b": []}}},
        {"id": "c1", "offsets": {"group": "g", "topic": "t", "queues": {"b": {"x": [1, 2]}}}},
        {"id": "c1", "offsets": {"group": "g", "topic": "t", "queues": {"b": {"0": [1]}}}},
        {"id": "c1", "offsets": {"group": "g", "topic": "t", "queues": {"b": {"0": [1, "2"]}}}},
    ],
)  # fmt: skip
def test_a_line_of_another_form_is_no_change(entry: dict[str, Any]) -> None:
    assert recorded_in(entry) is None


def begun(one: RecordedChange) -> dict[str, Any]:
    return {"outcome": "begun", **json.loads(json.dumps(details_of(one)))}


def ended(one: RecordedChange, outcome: str = "done") -> dict[str, Any]:
    return {"outcome": outcome, "id": one.id}


def log_of(*changes: RecordedChange) -> list[dict[str, Any]]:
    """Return the log lines of finished changes, the newest first."""
    return [entry for one in reversed(changes) for entry in (ended(one), begun(one))]


A, B = recorded(0, 9, "a"), recorded(9, 4, "b")
UNDO_B = recorded(4, 9, "ub", undoes="b")
UNDO_UNDO_B = recorded(9, 4, "uub", undoes="ub")
OTHER = RecordedChange("o", "shipping", "orders", A.changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((A,), {"a": "open"}),
        ((recorded(None, 9, "a"),), {"a": "without"}),
        ((A, OTHER), {"a": "open", "o": "open"}),
        ((A, B), {"a": "superseded", "b": "open"}),
        ((A, B, UNDO_B), {"a": "open", "b": "undone", "ub": "open"}),
        ((A, B, UNDO_B, UNDO_UNDO_B), {"a": "superseded", "b": "open", "ub": "undone", "uub": "open"}),
    ],
)
def test_the_last_change_of_a_group_in_a_topic_is_undone_first(
    changes: tuple[RecordedChange, ...], expected: dict[str, str]
) -> None:
    assert undo_states(log_of(*changes)) == {name: UndoState(one) for name, one in expected.items()}


def test_an_undo_that_failed_leaves_its_change_open() -> None:
    entries = [ended(UNDO_B, "failed: no reply"), begun(UNDO_B), *log_of(B)]
    assert undo_states(entries)["b"] is UndoState.OPEN


def test_the_button_is_in_the_last_line_of_a_change() -> None:
    entries = [{"outcome": "done"}, *log_of(A, B)]
    assert {number: one.id for number, one in last_entries(entries).items()} == {1: "b", 3: "a"}
    assert last_entries([begun(A)]) == {0: A}  # a console that ended in the midst of the change
    assert undo_cells(entries, VIEW) == {1: {"undo": "b"}, 3: {"state": "undo later changes first"}}


def test_every_step_and_state_has_its_words() -> None:
    keys = [f"undo.step.{one}" for one in UndoStep]
    keys += [f"undo.{what}.{one}" for one in UndoState if one is not UndoState.OPEN for what in ("reason", "state")]
    assert [key for key in keys if key not in TEXTS] == []


# --- undo --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "current", "target", "step", "skipped", "repeated", "since"),
    [
        # The group skipped messages 5 to 20. Then it consumed no message, or three messages.
        (5, 20, 20, 5, "back", 0, 15, 0),
        (5, 20, 23, 5, "back", 0, 18, 3),
        # A later change moved the group back to 12, or to 2: the second would be skipped by an undo.
        (5, 20, 12, 5, "back", 0, 7, 0),
        (5, 20, 2, 5, "rewound", 0, 0, 0),
        (5, 20, 5, 5, "same", 0, 0, 0),
        # The group was moved back from 20 to 5. Then it consumed no message, some, all, and further messages.
        (20, 5, 5, 20, "back", 15, 0, 0),
        (20, 5, 11, 20, "back", 9, 0, 0),
        (20, 5, 20, 20, "same", 0, 0, 0),
        (20, 5, 25, 20, "passed", 0, 0, 0),
        (20, 5, 3, 20, "rewound", 0, 0, 0),
        # The broker has deleted the messages before 8.
        (5, 20, 20, 8, "expired", 0, 12, 0),
        (5, 20, 22, 8, "expired", 0, 14, 2),
        # The topic was deleted and created again: the queue ends at 4.
        (20, 5, 4, 4, "cut", 0, 0, 0),
        (5, 20, None, 5, "lost", 0, 0, 0),
        (7, 7, 9, 7, "same", 0, 0, 0),
    ],
)  # fmt: skip
def test_what_an_undo_does_to_a_queue(
    before: int,
    after: int,
    current: int | None,
    target: int,
    step: str,
    skipped: int,
    repeated: int,
    since: int,
) -> None:
    undo = undo_of(recorded(before, after), [OffsetChange(queue(), current, target)])
    (one,) = undo.queues
    assert (one.step, one.since) == (UndoStep(step), since)
    assert (one.now.skipped, one.now.repeated) == (skipped, repeated)
    moves = UndoStep(step) in (UndoStep.BACK, UndoStep.EXPIRED)
    assert undo.changes == ([OffsetChange(queue(), current, target)] if moves else [])
    assert undo.may_run is moves
    assert bool(undo.refusals) is (UndoStep(step) in REFUSED)
    (row,) = undo_rows(undo)
    assert (row["before"], row["after"], row["now"]) == (before, after, "-" if current is None else current)


def test_one_queue_that_would_lose_messages_refuses_the_whole_undo() -> None:
    change = RecordedChange("c1", "billing", "orders", (OffsetChange(queue(0), 5, 20), OffsetChange(queue(1), 5, 20)))
    undo = undo_of(change, [OffsetChange(queue(0), 20, 5), OffsetChange(queue(1), 2, 5)])
    assert [one.step for one in undo.queues] == [UndoStep.BACK, UndoStep.REWOUND]
    assert not undo.may_run


def test_a_queue_without_an_earlier_offset_stays_where_it_is() -> None:
    change = RecordedChange(
        "c1", "billing", "orders", (OffsetChange(queue(0), 5, 20), OffsetChange(queue(1), None, 20))
    )
    undo = undo_of(change, [OffsetChange(queue(0), 20, 5)])
    assert [one.step for one in undo.queues] == [UndoStep.BACK, UndoStep.NEW]
    assert undo.changes == [OffsetChange(queue(0), 20, 5)]
    assert undo.may_run


def test_an_undo_with_nothing_left_to_move_does_not_run() -> None:
    undo = undo_of(recorded(5, 20), [OffsetChange(queue(), 8, 8)])  # messages before 8 are deleted; the group is at 8
    assert (undo.changes, undo.refusals, undo.may_run) == ([], [], False)
