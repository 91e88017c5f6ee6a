"""One message: its fields, properties and body, its state in each group, and a form to send it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from tianzhou.admin import MessageTrack, TrackType
from tianzhou.client import Producer
from tianzhou.console.changes.resending import message_agreed
from tianzhou.console.layout import View, agreed, keep_in_address, missing_brokers, page, preformatted, section, table
from tianzhou.console.message_values import CHARSETS, HEX_BYTES, SHOWN_BYTES, body_hex, body_json, body_text, charset_of
from tianzhou.errors import TianzhouError
from tianzhou.escaping import escaped
from tianzhou.model import MessageExt, SendResult
from tianzhou.model.dead_letters import resent

SENDER: Final = "tianzhou-console"
KIND: Final = "console"
"""`origin_kind` of messages that this page sends again."""


def field_rows(message: MessageExt, when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of fields, with RocketMQ's names; `when` returns a time as text (`View.time`)."""
    values: dict[str, object] = {
        "topic": message.topic,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags or "",
        "keys": message.keys,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commitlog_offset,
        "bornTimestamp": when(message.born_timestamp),
        "bornHost": message.born_host,
        "storeTimestamp": when(message.store_timestamp),
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "storeSize": message.store_size,
    }
    return [{"name": name, "value": escaped(str(value))} for name, value in values.items()]


def track_state(view: View, message: MessageExt, track: MessageTrack) -> str:
    """Return the state of a message in a group in words. Add the group's offset when it is not online, or pulls."""
    state = view.text(f"track.{track.kind}")
    if track.why:
        return f"{state}: {view.failure(track.why)}"
    if track.kind in (TrackType.NOT_ONLINE, TrackType.PULL) and track.consumer_offset is not None:
        passed = track.consumer_offset > message.queue_offset
        return f"{state}; {view.text('track.passed' if passed else 'track.ahead')}"
    return state


def track_rows(view: View, message: MessageExt, tracks: list[MessageTrack]) -> list[dict[str, Any]]:
    """Return the rows of the table of groups."""
    return [
        {
            "group": one.group,
            "state": track_state(view, message, one),
            "offset": "" if one.consumer_offset is None else one.consumer_offset,
        }
        for one in tracks
    ]


@page("/message", "page.message")
async def show(view: View) -> None:
    """Show the page.

    Raises:
        ClientError: the message does not exist.
    """
    topic, msg_id = view.query.get("topic", "").strip(), view.query.get("id", "").strip()
    if not topic or not msg_id:
        ui.label(view.text("message.choose"))
        ui.link(view.text("page.messages"), "/messages")
        return
    failures: dict[str, str] = {}
    try:
        message = await view.console.admin.messages.view(topic, msg_id, failures)
    finally:
        missing_brokers(view, failures)
    with section(view.text("message.body")):
        body_part(view, message)
    with section(view.text("message.track")):
        tracks = await _tracks(view, message, failures)
        ui.link(view.text("page.trace"), f"/trace?topic={quote(topic)}&id={quote(message.msg_id)}")
    columns = [("name", view.text("message.field")), ("value", view.text("message.value"))]
    with ui.row().classes("w-full items-start"):
        with section(view.text("message.fields")).classes("grow basis-96"):
            _every_row(table(columns, field_rows(message, view.zone.exact_text), key="name"))
        with section(view.text("message.properties")).classes("grow basis-96"):
            rows = [
                {"name": escaped(name), "value": escaped(value)} for name, value in sorted(message.properties.items())
            ]
            table(columns, rows, key="name", filter_text=view.text("filter"))
    if view.visitor.may_change:
        with section(view.text("message.again")):
            _resend(view, message)
        with section(view.text("message.directly")):
            _consume(view, message, tracks)


def _every_row(found: ui.table) -> None:
    found.pagination = {"rowsPerPage": 0}
    found.props("hide-bottom")


def body_part(view: View, message: MessageExt) -> None:
    """Show the body of a message as text, JSON and hex dump, with a button that downloads it."""
    body, charset = message.body, charset_of(view.query.get("charset", ""))
    as_json = body_json(body, charset)

    def choose(chosen: str) -> None:
        keep_in_address(view, charset="" if chosen == CHARSETS[0] else chosen)
        shown.text = body_text(body, chosen)
        if shown_json is not None:
            shown_json.text = body_json(body, chosen) or body_text(body, chosen)

    charsets = {one: "GB18030 (GBK)" if one == "gb18030" else one.upper() for one in CHARSETS}
    select = ui.select(charsets, value=charset, label=view.text("message.charset"))
    select.props("dense outlined").classes("w-48").on_value_change(lambda event: choose(event.value))
    with ui.tabs().props("dense align=left") as tabs:
        text = ui.tab(view.text("message.text"))
        pretty = ui.tab("JSON") if as_json is not None else None
        hexadecimal = ui.tab(view.text("message.hex"))
    with ui.tab_panels(tabs, value=pretty or text).classes("w-full"):
        with ui.tab_panel(text):
            shown = preformatted(body_text(body, charset))
            _cut(view, len(body), SHOWN_BYTES)
        shown_json = None
        if pretty is not None:
            with ui.tab_panel(pretty):
                shown_json = preformatted(as_json or "")
        with ui.tab_panel(hexadecimal):
            preformatted(body_hex(body))
            _cut(view, len(body), HEX_BYTES)
    ui.button(
        view.text("message.download", size=f"{len(body):,}"),
        icon="download",
        on_click=lambda: ui.download.content(body, f"{message.queue_id}-{message.queue_offset}.bin"),
    ).props("outline dense")


def _cut(view: View, size: int, shown: int) -> None:
    if size > shown:
        ui.label(view.text("message.cut", shown=f"{shown:,}", size=f"{size:,}"))


async def _tracks(view: View, message: MessageExt, failures: dict[str, str]) -> list[MessageTrack]:
    try:
        tracks = await view.console.admin.messages.tracks(message, failures)
    except (TianzhouError, OSError) as error:
        ui.label(view.text("failed", why=error)).classes("text-negative")
        return []
    if not tracks:
        ui.label(view.text("track.none"))
        return []
    names = ("group", "track.state", "track.offset")
    columns = [(name.rpartition(".")[2], view.text(name)) for name in names]
    table(columns, track_rows(view, message, tracks), key="group", links={"group": "/groups/{value}"})
    return tracks


def _resend(view: View, message: MessageExt) -> None:
    ui.label(view.text("message.again.words"))
    with ui.row().classes("items-center"):
        target = ui.input(view.text("topic"), value=message.topic).props("dense outlined").classes("w-64")

        async def resend() -> None:
            to = (target.value or "").strip() or message.topic
            if not await message_agreed(view, message, to):
                return
            outcome = await view.act(
                "send message again",
                f"{message.topic} {message.msg_id} to {to}",
                lambda: _send(view, message, to),
                None,
            )
            if (sent := outcome.value) is not None:
                place = f"{sent.queue.broker_name}:{sent.queue.queue_id}"
                text = view.text("topic.sent", status=sent.status.name, queue=place, offset=sent.queue_offset)
                ui.notify(text, type="positive")

        ui.button(view.text("message.again"), icon="send", on_click=resend)


async def _send(view: View, message: MessageExt, to: str) -> SendResult:
    async with Producer(SENDER, instance=view.console.admin.instance) as producer:
        return await producer.send(resent(message, to, KIND))


def _consume(view: View, message: MessageExt, tracks: list[MessageTrack]) -> None:
    online = [one.group for one in tracks if one.kind not in (TrackType.NOT_ONLINE, TrackType.UNKNOWN)]
    if not online:
        ui.label(view.text("message.nobody"))
        return
    ui.label(view.text("message.directly.words"))
    with ui.row().classes("items-center"):
        group = ui.select(online, label=view.text("group")).props("dense outlined").classes("w-64")
        member = ui.select([], label=view.text("group.member")).props("dense outlined").classes("w-96")

        async def choose() -> None:
            members = await view.console.admin.groups.connections(group.value)
            names = [one.client_id for one in members.connection_set] if members is not None else []
            member.set_options(names, value=names[0] if names else None)

        async def consume() -> None:
            if not group.value or not member.value:
                return
            question = view.text("resend.directly", id=message.msg_id, member=member.value, group=group.value)
            if not await agreed(view, question, view.text("message.directly")):
                return
            outcome = await view.act(
                "consume message directly",
                f"{message.topic} {message.msg_id} by {member.value} of {group.value}",
                lambda: view.console.admin.groups.consume_directly(
                    group.value, member.value, message.offset_msg_id, message.topic
                ),
                None,
            )
            if (done := outcome.value) is not None:
                words = view.text("message.consumed", result=done.consume_result, ms=done.spent_time_mills)
                ui.notify(f"{words} {done.remark or ''}"[:500], type="info", timeout=0, close_button=True)

        group.on_value_change(choose)
        ui.button(view.text("message.directly"), icon="bolt", on_click=consume)
