"""One topic: its queues, route, settings and groups, and forms to send a message and to delete the topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from tianzhou.admin.topics import TopicDescription
from tianzhou.client import Producer
from tianzhou.console.changes.topic_lag import lag_dialog
from tianzhou.console.display.live_parts import live_part
from tianzhou.console.forms.topic_change import ChangeForm
from tianzhou.console.forms.values import perm_words
from tianzhou.console.layout import View, deletion_button, missing, missing_brokers, page, section, table
from tianzhou.console.serving.by_broker import describe_topic
from tianzhou.console.topic_list import TopicEntry, kind_of, topic_operations
from tianzhou.errors import UnknownTopic
from tianzhou.model import Message, SendResult

SENDER: Final = "tianzhou-console"
"""Producer group of messages sent from pages."""


def queue_rows(found: TopicDescription, when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of queues; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": f"{queue.broker_name}:{queue.queue_id}",
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min": offset.min_offset,
            "max": offset.max_offset,
            "messages": offset.max_offset - offset.min_offset,
            "stored": when(offset.last_update_timestamp),
        }
        for queue, offset in found.offsets.items()
    ]


def route_rows(found: TopicDescription) -> list[dict[str, Any]]:
    """Return the rows of the table of brokers that have the topic."""
    addresses = {data.broker_name: data.broker_addrs for data in found.route.broker_datas}
    return [
        {
            "broker": data.broker_name,
            "read": data.read_queue_nums,
            "write": data.write_queue_nums,
            "perm": data.perm,
            "addresses": ", ".join(f"{key}: {value}" for key, value in addresses.get(data.broker_name, {}).items()),
        }
        for data in found.route.queue_datas
    ]


def group_rows(found: TopicDescription) -> list[dict[str, Any]]:
    """Return the rows of the table of groups that consume the topic."""
    return [{"group": name} for name in found.groups]


@page("/topics/{topic}", "page.topic")
async def show(view: View) -> None:
    """Show the page.

    Raises:
        Missing: the topic does not exist.
        ClientError: none of its brokers has a master.
    """
    topic = view.path["topic"]
    try:
        answers = await describe_topic(view.console.admin, topic)
    except UnknownTopic:
        raise missing(view, "topic", topic) from None
    found = answers.found
    missing_brokers(view, answers.failures)
    with section(view.text("topic.queues"), "status"):
        names = ("broker", "queue", "topic.min", "topic.max", "topic.messages", "topic.stored")
        columns = [(name.removeprefix("topic."), view.text(name)) for name in names]
        queues = table(columns, queue_rows(found, view.time), key="key")
        ui.link(view.text("topic.look"), f"/messages?topic={quote(topic)}")
    with section(view.text("topic.route"), "route"):
        columns = [
            ("broker", view.text("broker")),
            ("read", view.text("topic.read")),
            ("write", view.text("topic.write")),
        ]
        table(
            [*columns, ("perm", view.text("topic.perm")), ("addresses", view.text("address"))],
            [{**row, "perm": perm_words(row["perm"], view.text)} for row in route_rows(found)],
            key="broker",
        )
    with section(view.text("topic.groups"), "consumers"):
        columns = [("group", view.text("group"))]
        groups = table(columns, group_rows(found), key="group", links={"group": "/groups/{value}"})
        if found.groups:
            lag = ui.button(
                view.text("topic.do.lag"), icon="hourglass_bottom", on_click=lambda: lag_dialog(view, topic)
            )
            lag.props("outline")

        def show_found(now: TopicDescription) -> None:
            queues.rows, groups.rows = queue_rows(now, view.time), group_rows(now)

        live_part(view, partial(view.console.admin.topics.describe, topic), show_found)
    offered = _offered(view, found)
    if "configuration" in offered and found.configs:
        with section(view.text("topic.settings"), "configuration"):
            ChangeForm(view, found)
    if "send" in offered:
        with section(view.text("topic.send"), "send"):
            _sender(view, topic)
    if "delete" in offered:
        deletion_button(view, "topic", topic, view.console.admin.topics.delete)


def _offered(view: View, found: TopicDescription) -> tuple[str, ...]:
    """Return the operations offered to the visitor for the topic, as in the menu of the list."""
    kinds = {one.name: one.kind for one in view.console.watcher.now.topic_entries}
    kind = kinds.get(found.topic) or kind_of(found.topic, ())
    is_writable = any(config.writable for config in found.configs.values())
    return topic_operations(TopicEntry(found.topic, kind, kind, is_writable=is_writable), view.visitor.may_change)


def _sender(view: View, topic: str) -> None:
    with ui.row().classes("w-full items-start"):
        tags = ui.input(view.text("topic.tags")).props("dense outlined")
        keys = ui.input(view.text("topic.keys")).props("dense outlined")
        body = ui.textarea(view.text("topic.body")).props("outlined autogrow").classes("grow")

        async def send() -> None:
            message = Message(topic, body.value.encode(), tags=tags.value or None, keys=keys.value or ())
            outcome = await view.act("send message", topic, lambda: _send(view, message), None)
            if (sent := outcome.value) is not None:
                place = f"{sent.queue.broker_name}:{sent.queue.queue_id}"
                text = view.text("topic.sent", status=sent.status.name, queue=place, offset=sent.queue_offset)
                ui.notify(text, type="positive")

        ui.button(view.text("topic.send"), icon="send", on_click=send)


async def _send(view: View, message: Message) -> SendResult:
    async with Producer(SENDER, instance=view.console.admin.instance) as producer:
        return await producer.send(message)
