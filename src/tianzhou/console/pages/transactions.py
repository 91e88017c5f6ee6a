"""Transactions: undecided half messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from nicegui import ui

from tianzhou.admin import OpenTransactions
from tianzhou.console.layout import View, missing_brokers, page, section, table

LINKS: Final = {"topic": "/topics/{value}", "id": "/half?broker={broker}&offset={offset}"}


def half_rows(found: Iterable[OpenTransactions], now_ms: int, when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table, the oldest first; `when` returns a time as text (`View.time`)."""
    halves = sorted((half for one in found for half in one.halves), key=lambda half: half.born_ms)
    return [
        {
            "key": f"{half.broker_name}:{half.queue_offset}",
            "offset": half.queue_offset,
            "broker": half.broker_name,
            "topic": half.topic,
            "group": half.producer_group,
            "id": half.msg_id,
            "born": when(half.born_ms),
            "age": max(0, now_ms - half.born_ms) // 1000,
            "checks": half.checks,
            "size": half.body_bytes,
        }
        for half in halves
    ]


def by_topic(found: Iterable[OpenTransactions]) -> list[dict[str, Any]]:
    """Return the number of open half messages by broker and topic, as the broker's metrics count them."""
    counts: dict[tuple[str, str], int] = {}
    for one in found:
        for half in one.halves:
            counts[half.broker_name, half.topic] = counts.get((half.broker_name, half.topic), 0) + 1
    return [
        {"key": f"{broker}:{topic}", "broker": broker, "topic": topic, "count": count}
        for (broker, topic), count in sorted(counts.items())
    ]


@page("/transactions", "page.transactions", "sync_alt")
async def show(view: View) -> None:
    """Show the page."""
    failures: dict[str, str] = {}
    found = await view.console.admin.transactions.open(failures=failures)
    missing_brokers(view, failures)
    total = sum(len(one.halves) for one in found)
    for one in found:
        if one.unread:
            ui.label(view.text("half.unread", broker=one.broker_name, count=one.unread)).classes("text-warning")
    ui.label(view.text("half.words"))
    if not total:
        if not failures:
            ui.label(view.text("half.none"))
        return
    with section(view.text("half.count")):
        columns = [(name, view.text(name)) for name in ("broker", "topic")]
        table([*columns, ("count", view.text("half.open"))], by_topic(found), key="key")
    with section(view.text("half.open")):
        names = ("broker", "topic", "half.group", "message.id", "half.born", "half.age", "half.checks", "message.size")
        columns = [(name.rpartition(".")[2], view.text(name)) for name in names]
        rows = half_rows(found, time.time_ns() // 1_000_000, view.time)
        table(columns, rows, key="key", links=LINKS, filter_text=view.text("filter"))
