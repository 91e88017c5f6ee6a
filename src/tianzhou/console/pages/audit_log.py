"""The audit log: changes through the console, with their visitors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui
from nicegui.events import GenericEventArguments

from tianzhou.console.changes.offset_changes import UndoState, last_entries, undo_states
from tianzhou.console.changes.offset_dialogs import AUDIT_LINES, undo_dialog
from tianzhou.console.layout import View, page, table
from tianzhou.console.texts.audit import ACTIONS, OUTCOMES
from tianzhou.escaping import escaped

SHOWN: Final = AUDIT_LINES
UNDO_CELL: Final = """
<q-td :props="props">
  <q-btn v-if="props.row.undo" outline dense no-caps color="primary" icon="undo" label="LABEL"
    @click="() => $parent.$emit('undo', props.row.undo)" />
  <span v-else class="text-grey">{{ props.row.state }}</span>
</q-td>
"""
"""Cell of a change of offsets: its undo button, or why there is none. The page replaces `LABEL` by its text."""


def entry_in_chinese(entry: Mapping[str, Any], view: View) -> dict[str, Any]:
    """Return an entry for a Chinese page. The log itself is in English for all visitors."""
    outcome, _, why = str(entry.get("outcome", "")).partition(": ")
    words = OUTCOMES.get(outcome, outcome) + (f"：{view.failure(why)}" if why else "")
    action = str(entry.get("action", ""))
    return {**entry, "action": ACTIONS.get(action, action), "outcome": words}


def undo_cells(entries: Sequence[Mapping[str, Any]], view: View) -> dict[int, dict[str, str]]:
    """Return the cells of changes of offsets by the number of their entry: the id for an undo, or why none is possible.

    Args:
        entries: entries of the log, the newest first.
        view: view of the visitor.
    """
    states = undo_states(entries)
    return {
        number: {"undo": one.id} if state is UndoState.OPEN else {"state": view.text(f"undo.state.{state}")}
        for number, one in last_entries(entries).items()
        for state in (states[one.id],)
    }


@page("/audit", "page.audit", "history")
async def show(view: View) -> None:
    """Show the page."""
    entries = await asyncio.to_thread(view.console.audit_log.tail, SHOWN)
    cells = undo_cells(entries, view)
    names = ["time", "who", "from", "action", "subject", "outcome"]
    shown = [{name: entry.get(name, "") for name in names} for entry in entries]
    if view.language == "zh":
        shown = [entry_in_chinese(entry, view) for entry in shown]
    rows = [
        {
            "key": number,
            **{name: escaped(str(value)) for name, value in entry.items()},
            "time": view.zone.text_of_iso(str(entry["time"])),
            **cells.get(number, {}),
        }
        for number, entry in enumerate(shown)
    ]
    columns = [(name, view.text(name)) for name in names]
    may_undo = view.visitor.may_change and bool(cells)
    found = table(
        [*columns, ("undo", "")] if may_undo else columns,
        rows,
        key="key",
        filter_text=view.text("filter"),
        kept_for=view,
    )
    if may_undo:
        _undo_buttons(view, found)


def _undo_buttons(view: View, found: ui.table) -> None:
    found.add_slot("body-cell-undo", UNDO_CELL.replace("LABEL", view.text("undo")))

    async def undo(event: GenericEventArguments) -> None:
        # `undo_dialog` finds the change in the log. The browser sends only its id.
        if await undo_dialog(view, str(event.args)):
            ui.navigate.reload()

    found.on("undo", undo)
