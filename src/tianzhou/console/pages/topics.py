"""Topics: the list with figures and operations, and the buttons that add and update a topic."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from tianzhou.console.changes.topic_lag import lag_dialog
from tianzhou.console.display.live_parts import measured_text
from tianzhou.console.forms.creation import topic_dialog, update_dialog
from tianzhou.console.forms.offsets import reset_dialog, skip_dialog
from tianzhou.console.layout import View, delete_named, page
from tianzhou.console.lists import NORMAL, ListPage, ListState, counts_of, cut
from tianzhou.console.rows_table import NUMBER, RATE, ListSource, Operation, RowsList, TableColumn
from tianzhou.console.topic_list import KINDS, TopicEntry, topic_keys, topic_row


def columns(view: View) -> list[TableColumn]:
    """Return the columns of the list."""
    return [
        TableColumn("topic", view.text("topic"), href="/topics/{key}"),
        TableColumn("type", view.text("topic.type")),
        TableColumn("queues", view.text("queues"), NUMBER),
        TableColumn("messages", view.text("topic.messages"), NUMBER),
        TableColumn("in", view.text("messages.in"), RATE),
        TableColumn("groups", view.text("topic.consumers"), NUMBER),
        TableColumn("last", view.text("topic.stored"), NUMBER),
    ]


def operations(view: View) -> dict[str, Operation]:
    """Return the entries of a topic's menu by name."""
    return {
        "status": Operation(view.text("topic.do.status"), "query_stats", "/topics/{key}#status"),
        "route": Operation(view.text("topic.do.route"), "alt_route", "/topics/{key}#route"),
        "consumers": Operation(view.text("topic.do.consumers"), "groups", "/topics/{key}#consumers"),
        "messages": Operation(view.text("topic.do.messages"), "mail", "/messages?topic={key}"),
        "lag": Operation(view.text("topic.do.lag"), "hourglass_bottom"),
        "configuration": Operation(
            view.text("topic.do.configuration"), "settings", "/topics/{key}#configuration", is_parted=True
        ),
        "send": Operation(view.text("topic.do.send"), "send", "/topics/{key}#send"),
        "reset": Operation(view.text("group.reset"), "history", is_parted=True),
        "skip": Operation(view.text("offsets.skip"), "fast_forward"),
        "delete": Operation(view.text("delete"), "delete", is_grave=True, is_parted=True),
    }


def source(view: View) -> ListSource:
    """Return the source of the list: the last snapshot and its figures."""
    watcher, may_change = view.console.watcher, view.visitor.may_change

    def page_of(state: ListState) -> ListPage:
        now = watcher.now
        found = cut(now.topic_entries, state, topic_keys(watcher.topics, now.groups_by_topic, view.text))
        watcher.shown_topics.add((one.name for one in found.entries), time.monotonic())
        return found

    def row(entry: TopicEntry) -> dict[str, Any]:
        groups = watcher.now.groups_by_topic.get(entry.name, 0)
        now_ms = time.time_ns() // 1_000_000
        figures = watcher.topics.get(entry.name)
        found = topic_row(entry, figures, groups, view.text, now_ms, may_change)
        return {**found, "last_at": view.time(found["last_ms"]), "measured_at": measured_text(view, figures)}

    def counts() -> dict[str, int]:
        return counts_of(watcher.now.topic_entries)

    return ListSource(KINDS, NORMAL, columns(view), operations(view), page_of, row, counts, "topic")


@page("/topics", "page.topics", "topic")
async def show(view: View) -> None:
    """Show the page."""
    watcher, topics = view.console.watcher, view.console.admin.topics

    async def choose(topic: str, operation: str) -> None:
        if operation == "delete":
            if await delete_named(view, "topic", topic, topics.delete):
                found.refresh()
            return
        if operation == "lag":
            await lag_dialog(view, topic)
            return
        groups = [name for name in await topics.groups(topic) if name in watcher.groups]
        if operation == "reset":
            await reset_dialog(view, [(group, topic) for group in groups], topic)
        elif operation == "skip":
            await skip_dialog(view, [(group, topic) for group in groups], topic)
        found.refresh()

    found = RowsList(view, source(view), choose)
    if not view.visitor.may_change:
        ui.label(view.text("viewer"))
        return
    with ui.row().classes("items-center"):
        ui.button(view.text("topic.add"), icon="add", on_click=lambda: topic_dialog(view, found.refresh))
        ui.button(view.text("topic.update"), icon="edit", on_click=lambda: update_dialog(view)).props("outline")
