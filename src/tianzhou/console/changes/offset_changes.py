"""Changes of a group's offsets: their figures, their entry in the audit log, and whether they can be undone. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tianzhou.admin.progress import OffsetChange
from tianzhou.model import MessageQueue

ID: Final = "id"
"""Member of the first and the last line of a change in the audit log. Both lines have the same value."""
OFFSETS: Final = "offsets"
"""Member of the first line of a change of offsets in the audit log: `details_of`."""
BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"


# --- figures -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a change over all its queues.

    Attributes:
        queues: number of queues whose offset changes.
        skipped: number of messages that the group will not consume.
        repeated: number of messages that the group consumes again.
        unknown: number of queues in which the group had no offset. Their totals are unknown, and an undo does not
            restore them.
    """

    queues: int
    skipped: int
    repeated: int
    unknown: int


def totals_of(changes: Iterable[OffsetChange]) -> Totals:
    """Return the figures of a change over all its queues."""
    every = list(changes)
    return Totals(
        sum(one.before != one.after for one in every),
        sum(one.skipped for one in every),
        sum(one.repeated for one in every),
        sum(one.before is None for one in every),
    )


def changes_of_now(agreed: Iterable[OffsetChange], now: Iterable[OffsetChange]) -> list[OffsetChange]:
    """Return the changes to execute: the agreed changes, starting at the present offsets.

    A group that has meanwhile consumed past the destination of a skip keeps its offset. Otherwise it would consume
    messages again that the preview did not mention.

    Args:
        agreed: the changes of the preview.
        now: dry run of a reset to the offsets of the preview.
    """
    forwards = {one.queue for one in agreed if one.before is None or one.before <= one.after}
    return [
        replace(one, after=one.before)
        if one.queue in forwards and one.before is not None and one.before > one.after
        else one
        for one in now
    ]


def change_rows(changes: Iterable[OffsetChange], group: str) -> list[dict[str, Any]]:
    """Return the rows of a preview.

    Args:
        changes: the effect of the change on each queue.
        group: the group. Its rows differ from those of other groups in the same table.
    """
    return [
        {
            "key": f"{group} {one.queue}",
            "group": group,
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "before": "-" if one.before is None else one.before,
            "after": one.after,
            "skipped": "?" if one.before is None else one.skipped,
            "repeated": "?" if one.before is None else one.repeated,
        }
        for one in changes
    ]


# --- the audit log -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change of offsets as recorded in the audit log.

    Attributes:
        id: text that is unique to this change and is in each of its lines.
        group: the group.
        topic: the topic.
        changes: the queues with the offsets before and after the change.
        undoes: `id` of the change that this one has undone; empty for another change.
    """

    id: str
    group: str
    topic: str
    changes: tuple[OffsetChange, ...]
    undoes: str = ""


def details_of(recorded: RecordedChange) -> dict[str, Any]:
    """Return the JSON values of a change for its first line in the audit log; `recorded_in` reads them."""
    queues: dict[str, dict[str, list[int | None]]] = {}
    for one in recorded.changes:
        queues.setdefault(one.queue.broker_name, {})[str(one.queue.queue_id)] = [one.before, one.after]
    values: dict[str, Any] = {"group": recorded.group, "topic": recorded.topic, "queues": queues}
    if recorded.undoes:
        values["undoes"] = recorded.undoes
    return {ID: recorded.id, OFFSETS: values}


def recorded_in(entry: Mapping[str, Any]) -> RecordedChange | None:
    """Return the change that an entry of the audit log begins; None for any other entry.

    Args:
        entry: JSON values of the line. Invalid values, such as those of an edited line, are no change.
    """
    values, of_entry = entry.get(OFFSETS), entry.get(ID)
    if not isinstance(values, dict) or not isinstance(of_entry, str) or not of_entry:
        return None
    group, topic, undoes = (values.get(name, "") for name in ("group", "topic", "undoes"))
    brokers = values.get("queues")
    if not all(isinstance(one, str) for one in (group, topic, undoes)) or not isinstance(brokers, dict):
        return None
    changes = []
    for broker, queues in brokers.items():
        if not isinstance(queues, dict):
            return None
        for number, offsets in queues.items():
            change = _change(MessageQueue(topic, broker, int(number)), offsets) if number.isdecimal() else None
            if change is None:
                return None
            changes.append(change)
    return RecordedChange(of_entry, group, topic, tuple(sorted(changes, key=lambda one: one.queue)), undoes)


def _change(queue: MessageQueue, offsets: object) -> OffsetChange | None:
    match offsets:
        case [int() | None as before, int() as after]:
            return OffsetChange(queue, before, after)
    return None


class UndoState(enum.StrEnum):
    """Whether the audit log allows the undo of a change of offsets."""

    OPEN = "open"
    UNDONE = "undone"
    """A later change has undone this change."""
    SUPERSEDED = "superseded"
    """A later change has moved the same group in the same topic, and is not undone."""
    WITHOUT = "without"
    """The group had no offset in any queue, so there is none to restore."""


def undo_states(entries: Sequence[Mapping[str, Any]]) -> dict[str, UndoState]:
    """Return whether each change of offsets can be undone, by the `id` of the change.

    Args:
        entries: entries of the audit log, the newest first. They include every entry after the oldest one of them.
    """
    found: dict[str, UndoState] = {}
    undone: set[str] = set()
    moved: set[tuple[str, str]] = set()
    failed: set[str] = set()
    for entry in entries:
        recorded = recorded_in(entry)
        if recorded is None:
            if isinstance(entry.get(ID), str) and str(entry.get("outcome", "")).startswith(FAILED):
                failed.add(entry[ID])
            continue
        place = recorded.group, recorded.topic
        if recorded.id in undone:
            found[recorded.id] = UndoState.UNDONE
            continue
        if place in moved:
            found[recorded.id] = UndoState.SUPERSEDED
        elif all(one.before is None for one in recorded.changes):
            found[recorded.id] = UndoState.WITHOUT
        else:
            found[recorded.id] = UndoState.OPEN
        if not recorded.undoes:
            moved.add(place)
        elif recorded.id not in failed:
            undone.add(recorded.undoes)
    return found


def last_entries(entries: Sequence[Mapping[str, Any]]) -> dict[int, RecordedChange]:
    """Return the changes of offsets by the number of the last entry of each change.

    Args:
        entries: entries of the audit log, the newest first.
    """
    ends: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if isinstance(entry.get(ID), str):
            ends.setdefault(entry[ID], number)
    return {ends[one.id]: one for one in map(recorded_in, entries) if one is not None}


# --- undo --------------------------------------------------------------------------------------------------------


class UndoStep(enum.StrEnum):
    """The effect of an undo on one queue, or the reason why the undo is refused."""

    BACK = "back"
    """The queue gets the earlier offset."""
    EXPIRED = "expired"
    """The broker has deleted messages behind the earlier offset. The queue gets the first stored offset."""
    SAME = "same"
    """The group is at the earlier offset, or the change did not move this queue."""
    PASSED = "passed"
    """The change moved the group back, and the group has consumed up to the earlier offset again. The offset stays."""
    NEW = "new"
    """The group had no offset before the change. The offset stays."""
    REWOUND = "rewound"
    """Refused: a later change moved the group further back. An undo would skip messages that it should consume
    again."""
    CUT = "cut"
    """Refused: the queue ends before the earlier offset, for example because the topic was deleted and created
    again."""
    LOST = "lost"
    """Refused: the group has no offset now, for example because it was deleted."""


REFUSED: Final = frozenset({UndoStep.REWOUND, UndoStep.CUT, UndoStep.LOST})


@dataclass(frozen=True, slots=True)
class QueueUndo:
    """The effect of an undo on one queue.

    Attributes:
        step: the effect, or the reason of the refusal.
        recorded: the change of this queue that is undone.
        now: the group's offset now, and the offset after the undo.
        since: number of messages that the group has consumed since a change that skipped messages. After the undo, the
            group consumes them again.
    """

    step: UndoStep
    recorded: OffsetChange
    now: OffsetChange
    since: int = 0


@dataclass(frozen=True, slots=True)
class Undo:
    """An undo of a change of offsets.

    Attributes:
        queues: the effect on each queue.
    """

    queues: tuple[QueueUndo, ...]

    @property
    def changes(self) -> list[OffsetChange]:
        """The changes of the queues whose offset moves."""
        moved = [one.now for one in self.queues if one.step in (UndoStep.BACK, UndoStep.EXPIRED)]
        return [one for one in moved if one.before != one.after]

    @property
    def refusals(self) -> list[QueueUndo]:
        """The queues that prevent the undo; empty when it is possible."""
        return [one for one in self.queues if one.step in REFUSED]

    @property
    def may_run(self) -> bool:
        """Whether the undo moves a queue and skips no message."""
        return bool(self.changes) and not self.refusals

    @property
    def since(self) -> int:
        """Number of messages that the group has consumed after the change and consumes again after the undo."""
        return sum(one.since for one in self.queues if one.step in (UndoStep.BACK, UndoStep.EXPIRED))


def earlier_offsets(recorded: RecordedChange) -> dict[MessageQueue, int]:
    """Return the offsets that an undo restores, for the queues in which the group had one."""
    return {one.queue: one.before for one in recorded.changes if one.before is not None}


def undo_of(recorded: RecordedChange, now: Iterable[OffsetChange]) -> Undo:
    """Return the effect of an undo on each queue.

    Args:
        recorded: the change to undo.
        now: dry run of a reset to `earlier_offsets`: the group's offset now and the earlier offset, or the end of the
            queue's range when the earlier offset is outside.
    """
    by_queue = {one.queue: one for one in now}
    return Undo(tuple(_undo_of_queue(one, by_queue.get(one.queue)) for one in recorded.changes))


def _undo_of_queue(change: OffsetChange, now: OffsetChange | None) -> QueueUndo:
    queue, before, after = change.queue, change.before, change.after
    if before is None or now is None:
        return QueueUndo(UndoStep.NEW, change, OffsetChange(queue, after, after))
    current, target = now.before, now.after
    stays = OffsetChange(queue, current, before if current is None else current)
    if current is None:
        return QueueUndo(UndoStep.LOST, change, stays)
    if before == after or current == before:
        return QueueUndo(UndoStep.SAME, change, stays)
    if target < before:
        return QueueUndo(UndoStep.CUT, change, stays)
    if current < min(before, after):
        return QueueUndo(UndoStep.REWOUND, change, stays)
    if after < before < current:
        return QueueUndo(UndoStep.PASSED, change, stays)
    since = max(0, current - max(after, target)) if after > before else 0
    return QueueUndo(UndoStep.EXPIRED if target > before else UndoStep.BACK, change, now, since)


def undo_rows(undo: Undo) -> list[dict[str, Any]]:
    """Return the rows of an undo's preview: the recorded offsets beside the present ones."""
    return [
        {
            "key": str(one.recorded.queue),
            "broker": one.recorded.queue.broker_name,
            "queue": one.recorded.queue.queue_id,
            "before": "-" if one.recorded.before is None else one.recorded.before,
            "after": one.recorded.after,
            "now": "-" if one.now.before is None else one.now.before,
            "then": one.now.after if one.step not in REFUSED else "-",
            "skipped": one.now.skipped,
            "repeated": one.now.repeated,
            "step": one.step,
        }
        for one in undo.queues
    ]
