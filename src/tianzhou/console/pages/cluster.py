"""The cluster: all broker processes with role, rates, disk and replication, failing tasks, rates of the last hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nicegui import ui

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.console.display.live_parts import seen_text
from tianzhou.console.layout import Chart, View, live, page, section, table
from tianzhou.console.pages.dashboard import broker_rows
from tianzhou.console.snapshot import ClusterSnapshot, Watcher

MOST_LINES: Final = 20
"""Maximum number of brokers in a chart."""
OF_PROCESSES: Final = (
    "broker", "id", "role", "cluster", "address", "version", "messages.in", "messages.out", "disk", "cluster.since",
    "cluster.lag", "cluster.troubles",
)  # fmt: skip
OF_TROUBLES: Final = ("broker", "cluster.task", "cluster.why", "cluster.count", "cluster.since")


def since_ms(one: BrokerStatus) -> int:
    """Return the start time of a broker in ms; 0 when it does not report it."""
    text = one.runtime.get("bootTimestamp", "")
    return int(text) if text.isdecimal() else 0


def lag_text(one: BrokerStatus) -> str:
    """Return a slave's lag as text; empty for masters, and when the lag is unknown."""
    if one.lag is None:
        return ""
    if not one.lag.lag_bytes:
        return "0"
    about = "" if one.lag.messages is None else f" (~{one.lag.messages:,})"
    return f"{one.lag.lag_bytes:,} B{about}"


def process_rows(
    now: ClusterSnapshot, when: Callable[[int], str], failure: Callable[[object], str] = str
) -> list[dict[str, Any]]:
    """Return the rows of the table of broker processes; `when` is `View.time`, for `failure` see `broker_rows`."""
    return [
        {
            **row,
            "cluster": one.cluster,
            "since": when(since_ms(one)),
            "lag": lag_text(one),
            "troubles": len(one.troubles) or "",
        }
        for one, row in zip(now.brokers, broker_rows(now, failure), strict=True)
    ]


def trouble_rows(
    now: ClusterSnapshot, when: Callable[[int], str], failure: Callable[[object], str] = str
) -> list[dict[str, Any]]:
    """Return the rows of the table of failing tasks; for the arguments see `process_rows`."""
    return [
        {
            "key": f"{one.broker_name}:{one.broker_id}:{trouble.task}",
            "broker": one.broker_name,
            "task": trouble.task,
            "why": failure(trouble.why),
            "count": trouble.count,
            "since": when(trouble.since_ms),
        }
        for one in now.brokers
        for trouble in one.troubles
    ]


def rates(watcher: Watcher, way: str) -> dict[str, Any]:
    """Return the rates of all brokers over the last hour.

    Args:
        watcher: source of the rates.
        way: `in` or `out`.
    """
    names = sorted({one.broker_name for one in watcher.now.brokers})[:MOST_LINES]
    return {name: watcher.series.of(f"{way}:{name}") for name in names}


@page("/cluster", "page.cluster", "hub")
async def show(view: View) -> None:
    """Show the page."""
    watcher = view.console.watcher
    with section(view.text("brokers")):
        brokers = table(
            [
                *((name.rpartition(".")[2], view.text(name)) for name in OF_PROCESSES),
                ("error", view.text("broker.error")),
            ],
            process_rows(watcher.now, view.time, view.failure),
            key="key",
            links={"broker": "/brokers/{value}?id={id}"},
            filter_text=view.text("filter"),
            kept_for=view,
        )
    troubles = section(view.text("cluster.failing"))
    with troubles:
        failing = table([(name.rpartition(".")[2], view.text(name)) for name in OF_TROUBLES], (), key="key")
    with section(view.text("cluster.rates")), ui.row().classes("w-full gap-4"):
        charts = {way: Chart(view.text(f"messages.{way}"), rates(watcher, way), view.zone) for way in ("in", "out")}
    seen = ui.label().classes("text-sm text-grey")

    def refresh() -> None:
        now = watcher.now
        brokers.rows = process_rows(now, view.time, view.failure)
        failing.rows = trouble_rows(now, view.time, view.failure)
        troubles.set_visibility(bool(failing.rows))
        for way, graph in charts.items():
            graph.show(rates(watcher, way))
        seen.text = seen_text(view, now)

    refresh()
    live(view, refresh)
