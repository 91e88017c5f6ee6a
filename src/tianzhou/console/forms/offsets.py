"""Forms that move a group's offsets: reset to a chosen position, and skip unconsumed messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from tianzhou.console.changes.offset_dialogs import OffsetMove, move_offsets
from tianzhou.console.display.zones import Zone
from tianzhou.console.layout import View, answer_of

DESTINATIONS: Final = ("earliest", "latest", "time", "offset")
Pair = tuple[str, str]
"""A group, and a topic that the group consumes."""


def destination(kind: str, value: str, zone: Zone) -> dict[str, Any]:
    """Return the arguments of `Groups.reset` for a destination of the form.

    Args:
        kind: one of `DESTINATIONS`.
        value: time such as `2026-01-31T12:00` for `time`, a number for `offset`; otherwise ignored.
        zone: time zone of the value.

    Raises:
        ValueError: the value is no time, or no offset.
    """
    if kind == "time":
        return {"to_time_ms": zone.input_ms(value or "-", 0)}
    if kind == "offset":
        return {"to_offset": int(value)}
    return {f"to_{kind}": True}


def reset_form(view: View, choices: Sequence[str], label: str, fixed: str, *, is_of_group: bool) -> None:
    """Show a form that resets the offsets of one group in one topic, after a preview and a confirmation.

    Args:
        view: view of the visitor.
        choices: topics of the group, or groups of the topic.
        label: label of the field for the choice.
        fixed: the group or the topic whose page shows the form.
        is_of_group: whether `fixed` is a group. The visitor may then type a topic that the group has not consumed yet.
    """
    with ui.row().classes("items-center w-full"):
        mode: Any = "add-unique" if is_of_group else None
        other = ui.select(list(choices), value=choices[0] if choices else None, label=label, new_value_mode=mode)
        other.props("use-input" if is_of_group else "").classes("w-64")
        options = {kind: view.text(f"group.to.{kind}") for kind in DESTINATIONS}
        kind = ui.select(options, value="latest", label=view.text("group.to")).classes("w-64")
        value = ui.input("2026-01-31T12:00").bind_visibility_from(kind, "value", lambda now: now in ("time", "offset"))
        pickers = {"time": "type=datetime-local step=1", "offset": "type=text"}
        kind.on_value_change(lambda event: value.props(pickers.get(event.value, "")))

        async def run() -> None:
            chosen, where = other.value or "", f"{kind.value} {value.value or ''}".strip()
            group, topic = (fixed, chosen) if is_of_group else (chosen, fixed)
            try:
                wanted = destination(kind.value, value.value or "", view.zone)
            except ValueError as error:
                ui.notify(view.failure(error), type="negative", multi_line=True, timeout=0, close_button=True)
                return
            move = OffsetMove(group, topic, where, wanted)
            await move_offsets(view, [move], view.text("group.reset"), "group.moved")

        ui.button(view.text("group.reset"), on_click=run)


def _choices(pairs: Sequence[Pair], fixed: str) -> tuple[list[str], bool]:
    """Return the other name of each pair, and whether `fixed` is a group."""
    is_of_group = any(group == fixed for group, _ in pairs) and not any(topic == fixed for _, topic in pairs)
    return [topic if is_of_group else group for group, topic in pairs], is_of_group


async def reset_dialog(view: View, pairs: Sequence[Pair], fixed: str) -> None:
    """Show the form that resets offsets, and wait until the visitor closes it.

    Args:
        view: view of the visitor.
        pairs: groups and topics to choose from.
        fixed: the group or the topic that all pairs share.
    """
    if not pairs:
        ui.notify(view.text("offsets.none", name=fixed), type="warning")
        return
    choices, is_of_group = _choices(pairs, fixed)
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 60rem"):
        ui.label(view.text("offsets.reset.of", name=fixed)).classes("text-lg").props('role="heading" aria-level="2"')
        reset_form(view, choices, view.text("topic" if is_of_group else "group"), fixed, is_of_group=is_of_group)
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("close"), on_click=dialog.close).props("flat")
    await answer_of(dialog)
    await view.console.watcher.measure_these((), {group for group, _ in pairs})


async def skip_dialog(view: View, pairs: Sequence[Pair], fixed: str) -> None:
    """Let a visitor choose topics or groups, and skip all their unconsumed messages after a preview.

    Args:
        view: view of the visitor.
        pairs: groups and topics to choose from.
        fixed: the group or the topic that all pairs share.
    """
    if not pairs:
        ui.notify(view.text("offsets.none", name=fixed), type="warning")
        return
    watcher = view.console.watcher
    await watcher.measure_these((), {group for group, _ in pairs})
    choices, is_of_group = _choices(pairs, fixed)
    unread = [watcher.groups[group].lags.get(topic, 0) if group in watcher.groups else 0 for group, topic in pairs]
    options = {
        name: view.text("offsets.unread", name=name, count=f"{count:,}")
        for name, count in zip(choices, unread, strict=True)
    }
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 36rem"):
        ui.label(view.text("offsets.skip.of", name=fixed)).classes("text-lg").props('role="heading" aria-level="2"')
        ui.label(view.text("offsets.skip.words"))
        label = view.text("topics" if is_of_group else "groups")
        first = choices if len(choices) == 1 else []
        chosen = ui.select(options, value=first, label=label, multiple=True).props("outlined dense").classes("w-full")
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("cancel"), on_click=lambda: dialog.submit(None)).props("flat autofocus")
            ui.button(view.text("offsets.skip"), on_click=lambda: dialog.submit(list(chosen.value))).props(
                "color=negative"
            ).bind_enabled_from(chosen, "value", bool)
    names = await answer_of(dialog)
    moves = [
        OffsetMove(group, topic, "latest", {"to_latest": True})
        for group, topic in pairs
        if names and (topic if is_of_group else group) in names
    ]
    if moves and await move_offsets(view, moves, view.text("offsets.skip"), "offsets.skipped"):
        await watcher.measure_these((), {group for group, _ in pairs})
