"""Consumer groups: the list with figures and operations, and the button that adds a group."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from tianzhou.console.display.live_parts import measured_text
from tianzhou.console.forms.creation import group_dialog
from tianzhou.console.forms.offsets import reset_dialog, skip_dialog
from tianzhou.console.group_list import KINDS, GroupEntry, group_keys, group_row
from tianzhou.console.layout import View, delete_named, page
from tianzhou.console.lists import NORMAL, ListPage, ListState, counts_of, cut
from tianzhou.console.rows_table import NUMBER, RATE, ListSource, Operation, RowsList, TableColumn
from tianzhou.model.names import RETRY_PREFIX


def columns(view: View) -> list[TableColumn]:
    """Return the columns of the list."""
    return [
        TableColumn("group", view.text("group"), href="/groups/{key}"),
        TableColumn("kind", view.text("group.kind")),
        TableColumn("members", view.text("group.members"), NUMBER),
        TableColumn("topics", view.text("topics"), NUMBER),
        TableColumn("lag", view.text("group.lag"), NUMBER),
        TableColumn("oldest", view.text("group.oldest"), NUMBER),
        TableColumn("out", view.text("messages.out"), RATE),
    ]


def operations(view: View) -> dict[str, Operation]:
    """Return the entries of a group's menu by name."""
    return {
        "status": Operation(view.text("group.progress"), "query_stats", "/groups/{key}#status"),
        "members": Operation(view.text("group.members"), "groups", "/groups/{key}#members"),
        "dead": Operation(view.text("page.dead_letters"), "unsubscribe", "/dead-letters?group={key}"),
        "doctor": Operation(view.text("page.doctor"), "healing", "/doctor?group={key}"),
        "configuration": Operation(
            view.text("group.settings"), "settings", "/groups/{key}#configuration", is_parted=True
        ),
        "reset": Operation(view.text("group.reset"), "history", is_parted=True),
        "skip": Operation(view.text("offsets.skip"), "fast_forward"),
        "delete": Operation(view.text("delete"), "delete", is_grave=True, is_parted=True),
    }


def source(view: View) -> ListSource:
    """Return the source of the list: the last snapshot and its figures."""
    watcher, may_change = view.console.watcher, view.visitor.may_change

    def page_of(state: ListState) -> ListPage:
        found = cut(watcher.now.group_entries, state, group_keys(watcher.groups, view.text))
        watcher.shown_groups.add((one.name for one in found.entries), time.monotonic())
        return found

    def row(entry: GroupEntry) -> dict[str, Any]:
        now_ms = time.time_ns() // 1_000_000
        figures = watcher.groups.get(entry.name)
        found = group_row(entry, figures, view.text, now_ms, may_change)
        return {**found, "oldest_at": view.time(found["oldest_ms"]), "measured_at": measured_text(view, figures)}

    def counts() -> dict[str, int]:
        return counts_of(watcher.now.group_entries)

    return ListSource(KINDS, NORMAL, columns(view), operations(view), page_of, row, counts, "group")


@page("/groups", "page.groups", "groups")
async def show(view: View) -> None:
    """Show the page."""
    groups = view.console.admin.groups

    async def choose(group: str, operation: str) -> None:
        if operation == "delete":
            if await delete_named(view, "group", group, groups.delete):
                found.refresh()
            return
        progress = await groups.lag(group)
        topics = sorted({one.queue.topic for one in progress.queues if not one.queue.topic.startswith(RETRY_PREFIX)})
        if operation == "reset":
            await reset_dialog(view, [(group, topic) for topic in topics], group)
        elif operation == "skip":
            await skip_dialog(view, [(group, topic) for topic in topics], group)
        found.refresh()

    found = RowsList(view, source(view), choose)
    if not view.visitor.may_change:
        ui.label(view.text("viewer"))
        return
    ui.button(view.text("group.add"), icon="add", on_click=lambda: group_dialog(view, found.refresh))
