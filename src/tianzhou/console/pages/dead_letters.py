"""Dead letters of a consumer group: list, send again, export."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, urlencode

from nicegui import ui

from tianzhou.admin import Resent
from tianzhou.admin.dead_letters import MOST_AT_ONCE
from tianzhou.admin.messages import FOREVER_MS
from tianzhou.console.changes.resending import resend_agreed, sendable
from tianzhou.console.layout import MAX_SUGGESTIONS, View, missing_brokers, page, section, table
from tianzhou.console.message_values import cell, to_json_lines
from tianzhou.console.pages.messages import older
from tianzhou.errors import ClientError, TianzhouError
from tianzhou.model import MessageExt
from tianzhou.model.dead_letters import origin_id, origin_topic
from tianzhou.model.names import DLQ_PREFIX, dead_letter_topic
from tianzhou.supervision import start_awaited
from tianzhou.wire.delivered import body_sizes

SHOWN: Final = 200


def letter_key(letter: MessageExt) -> str:
    """Return a text that identifies a dead letter."""
    return f"{letter.broker_name}:{letter.queue_id}:{letter.queue_offset}"


def letter_rows(letters: Iterable[MessageExt], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": letter_key(one),
            "stored": when(one.store_timestamp),
            "id": one.msg_id,
            "topic": origin_topic(one.properties),
            "origin": origin_id(one),
            "tags": cell(one.tags or ""),
            "keys": cell(one.keys),
            "retries": one.reconsume_times,
            "size": body_sizes([one])[0],
        }
        for one in letters
    ]


class Resending:
    """One run that sends dead letters again and can be stopped.

    Attributes:
        so_far: progress of the run.
        stopped: whether the run was stopped.
    """

    def __init__(self) -> None:
        self.so_far = Resent()
        self.stopped = False
        self._task: asyncio.Task[Resent] | None = None

    def note(self, so_far: Resent) -> None:
        """Store the progress."""
        self.so_far = so_far

    def stop(self) -> None:
        """Stop the run. Sent messages stay sent."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self, view: View, letters: list[MessageExt], to: str) -> Resent:
        """Send dead letters again, and return the progress at the end.

        Raises:
            ClientError: some dead letters could not be sent.
        """
        work = view.console.admin.dead_letters.resend(letters, to=to or None, progress=self.note)
        self._task = start_awaited(work)
        try:
            await self._task
        except asyncio.CancelledError:
            if not self.stopped:
                raise
        if self.so_far.failed:
            raise ClientError(f"{self.so_far.sent} sent, {self.so_far.failed} not: {self.so_far.error}")
        return self.so_far


@page("/dead-letters", "page.dead_letters", "report")
async def show(view: View) -> None:
    """Show the page."""
    query = view.query
    group = query.get("group", "").strip()
    _form(view, group)
    if not group:
        ui.label(view.text("dead.choose"))
        return
    try:
        begin_ms, end_ms = (
            view.zone.input_ms(query.get("begin", ""), 0),
            view.zone.input_ms(query.get("end", ""), FOREVER_MS),
        )
    except ValueError as error:
        ui.label(view.failure(error)).classes("text-negative")
        return
    admin = view.console.admin.dead_letters
    failures: dict[str, str] = {}
    total, letters = await asyncio.gather(
        admin.count(group, failures),
        admin.list(group, begin_ms=begin_ms, end_ms=end_ms, limit=SHOWN, failures=failures),
    )
    missing_brokers(view, failures)
    if not letters:
        if not failures:
            ui.label(view.text("dead.none", group=group))
        return
    with section(view.text("dead.count", count=total, shown=len(letters))):
        columns = [(name, view.text(f"message.{name}")) for name in ("stored", "id")]
        columns += [("topic", view.text("dead.topic")), ("origin", view.text("dead.origin"))]
        columns += [(name, view.text(f"message.{name}")) for name in ("tags", "keys", "size")]
        columns.insert(4, ("retries", view.text("dead.retries")))
        link = f"/message?topic={quote(dead_letter_topic(group), safe='')}&id={{value}}"
        found = table(
            columns, letter_rows(letters, view.time), key="key", links={"id": link}, filter_text=view.text("filter")
        )
        found.set_selection("multiple")
        if len(letters) < total:
            ui.link(view.text("message.older"), f"/dead-letters?{urlencode(older(query, letters))}")
        by_key = {letter_key(one): one for one in letters}

        def chosen() -> list[MessageExt]:
            return [by_key[row["key"]] for row in found.selected if row["key"] in by_key]

        async def everything() -> list[MessageExt]:
            listed = await admin.list(group, begin_ms=begin_ms, end_ms=end_ms, limit=MOST_AT_ONCE)
            if len(listed) < total and not query.get("begin") and not query.get("end"):
                ui.notify(view.text("dead.part", count=len(listed), total=total), type="warning")
            return listed

        with ui.row().classes("items-center"):
            _exports(view, group, chosen, everything)
    if view.visitor.may_change:
        with section(view.text("dead.again")):
            _again(view, group, total, chosen, everything)


def _form(view: View, group: str) -> None:
    watched = view.console.watcher.now
    with_letters = [name.removeprefix(DLQ_PREFIX) for name in watched.system_topics if name.startswith(DLQ_PREFIX)]
    with ui.card().classes("w-full"), ui.row().classes("items-center w-full"):
        field = ui.input(
            view.text("group"), value=group, autocomplete=(with_letters or watched.groups)[:MAX_SUGGESTIONS]
        )
        field.props("dense outlined").classes("w-64")
        times = []
        for name in ("begin", "end"):
            one = ui.input(view.text(f"message.{name}"), value=view.zone.form_text(view.query.get(name, "")))
            one.props("dense outlined stack-label type=datetime-local step=0.001").classes("w-60")
            times.append(one)

        def search() -> None:
            values = {"group": (field.value or "").strip()} | {
                name: view.zone.address_text(one.value or "", view.query.get(name, ""))
                for name, one in zip(("begin", "end"), times, strict=True)
            }
            ui.navigate.to("/dead-letters?" + urlencode({name: value for name, value in values.items() if value}))

        for one in (field, *times):
            one.on("keydown.enter", search)
        ui.button(view.text("message.search"), icon="search", on_click=search)
    if with_letters:
        with ui.row().classes("items-center"):
            ui.label(view.text("dead.groups"))
            for name in with_letters[:50]:
                ui.link(name, f"/dead-letters?group={quote(name, safe='')}")


def _exports(view: View, group: str, chosen: Any, everything: Any) -> None:
    def download(letters: list[MessageExt]) -> None:
        try:
            lines = to_json_lines(letters)
        except TianzhouError as error:
            ui.notify(view.text("failed", why=error), type="negative")
        else:
            ui.download.content(lines, f"dead-letters-{group}.jsonl", "application/x-ndjson")

    def some() -> None:
        if letters := chosen():
            download(letters)
        else:
            ui.notify(view.text("dead.nothing"), type="warning")

    async def all_of_them() -> None:
        download(await everything())

    ui.button(view.text("dead.export"), icon="download", on_click=some).props("outline")
    ui.button(view.text("dead.export.all"), icon="download", on_click=all_of_them).props("outline")


def _again(view: View, group: str, total: int, chosen: Any, everything: Any) -> None:
    ui.label(view.text("dead.again.words", most=f"{MOST_AT_ONCE:,}"))
    with ui.row().classes("items-center"):
        target = ui.input(view.text("dead.to")).props("dense outlined").classes("w-64")
        running: list[Resending] = []

        async def run(letters: list[MessageExt], total: int = 0) -> None:
            if running:
                return
            if not letters:
                ui.notify(view.text("dead.nothing"), type="warning")
                return
            to = (target.value or "").strip()
            if not await resend_agreed(view, letters, group, to, total) or running:
                return
            letters, one = sendable(letters, to), Resending()
            running.append(one)
            bar.set_visibility(True)
            stop.set_visibility(True)

            def draw() -> None:
                done = one.so_far.sent + one.so_far.failed
                bar.set_value(done / len(letters))
                label.set_text(view.text("dead.progress", done=done, count=len(letters)))

            timer = ui.timer(0.3, draw)
            where = f" to {to}" if to else ""
            outcome = await view.act(
                "send dead letters again", f"{len(letters)} of {group}{where}", lambda: one.run(view, letters, to), None
            )
            timer.cancel()
            draw()
            running.clear()
            stop.set_visibility(False)
            if outcome.done:
                key = "dead.stopped" if one.stopped else "dead.sent"
                ui.notify(view.text(key, sent=one.so_far.sent, count=len(letters)), type="positive")

        async def run_all() -> None:
            await run(await everything(), total)

        def stop_all() -> None:
            for one in running:
                one.stop()

        ui.button(view.text("dead.again.chosen"), icon="send", on_click=lambda: run(chosen()))
        ui.button(view.text("dead.again.all"), icon="send", on_click=run_all).props("outline")
        stop = ui.button(view.text("cancel"), icon="stop", on_click=stop_all)
        stop.props("color=negative outline").set_visibility(False)
    label = ui.label()
    bar = ui.linear_progress(0, show_value=False).props(f'aria-label="{view.text("progress")}"')
    bar.set_visibility(False)
