"""Messages, found by topic and time, by key, or by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from nicegui import ui

from tianzhou.admin.messages import FOREVER_MS
from tianzhou.console.layout import MAX_SUGGESTIONS, View, missing_brokers, page, section, table
from tianzhou.console.message_values import cell, number
from tianzhou.model import MessageExt
from tianzhou.wire.delivered import body_sizes

WAYS: Final = ("time", "key", "id")
MOST: Final = 500
"""Maximum number of messages on a page."""
USUALLY: Final = 100


def message_rows(messages: Iterable[MessageExt], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of a table of messages; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": f"{one.broker_name}:{one.queue_id}:{one.queue_offset}",
            "stored": when(one.store_timestamp),
            "queue": f"{one.broker_name}:{one.queue_id}",
            "offset": one.queue_offset,
            "tags": cell(one.tags or ""),
            "keys": cell(one.keys),
            "size": body_sizes([one])[0],
            "id": one.msg_id,
        }
        for one in messages
    ]


def message_columns(view: View) -> list[tuple[str, str]]:
    """Return the columns of a table of messages."""
    names = ("stored", "id", "tags", "keys", "size", "queue", "offset")
    return [(name, view.text(f"message.{name}")) for name in names]


def older(query: Mapping[str, str], found: list[MessageExt]) -> dict[str, str]:
    """Return the query of the page with the messages before the found ones.

    Args:
        query: query of the present page.
        found: messages of the present page, the newest first.
    """
    last_ms = found[-1].store_timestamp
    only_one_time = found[0].store_timestamp == last_ms
    return {**query, "end": str(last_ms - only_one_time)}


async def find(view: View, topic: str, way: str, limit: int, failures: dict[str, str]) -> list[MessageExt]:
    """Return the messages that a query selects.

    Args:
        view: view of the visitor, with the query.
        topic: the topic.
        way: one of `WAYS`.
        limit: maximum number of messages.
        failures: receives the reason of each broker that does not answer, by name.

    Raises:
        ClientError: the topic does not exist, or has no message with that id.
        ValueError: a time is invalid.
    """
    messages, query = view.console.admin.messages, view.query
    if way == "id":
        return [await messages.view(topic, query["id"].strip(), failures)] if query.get("id", "").strip() else []
    begin_ms, end_ms = (
        view.zone.input_ms(query.get("begin", ""), 0),
        view.zone.input_ms(query.get("end", ""), FOREVER_MS),
    )
    if way == "key":
        key = query.get("key", "").strip()
        if not key:
            return []
        return (await messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, failures=failures))[::-1]
    return await messages.by_time(topic, begin_ms, end_ms, limit=limit, failures=failures)


@page("/messages", "page.messages", "mail")
async def show(view: View) -> None:
    """Show the page."""
    query = view.query
    way = query.get("by", "time")
    if way not in WAYS:
        way = "time"
    limit = number(query.get("limit", ""), USUALLY, MOST)
    _form(view, way, limit)
    topic = query.get("topic", "").strip()
    if not topic:
        ui.label(view.text("message.choose"))
        return
    failures: dict[str, str] = {}
    try:
        found = await find(view, topic, way, limit, failures)
    except ValueError as error:
        ui.label(view.failure(error)).classes("text-negative")
        return
    finally:
        missing_brokers(view, failures)
    if not found:
        if not failures:
            ui.label(view.text("message.none"))
        return
    link = f"/message?topic={quote(topic, safe='')}&id={{value}}"
    with section(view.text("message.found", count=len(found))):
        table(
            message_columns(view),
            message_rows(found, view.time),
            key="key",
            links={"id": link},
            filter_text=view.text("filter"),
        )
        if way == "time":
            ui.link(view.text("message.older"), f"/messages?{urlencode(older(query, found))}")


def _form(view: View, way: str, limit: int) -> None:
    query = view.query
    names = view.console.watcher.now.topics[:MAX_SUGGESTIONS]
    with ui.card().classes("w-full"), ui.row().classes("items-center w-full"):
        topic = ui.input(view.text("topic"), value=query.get("topic", ""), autocomplete=names)
        topic.props("dense outlined").classes("w-64")
        ways = {one: view.text(f"message.by.{one}") for one in WAYS}
        chosen = ui.select(ways, value=way, label=view.text("message.by")).props("dense outlined").classes("w-48")
        key = ui.input(view.text("message.key"), value=query.get("key", "")).props("dense outlined").classes("w-48")
        key.bind_visibility_from(chosen, "value", lambda now: now == "key")
        by_id = ui.input(view.text("message.id"), value=query.get("id", "")).props("dense outlined").classes("w-96")
        by_id.bind_visibility_from(chosen, "value", lambda now: now == "id")
        times = []
        for name in ("begin", "end"):
            at = ui.input(view.text(f"message.{name}"), value=view.zone.form_text(query.get(name, "")))
            at.props("dense outlined stack-label type=datetime-local step=0.001").classes("w-60")
            at.bind_visibility_from(chosen, "value", lambda now: now != "id")
            times.append(at)
        most = ui.number(view.text("message.most"), value=limit, min=1, max=MOST, precision=0)
        most.props("dense outlined").classes("w-32")
        most.bind_visibility_from(chosen, "value", lambda now: now == "time")

        def search() -> None:
            values = {
                "topic": (topic.value or "").strip(),
                "by": chosen.value,
                "key": (key.value or "").strip() if chosen.value == "key" else "",
                "id": (by_id.value or "").strip() if chosen.value == "id" else "",
                **{
                    name: view.zone.address_text(at.value or "", query.get(name, "")) if chosen.value != "id" else ""
                    for name, at in zip(("begin", "end"), times, strict=True)
                },
                "limit": f"{most.value or USUALLY:g}" if chosen.value == "time" else "",
            }
            ui.navigate.to("/messages?" + urlencode({name: value for name, value in values.items() if value}))

        for one in (topic, key, by_id, *times, most):
            one.on("keydown.enter", search)
        ui.button(view.text("message.search"), icon="search", on_click=search)
