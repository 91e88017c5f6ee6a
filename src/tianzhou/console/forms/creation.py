"""Dialogs that create a topic or a group, and reject an existing name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

from nicegui import ui

from tianzhou.admin.groups import SYSTEM_GROUPS
from tianzhou.console.forms.values import (
    MAX_QUEUES,
    MESSAGE_TYPES,
    PERMISSIONS,
    creation_arguments,
    creation_targets,
    group_problem,
    perm_words,
    queues_problem,
    topic_problem,
    type_words,
)
from tianzhou.console.layout import MAX_SUGGESTIONS, View, answer_of
from tianzhou.console.lists import SYSTEM
from tianzhou.console.topic_list import MESSAGE_TYPE
from tianzhou.errors import AlreadyExists

T = TypeVar("T")
DEFAULT_QUEUES = 8


def queues_field(view: View, label: str, value: int) -> ui.number:
    """Return a field for a number of queues, which shows its bounds and rejects other values."""
    bounds = view.text("form.range", least=1, most=f"{MAX_QUEUES:,}")
    # Set neither `min` nor `max`: with them, the toolkit silently replaces a value out of range by a bound.
    field = ui.number(label, value=value, validation=lambda given: queues_problem(given, view.text))
    return field.props(f'dense outlined hint="{bounds}"')


def perm_field(view: View, value: int) -> ui.select:
    """Return a field for the permission of a topic."""
    options = {perm: perm_words(perm, view.text) for perm in (*PERMISSIONS, value)}
    return ui.select(options, value=value, label=view.text("topic.perm")).props("dense outlined").classes("w-44")


def type_field(view: View, value: str) -> ui.select:
    """Return a field for the message type of a topic."""
    options = {one: type_words(one, view.text) for one in (*MESSAGE_TYPES, value)}
    return ui.select(options, value=value, label=view.text("topic.accepts")).props("dense outlined").classes("w-44")


def heading(text: str) -> None:
    """Show the heading of a dialog or of a part of a form."""
    ui.label(text).classes("text-lg").props('role="heading" aria-level="2"')


async def topic_dialog(view: View, created: Callable[[], object]) -> None:
    """Open the dialog that creates a topic.

    Args:
        view: view of the visitor.
        created: called after the topic is created.
    """
    now, topics = view.console.watcher.now, view.console.admin.topics
    reserved = {one.name for one in now.topic_entries if one.kind == SYSTEM}
    with ui.dialog() as dialog, ui.card().classes("gap-3"):
        heading(view.text("topic.add"))
        name = ui.input(
            view.text("topic"), validation=lambda given: topic_problem(given, reserved, view.text)
        ).without_auto_validation()
        name.props("dense outlined autofocus").classes("w-full")
        where = ui.select(creation_targets(now.brokers, view.text), value="", label=view.text("topic.where"))
        where.props("dense outlined").classes("w-full")
        with ui.row():
            read = queues_field(view, view.text("topic.read"), DEFAULT_QUEUES)
            write = queues_field(view, view.text("topic.write"), DEFAULT_QUEUES)
        with ui.row():
            perm, kind = perm_field(view, PERMISSIONS[0]), type_field(view, "")
        ui.label(view.text("topic.numbers.words")).classes("text-sm")
        refusal = ui.row()

        async def create() -> None:
            refusal.clear()
            # Check all fields, so that each shows its own problem.
            problems = [field for field in (name, read, write) if not field.validate()]
            if problems:
                return
            topic = name.value.strip()
            numbers: dict[str, Any] = {
                "read_queue_nums": int(read.value),
                "write_queue_nums": int(write.value),
                "perm": perm.value,
            }
            attributes: dict[str, str | None] = {MESSAGE_TYPE: kind.value} if kind.value else {}
            target: dict[str, Any] = dict(creation_arguments(where.value, now.brokers))

            async def work() -> list[str]:
                return await topics.create(topic, **numbers, attributes=attributes, only_new=True, **target)

            subject = (
                f"{topic}: {', '.join(f'{key} {value}' for key, value in (numbers | attributes | target).items())}"
            )
            if await _create(view, "topic", topic, subject, work, refusal):
                dialog.close()
                created()

        _buttons(view, dialog, create)
    await answer_of(dialog)


async def group_dialog(view: View, created: Callable[[], object]) -> None:
    """Open the dialog that creates a consumer group.

    Args:
        view: view of the visitor.
        created: called after the group is created.
    """
    groups = view.console.admin.groups
    with ui.dialog() as dialog, ui.card().classes("gap-3"):
        heading(view.text("group.add"))
        name = ui.input(
            view.text("group"), validation=lambda given: group_problem(given, SYSTEM_GROUPS, view.text)
        ).without_auto_validation()
        name.props("dense outlined autofocus").classes("w-full")
        refusal = ui.row()

        async def create() -> None:
            refusal.clear()
            if not name.validate():
                return
            group = name.value.strip()
            if await _create(view, "group", group, group, lambda: groups.create(group, only_new=True), refusal):
                dialog.close()
                created()

        name.on("keydown.enter", create)
        _buttons(view, dialog, create)
    await answer_of(dialog)


async def _create(
    view: View, noun: str, name: str, subject: str, work: Callable[[], Awaitable[T]], refusal: ui.row
) -> bool:
    """Create a topic or group, and return whether it succeeded. Link to the page of an existing name."""

    async def work_or_link() -> T:
        try:
            return await work()
        except AlreadyExists:
            with refusal.classes("items-center text-negative"):
                ui.label(view.text(f"{noun}.exists", name=name)).props("role=alert")
                ui.link(view.text(f"{noun}.exists.open", name=name), f"/{noun}s/{quote(name, safe='')}")
            raise

    outcome = await view.act(f"create {noun}", subject, work_or_link, view.text(f"{noun}.created", name=name))
    if outcome.done:
        await view.console.watcher.look()
    return outcome.done


def _buttons(view: View, dialog: ui.dialog, create: Callable[[], Awaitable[None]]) -> None:
    with ui.row():
        ui.button(view.text("cancel"), on_click=dialog.close).props("flat")
        ui.button(view.text("create"), on_click=create)


async def update_dialog(view: View) -> None:
    """Open the dialog that chooses a topic and opens its settings."""
    names = view.console.watcher.now.topics
    with ui.dialog() as dialog, ui.card().classes("gap-3"):
        heading(view.text("topic.update"))
        name = ui.input(view.text("topic"), autocomplete=names[:MAX_SUGGESTIONS])
        name.props("dense outlined autofocus").classes("w-64")

        def go() -> None:
            if topic := (name.value or "").strip():
                ui.navigate.to(f"/topics/{quote(topic, safe='')}#configuration")

        name.on("keydown.enter", go)
        with ui.row():
            ui.button(view.text("cancel"), on_click=dialog.close).props("flat")
            ui.button(view.text("topic.update.open"), on_click=go)
    await answer_of(dialog)
