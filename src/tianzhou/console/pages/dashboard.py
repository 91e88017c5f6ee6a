"""Dashboard: rates, backlog and brokers, live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.console.display.live_parts import seen_text
from tianzhou.console.layout import Chart, View, live, page, table
from tianzhou.console.snapshot import ClusterSnapshot


def version_text(one: BrokerStatus) -> str:
    """Return a broker's version as commands print it: RocketMQ's version, then Tianzhou's."""
    return f"{one.version} (Tianzhou {one.tianzhou_version})" if one.tianzhou_version else one.version


def broker_rows(now: ClusterSnapshot, failure: Callable[[object], str] = str) -> list[dict[str, Any]]:
    """Return the rows of the table of brokers.

    Args:
        now: the snapshot.
        failure: returns an error's text in the visitor's language (`View.failure`).
    """
    return [
        {
            "key": f"{one.broker_name}:{one.broker_id}",
            "broker": one.broker_name,
            "id": one.broker_id,
            "role": one.role,
            "address": one.address,
            "version": version_text(one),
            "in": f"{one.put_tps:,.0f}",
            "out": f"{one.get_tps:,.0f}",
            "disk": f"{one.disk_ratio:.0%}" if one.disk_ratio >= 0 else "",
            "error": failure(one.error) if one.error else "",
        }
        for one in now.brokers
    ]


@page("/", "page.dashboard", "dashboard")
async def show(view: View) -> None:
    """Show the page."""
    watcher = view.console.watcher
    counts = ui.row().classes("w-full gap-4")
    with ui.row().classes("w-full gap-4"):
        charts = {
            name: Chart(view.text(title), {}, view.zone)
            for name, title in (("in", "messages.in"), ("out", "messages.out"), ("lag", "backlog"))
        }
    columns = [
        ("broker", view.text("broker")),
        ("role", view.text("role")),
        ("address", view.text("address")),
        ("version", view.text("version")),
        ("in", view.text("messages.in")),
        ("out", view.text("messages.out")),
        ("disk", view.text("disk")),
        ("error", view.text("broker.error")),
    ]
    brokers = table(columns, (), key="key", links={"broker": "/brokers/{value}?id={id}"})
    seen = ui.label().classes("text-sm text-grey")

    def refresh() -> None:
        now = watcher.now
        if not now.at_ms:
            seen.text = seen_text(view, now)
            return
        counts.clear()
        with counts:
            for number, key in (
                (len(now.brokers), "brokers"),
                (len(now.topics), "topics"),
                (len(now.groups), "groups"),
                (sum(now.lags.values()), "backlog"),
            ):
                with ui.card().classes("grow"):
                    ui.label(f"{number:,}").classes("text-2xl")
                    ui.label(view.text(key)).classes("text-grey")
        for name, graph in charts.items():
            graph.show({name: watcher.series.of(name)})
        brokers.rows = broker_rows(now, view.failure)
        seen.text = seen_text(view, now)

    refresh()
    live(view, refresh)
