"""The time zone of all times that a visitor reads and types."""

from __future__ import annotations

import time
from urllib.parse import urlencode

from nicegui import ui

from tianzhou.console.display.zones import zone_names
from tianzhou.console.layout import View, page
from tianzhou.console.login import local_path


@page("/time-zone", "page.zone")
async def show(view: View) -> None:
    """Show the page."""
    zone, to = view.zone, local_path(view.query.get("to", "/"))
    now_ms = time.time_ns() // 1_000_000
    ui.label(view.text("zone.words", name=zone.name, offset=zone.offset_text(now_ms), now=zone.text(now_ms)))
    names = zone_names()
    with ui.row().classes("items-center"):
        chosen = ui.select(
            names, value=zone.name if zone.name in names else None, label=view.text("zone"), with_input=True
        )
        chosen.props("outlined dense").classes("w-80")

        def use(name: str) -> None:
            ui.navigate.to("/zone?" + urlencode({"name": name, "to": to}))

        ui.button(view.text("zone.use"), on_click=lambda: use(chosen.value or ""))
        ui.button(view.text("zone.browser"), on_click=lambda: use("")).props("outline")
