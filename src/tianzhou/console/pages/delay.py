"""Delayed messages: the number of waiting messages per level, and the due times of the next ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from nicegui import ui

from tianzhou.admin import DelayLevel
from tianzhou.console.layout import View, missing_brokers, page, section, table

NEXT: Final = 200
"""Maximum number of messages in the list of the next due messages."""
BUCKETS: Final = (
    (0, "0"), (1_000, "1 s"), (10_000, "10 s"), (30_000, "30 s"), (60_000, "1 min"), (300_000, "5 min"),
    (600_000, "10 min"), (1_800_000, "30 min"), (3_600_000, "1 h"), (7_200_000, "2 h"),
)  # fmt: skip
"""Upper ends of the histogram's bars: ms from now, and label."""


def span(milliseconds: int) -> str:
    """Return a time span in the form of delay levels, such as `30s`, `10m` or `2h`."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def level_rows(levels: Iterable[DelayLevel], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of levels; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": f"{one.broker_name}:{one.level}",
            "broker": one.broker_name,
            "level": one.level,
            "delay": span(one.delay_ms),
            "waiting": one.waiting,
            "next": when(one.next[0].due_ms) if one.next else "",
        }
        for one in levels
    ]


def due_rows(levels: Iterable[DelayLevel], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of the next due messages; `when` returns a time as text (`View.time`)."""
    due = sorted(((one, due) for one in levels for due in one.next), key=lambda pair: pair[1].due_ms)
    return [
        {
            "key": f"{level.broker_name}:{level.level}:{one.queue_offset}",
            "due": when(one.due_ms),
            "topic": one.topic,
            "id": one.msg_id,
            "offset": one.queue_offset,
            "broker": level.broker_name,
            "level": level.level,
        }
        for level, one in due[:NEXT]
    ]


def histogram(levels: Iterable[DelayLevel], now_ms: int) -> list[tuple[str, int]]:
    """Return the number of read messages that are due within each bar of `BUCKETS`, and of the later ones.

    Args:
        levels: levels with their next messages.
        now_ms: the time now, in ms since 1970.
    """
    counts = [0] * (len(BUCKETS) + 1)
    for one in levels:
        for due in one.next:
            left = due.due_ms - now_ms
            counts[next((at for at, (end, _) in enumerate(BUCKETS) if left <= end), len(BUCKETS))] += 1
    labels = [f"≤ {label}" for _, label in BUCKETS] + [f"> {BUCKETS[-1][1]}"]
    return list(zip(labels, counts, strict=True))


def bars(values: list[tuple[str, int]]) -> dict[str, Any]:
    """Return the options of a bar chart."""
    return {
        "animation": False,
        "grid": {"left": 48, "right": 16, "top": 16, "bottom": 24},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "category", "data": [label for label, _ in values]},
        "yAxis": {"type": "value", "minInterval": 1},
        "series": [{"type": "bar", "data": [count for _, count in values], "itemStyle": {"color": "#1f5f8b"}}],
    }


@page("/delay", "page.delay", "schedule")
async def show(view: View) -> None:
    """Show the page."""
    failures: dict[str, str] = {}
    levels = await view.console.admin.delays.levels(failures)
    missing_brokers(view, failures)
    waiting = sum(one.waiting for one in levels)
    read = sum(len(one.next) for one in levels)
    ui.label(view.text("delay.waiting", count=waiting))
    if waiting:
        with section(view.text("delay.when")):
            ui.echart(bars(histogram(levels, time.time_ns() // 1_000_000))).classes("w-full h-64")
            if read < waiting:
                ui.label(view.text("delay.read", read=read, count=waiting))
        with section(view.text("delay.next")):
            names = ("delay.due", "topic", "message.id", "broker", "delay.level")
            columns = [(name.rpartition(".")[2], view.text(name)) for name in names]
            table(
                columns,
                due_rows(levels, view.time),
                key="key",
                links={"topic": "/topics/{value}", "id": "/delayed?broker={broker}&level={level}&offset={offset}"},
                filter_text=view.text("filter"),
            )
    with section(view.text("delay.levels")):
        names = ("broker", "delay.level", "delay.delay", "delay.count", "delay.first")
        keys = ("broker", "level", "delay", "waiting", "next")
        table(
            [(key, view.text(name)) for key, name in zip(keys, names, strict=True)],
            level_rows(levels, view.time),
            key="key",
        )
