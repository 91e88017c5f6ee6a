"""Dashboard: rates, backlog and brokers, live."""

from __future__ import annotations

import datetime as dt
from typing import Any

from nicegui import ui

from tianzhou.console.layout import View, live, page, table
from tianzhou.console.snapshot import Point, Snapshot


def chart_options(title: str, lines: dict[str, list[Point]]) -> dict[str, Any]:
    """Options of a line chart over time.

    Args:
        title: of the chart.
        lines: points by the name of their line.
    """
    return {
        "title": {"text": title, "textStyle": {"fontSize": 14}},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 60, "right": 16, "top": 40, "bottom": 24},
        "xAxis": {"type": "time"},
        "yAxis": {"type": "value", "min": 0},
        "animation": False,
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                "data": [[point.at_ms, point.value] for point in points],
            }
            for name, points in lines.items()
        ],
    }


def broker_rows(now: Snapshot) -> list[dict[str, Any]]:
    """Rows of the table of brokers."""
    return [
        {
            "key": f"{one.broker_name}:{one.broker_id}",
            "broker": one.broker_name,
            "role": one.role,
            "address": one.address,
            "version": one.tianzhou_version or one.version,
            "in": f"{one.put_tps:,.0f}",
            "out": f"{one.get_tps:,.0f}",
            "disk": f"{one.disk_ratio:.0%}" if one.disk_ratio >= 0 else "",
            "error": one.error or "",
        }
        for one in now.brokers
    ]


@page("/", "page.dashboard", "dashboard")
async def show(view: View) -> None:
    """Fill the page."""
    watcher = view.console.watcher
    counts = ui.row().classes("w-full gap-4")
    with ui.row().classes("w-full gap-4"):
        charts = {
            name: ui.echart(chart_options(view.text(title), {})).classes("h-64 grow basis-80")
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
        ("error", ""),
    ]
    brokers = table(columns, (), key="key")
    seen = ui.label().classes("text-sm text-grey")

    def refresh() -> None:
        now = watcher.now
        if not now.at_ms:
            seen.text = view.text("not.yet")
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
        for name, chart in charts.items():
            title = chart.options["title"]["text"]
            chart.options.clear()
            chart.options.update(chart_options(title, {title: watcher.series.of(name)}))
            chart.update()
        brokers.rows = broker_rows(now)
        time = dt.datetime.fromtimestamp(now.at_ms / 1000).astimezone().strftime("%H:%M:%S")
        seen.text = view.text("seen.at", time=time)

    refresh()
    live(refresh)
