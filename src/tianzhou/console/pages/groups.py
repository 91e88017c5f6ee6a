"""Consumer groups: the list with what each has not consumed, and how to make one."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from tianzhou.console.layout import View, live, page, table
from tianzhou.console.snapshot import Snapshot


def group_rows(now: Snapshot) -> list[dict[str, Any]]:
    """Rows of the table of groups; a lag that nobody has asked for yet is empty."""
    return [{"group": name, "lag": now.lags.get(name, "")} for name in now.groups]


@page("/groups", "page.groups", "groups")
async def show(view: View) -> None:
    """Fill the page."""
    watcher = view.console.watcher
    found = table(
        [("group", view.text("group")), ("lag", view.text("group.lag"))],
        group_rows(watcher.now),
        key="group",
        links={"group": "/groups/{value}"},
        filter_text=view.text("filter"),
        kept_for=view,
    )

    def refresh() -> None:
        found.rows = group_rows(watcher.now)

    live(refresh)
    if not view.visitor.may_change:
        ui.label(view.text("viewer"))
        return
    with ui.row().classes("items-center"):
        name = ui.input(view.text("group")).props("dense outlined")

        async def create() -> None:
            group = name.value.strip()
            outcome = await view.act(
                "create group",
                group,
                lambda: view.console.admin.groups.create(group),
                view.text("group.created", name=group),
            )
            if outcome.done:
                await watcher.look()
                refresh()

        ui.button(view.text("create"), on_click=create)
