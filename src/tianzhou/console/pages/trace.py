"""Trace of a message: sending, storing and each consumption, with time, duration and result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from tianzhou.client.tracing.trace_reading import TraceKind, TraceRecord
from tianzhou.console.layout import MAX_SUGGESTIONS, View, missing_brokers, page, section, table
from tianzhou.errors import TianzhouError
from tianzhou.model import MessageExt
from tianzhou.model.names import TRACE_TOPIC


def steps(records: Sequence[TraceRecord], stored_ms: int = 0, stored_at: str = "") -> list[TraceRecord]:
    """Return the trace's steps to display. A finished call replaces its start record. Storing is a step of its own.

    Args:
        records: records by time, from `Messages.trace`.
        stored_ms: time when the broker stored the message, in ms; 0 when it is unknown.
        stored_at: name of the broker.
    """
    ended = {record.request_id for record in records if record.kind is TraceKind.CONSUMED}
    found = [one for one in records if not (one.kind is TraceKind.CONSUMING and one.request_id in ended)]
    if stored_ms and records:
        found.append(
            TraceRecord(TraceKind.SENT, records[0].msg_id, stored_ms, stored_at, success=True, detail="stored")
        )
    return sorted(found, key=lambda one: one.timestamp_ms)


def kind_key(step: TraceRecord) -> str:
    """Return the key of a step's text."""
    return "trace.stored" if step.kind is TraceKind.SENT and step.detail == "stored" else f"trace.{step.kind}"


def step_rows(view: View, found: Sequence[TraceRecord]) -> list[dict[str, Any]]:
    """Return the rows of the table of steps."""
    results = {True: view.text("trace.ok"), False: view.text("trace.failed"), None: ""}
    return [
        {
            "key": number,
            "time": view.zone.exact_text(one.timestamp_ms),
            "step": view.text(kind_key(one)),
            "group": one.group,
            "cost": one.cost_ms,
            "result": results[one.success],
            "retries": one.retries or "",
            "detail": "" if one.detail == "stored" else one.detail,
        }
        for number, one in enumerate(found)
    ]


def timeline(found: Sequence[TraceRecord], labels: Sequence[str]) -> dict[str, Any]:
    """Return the options of a chart with one bar per step, from its begin to its end.

    Args:
        found: the steps by time.
        labels: text of each step.
    """
    begin_ms = min((one.timestamp_ms for one in found if one.timestamp_ms), default=0)
    starts = [max(0, one.timestamp_ms - begin_ms) for one in found]
    costs = [
        {"value": max(one.cost_ms, 1), "itemStyle": {"color": "#c10015" if one.success is False else "#1f5f8b"}}
        for one in found
    ]
    return {
        "animation": False,
        "grid": {"left": 8, "right": 32, "top": 8, "bottom": 24, "containLabel": True},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {"type": "value", "name": "ms"},
        "yAxis": {"type": "category", "data": list(labels), "inverse": True},
        "series": [
            {"type": "bar", "stack": "time", "data": starts, "itemStyle": {"color": "transparent"}, "silent": True},
            {"type": "bar", "stack": "time", "data": costs, "barMinHeight": 3, "barMaxWidth": 22},
        ],
    }


@page("/trace", "page.trace", "timeline")
async def show(view: View) -> None:
    """Show the page."""
    query = view.query
    msg_id, topic = query.get("id", "").strip(), query.get("topic", "").strip()
    trace_topic = query.get("trace", "").strip() or TRACE_TOPIC
    _form(view, topic, msg_id, trace_topic)
    if not msg_id:
        ui.label(view.text("trace.choose"))
        return
    failures: dict[str, str] = {}
    message = await _message(view, topic, msg_id, failures)
    records = await view.console.admin.messages.trace(
        message.msg_id if message is not None else msg_id, trace_topic=trace_topic, failures=failures
    )
    missing_brokers(view, failures)
    if not records:
        if not failures:
            ui.label(view.text("trace.none"))
        return
    stored = (message.store_timestamp, message.broker_name) if message is not None else (0, "")
    found = steps(records, *stored)
    with section(view.text("trace.timeline")):
        labels = [f"{number + 1}. {view.text(kind_key(one))} {one.group}" for number, one in enumerate(found)]
        ui.echart(timeline(found, labels)).classes("w-full").style(f"height: {80 + 36 * len(found)}px")
        names = ("time", "trace.step", "trace.group", "trace.cost", "trace.result", "trace.retries", "trace.detail")
        columns = [(name.rpartition(".")[2], view.text(name)) for name in names]
        table(columns, step_rows(view, found), key="key")
        if message is not None:
            ui.link(view.text("message.open"), f"/message?topic={quote(topic)}&id={quote(msg_id)}")


async def _message(view: View, topic: str, msg_id: str, failures: dict[str, str]) -> MessageExt | None:
    """Return the message; None when no broker has it any more, or when its topic is unknown."""
    if not topic:
        return None
    try:
        return await view.console.admin.messages.view(topic, msg_id, failures)
    except TianzhouError:
        return None


def _form(view: View, topic: str, msg_id: str, trace_topic: str) -> None:
    with ui.card().classes("w-full"), ui.row().classes("items-center w-full"):
        fields = {
            "id": ui.input(view.text("message.id"), value=msg_id).classes("w-96"),
            "topic": ui.input(
                view.text("trace.topic"), value=topic, autocomplete=view.console.watcher.now.topics[:MAX_SUGGESTIONS]
            ).classes("w-64"),
            "trace": ui.input(view.text("trace.where"), value=trace_topic).classes("w-64"),
        }

        def search() -> None:
            values = {name: (field.value or "").strip() for name, field in fields.items()}
            if values["trace"] == TRACE_TOPIC:
                del values["trace"]
            ui.navigate.to("/trace?" + urlencode({name: value for name, value in values.items() if value}))

        for field in fields.values():
            field.props("dense outlined").on("keydown.enter", search)
        ui.button(view.text("message.search"), icon="search", on_click=search)
