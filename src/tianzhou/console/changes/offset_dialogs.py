"""Dialogs that change a group's offsets: a preview by queue, the confirmation, and undo."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nicegui import ui

from tianzhou.admin.progress import OffsetChange
from tianzhou.console.changes.offset_changes import (
    RecordedChange,
    Totals,
    Undo,
    UndoState,
    change_rows,
    changes_of_now,
    details_of,
    earlier_offsets,
    recorded_in,
    totals_of,
    undo_of,
    undo_rows,
    undo_states,
)
from tianzhou.console.layout import View, answer_of, table
from tianzhou.errors import ClientError, TianzhouError

AUDIT_LINES: Final = 500
"""Number of the last entries of the audit log in which an undo searches for its change."""
AT_ONCE: Final = 8
"""Maximum number of groups and topics whose offsets are read at the same time."""
WIDE: Final = "max-width: 60rem"


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A reset of the offsets of a group in a topic.

    Attributes:
        group: the group.
        topic: the topic.
        where: the destination, in English, for the audit log.
        destination: the destination, as arguments of `Groups.reset`.
    """

    group: str
    topic: str
    where: str
    destination: dict[str, Any] = field(default_factory=dict)


async def _or_notify(view: View, work: Awaitable[Any]) -> Any:
    """Return the result of a read request; None after it has failed and the visitor was notified."""
    try:
        return await work
    except (TianzhouError, ValueError, OSError) as error:
        words = view.failure(error)
        ui.notify(words, type="negative", multi_line=True, timeout=0, close_button=True)
        return None


async def plan(view: View, moves: Sequence[OffsetMove]) -> list[list[OffsetChange]]:
    """Return the changes that several resets would make now.

    Args:
        view: view of the visitor.
        moves: the resets.

    Raises:
        TianzhouError: a reset is impossible, or a broker does not answer.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(move: OffsetMove) -> list[OffsetChange]:
        async with turns:
            groups = view.console.admin.groups
            return await groups.reset(move.group, move.topic, dry_run=True, **move.destination)

    return list(await asyncio.gather(*map(one, moves)))


async def move_offsets(view: View, moves: Sequence[OffsetMove], verb: str, done: str) -> bool:
    """Preview resets, execute them when the visitor agrees, and offer to undo them.

    Args:
        view: view of the visitor.
        moves: the resets.
        verb: label of the button that agrees.
        done: key of the text for each finished reset, with the values `group`, `topic` and `queues`.

    Returns:
        Whether at least one reset succeeded.
    """
    planned: list[list[OffsetChange]] | None = await _or_notify(view, plan(view, moves))
    if planned is None or not await _agreed(view, moves, planned, verb):
        return False
    finished: list[tuple[str, str]] = []
    for move, changes in zip(moves, planned, strict=True):
        recorded = await _move(view, move, changes)
        if recorded is not None:
            text = view.text(done, group=move.group, topic=move.topic, queues=len(recorded.changes))
            finished.append((recorded.id, text))
    if finished:
        await _finished(view, finished)
    return bool(finished)


async def _move(view: View, move: OffsetMove, agreed: list[OffsetChange]) -> RecordedChange | None:
    """Move a group to the agreed offsets, and return the recorded change; None if it failed."""
    groups = view.console.admin.groups
    shown = {one.queue: one.after for one in agreed}
    # Members may have consumed while the visitor read the preview, so record the present offsets.
    again = groups.reset(move.group, move.topic, to_offsets=shown, dry_run=True, **move.destination)
    now: list[OffsetChange] | None = await _or_notify(view, again)
    if now is None:
        return None
    changes = changes_of_now(agreed, now)
    offsets = {one.queue: one.after for one in changes}
    recorded = RecordedChange(secrets.token_hex(8), move.group, move.topic, tuple(changes))
    outcome = await view.act(
        "reset offsets",
        f"{move.group} in {move.topic} to {move.where}",
        lambda: groups.reset(move.group, move.topic, to_offsets=offsets, **move.destination),
        None,
        details_of(recorded),
    )
    return recorded if outcome.done else None


def _heading(text: str) -> None:
    ui.label(text).classes("text-lg").props('role="heading" aria-level="2"')


def _show_totals(view: View, group: str, topic: str, totals: Totals) -> None:
    counts = {name: f"{getattr(totals, name):,}" for name in ("skipped", "repeated", "queues")}
    ui.label(view.text("change.totals", group=group, topic=topic, **counts))


def _preview(view: View, moves: Sequence[OffsetMove], planned: Sequence[Iterable[OffsetChange]]) -> None:
    rows = []
    for move, changes in zip(moves, planned, strict=True):
        every = list(changes)
        totals = totals_of(every)
        rows += change_rows(every, move.group)
        _show_totals(view, move.group, move.topic, totals)
        if totals.unknown:
            ui.label(view.text("change.unknown", group=move.group, count=totals.unknown)).classes("text-negative")
    names = [("broker", "broker"), ("queue", "queue"), ("before", "group.before"), ("after", "group.after")]
    names += [("skipped", "change.skipped"), ("repeated", "change.repeated")]
    if len(moves) > 1:
        names = [("group", "group"), ("topic", "topic"), *names]
    table([(name, view.text(key)) for name, key in names], rows, key="key")


async def _agreed(view: View, moves: Sequence[OffsetMove], planned: Sequence[list[OffsetChange]], verb: str) -> bool:
    """Whether the visitor agrees to resets. A reset without undo is confirmed by typing the name of the group."""
    totals = [totals_of(changes) for changes in planned]
    typed_name = next((move.group for move, one in zip(moves, totals, strict=True) if one.unknown), "")
    with ui.dialog() as dialog, ui.card().classes("w-full").style(WIDE):
        _heading(view.text("change.shown"))
        _preview(view, moves, planned)
        moved = any(one.queues for one in totals)
        if not moved:
            ui.label(view.text("change.nothing"))
        typed = _name_field(view, typed_name) if typed_name and moved else None
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("cancel"), on_click=lambda: dialog.submit(False)).props("flat autofocus")
            button = ui.button(verb, on_click=lambda: dialog.submit(True)).props("color=negative")
            if typed is not None:
                button.bind_enabled_from(typed, "value", lambda value: value == typed_name)
            button.set_visibility(moved)
    return bool(await answer_of(dialog))


def _name_field(view: View, name: str) -> ui.input:
    ui.label(view.text("confirm", name=name))
    return ui.input().props(f'outlined dense aria-label="{view.text("message.value")}"')


async def _finished(view: View, finished: Sequence[tuple[str, str]]) -> None:
    """Show the finished resets, each with a button that undoes it."""
    with ui.dialog() as dialog, ui.card().style(WIDE):
        _heading(view.text("change.done"))
        for of_change, text in finished:
            with ui.row().classes("w-full items-center justify-between"):
                ui.label(text)
                _undo_button(view, of_change)
        ui.label(view.text("change.offered")).classes("text-grey")
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("close"), on_click=dialog.close).props("flat autofocus")
    await answer_of(dialog)


def _undo_button(view: View, of_change: str) -> None:
    async def run() -> None:
        if await undo_dialog(view, of_change):
            button.disable()

    button = ui.button(view.text("undo"), icon="undo", on_click=run).props("outline")


# --- undo --------------------------------------------------------------------------------------------------------


async def undo_dialog(view: View, of_change: str) -> bool:
    """Preview the undo of a change of offsets, and execute it when the visitor agrees.

    Args:
        view: view of the visitor.
        of_change: `RecordedChange.id` of the change.

    Returns:
        Whether the change is undone.
    """
    entries = await asyncio.to_thread(view.console.audit_log.tail, AUDIT_LINES)
    found = next(((entry, one) for entry in entries if (one := recorded_in(entry)) and one.id == of_change), None)
    if found is None:
        ui.notify(view.text("undo.gone"), type="warning")
        return False
    entry, recorded = found
    state = undo_states(entries)[of_change]
    if state is not UndoState.OPEN:
        ui.notify(view.text(f"undo.reason.{state}"), type="warning", multi_line=True, timeout=0, close_button=True)
        return False
    undo: Undo | None = await _or_notify(view, _undo_now(view, recorded))
    if undo is None or not await _undo_agreed(view, recorded, undo, str(entry.get("subject", ""))):
        return False
    return await _undo(view, recorded, str(entry.get("time", "")))


async def _undo_now(view: View, recorded: RecordedChange) -> Undo:
    offsets = earlier_offsets(recorded)
    groups = view.console.admin.groups
    return undo_of(recorded, await groups.reset(recorded.group, recorded.topic, to_offsets=offsets, dry_run=True))


async def _undo_agreed(view: View, recorded: RecordedChange, undo: Undo, subject: str) -> bool:
    with ui.dialog() as dialog, ui.card().classes("w-full").style(WIDE):
        _heading(view.text("undo.of", subject=subject))
        if undo.refusals:
            ui.label(view.text("undo.refused", count=len(undo.refusals))).classes("text-negative")
        elif not undo.changes:
            ui.label(view.text("undo.nothing"))
        else:
            _show_totals(view, recorded.group, recorded.topic, totals_of(undo.changes))
            if undo.since:
                ui.label(view.text("undo.since", count=f"{undo.since:,}"))
        names = [("broker", "broker"), ("queue", "queue"), ("before", "undo.earlier"), ("after", "undo.set")]
        names += [("now", "undo.now"), ("then", "undo.then"), ("what", "undo.what")]
        rows = [{**row, "what": view.text(f"undo.step.{row['step']}")} for row in undo_rows(undo)]
        table([(name, view.text(key)) for name, key in names], rows, key="key")
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("close"), on_click=lambda: dialog.submit(False)).props("flat autofocus")
            if undo.may_run:
                ui.button(view.text("undo"), on_click=lambda: dialog.submit(True)).props("color=negative")
    return bool(await answer_of(dialog))


async def _undo(view: View, recorded: RecordedChange, time: str) -> bool:
    """Restore the earlier offsets, unless queues have moved meanwhile so that the undo would lose messages."""
    groups = view.console.admin.groups
    undo: Undo | None = await _or_notify(view, _undo_now(view, recorded))
    if undo is None:
        return False
    if not undo.may_run:
        key = "undo.refused" if undo.refusals else "undo.nothing"
        ui.notify(view.text(key, count=len(undo.refusals)), type="warning", multi_line=True, timeout=0)
        return False
    offsets = {one.queue: one.after for one in undo.changes}
    back = RecordedChange(secrets.token_hex(8), recorded.group, recorded.topic, tuple(undo.changes), recorded.id)

    async def work() -> list[OffsetChange]:
        # Another visitor may have changed the same group since the confirmation.
        entries = await asyncio.to_thread(view.console.audit_log.tail, AUDIT_LINES)
        earlier = [entry for entry in entries if entry.get("id") != back.id]
        if undo_states(earlier).get(recorded.id) is not UndoState.OPEN:
            raise ClientError("the offsets were changed again meanwhile; look at the audit log")
        return await groups.reset(recorded.group, recorded.topic, to_offsets=offsets)

    outcome = await view.act(
        "undo reset of offsets",
        f"{recorded.group} in {recorded.topic} to the offsets before {time}",
        work,
        view.text("undo.done", group=recorded.group, topic=recorded.topic),
        details_of(back),
    )
    if outcome.done:
        await view.console.watcher.measure_these((), {recorded.group})
    return outcome.done
