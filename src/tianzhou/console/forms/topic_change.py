"""The form that changes a topic: a comparison of old and new settings, then the steps of the change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nicegui import ui

from tianzhou.admin.queue_numbers import QueuePlan
from tianzhou.admin.topics import TopicDescription
from tianzhou.console.forms.creation import heading, perm_field, queues_field, type_field
from tianzhou.console.forms.values import (
    BROKER,
    MOST_SHOWN,
    NEW,
    TopicChange,
    addition_rows,
    change_rows,
    change_targets,
    changed,
    creation_arguments,
    dropped_rows,
    dropped_words,
    message_type_of,
    step_words,
    uneven_words,
    unread_words,
)
from tianzhou.console.layout import View, confirmed, table
from tianzhou.console.texts import english
from tianzhou.errors import TianzhouError
from tianzhou.model import TopicConfig


class ChangeForm:
    """The form of one topic's settings.

    Args:
        view: view of the visitor.
        found: the topic. A broker has reported its configuration.
    """

    def __init__(self, view: View, found: TopicDescription) -> None:
        self._view, self._found = view, found
        self._brokers = view.console.watcher.now.brokers
        self._shown = next(iter(found.configs.values()))
        for line in uneven_words(found.configs, view.text):
            ui.label(line).classes("text-negative")
        with ui.row().classes("items-start"):
            targets = change_targets(found.configs.keys(), self._brokers, view.text)
            self._where = ui.select(targets, value="", label=view.text("topic.where")).props("dense outlined")
            self._read = queues_field(view, view.text("topic.read"), self._shown.read_queue_nums)
            self._write = queues_field(view, view.text("topic.write"), self._shown.write_queue_nums)
            self._perm = perm_field(view, self._shown.perm)
            self._type = type_field(view, message_type_of(self._shown))
            ui.button(view.text("change.preview"), on_click=self._preview).props("outline")
        ui.label(view.text("topic.numbers.words")).classes("text-sm")
        ui.label(view.text("topic.order.words")).classes("text-sm")
        self._where.on_value_change(self._follow)
        self._result = ui.column().classes("w-full")
        for field in (self._where, self._read, self._write, self._perm, self._type):
            field.on_value_change(self._result.clear)

    def _follow(self) -> None:
        """Fill the fields with the settings of the chosen broker."""
        config = self._found.configs.get(str(self._where.value).removeprefix(BROKER))
        self._shown = config or next(iter(self._found.configs.values()))
        self._read.value, self._write.value = self._shown.read_queue_nums, self._shown.write_queue_nums
        self._perm.value, self._type.value = self._shown.perm, message_type_of(self._shown)

    def _chosen(self) -> list[str] | None:
        """Return the brokers to change; None for all brokers that have the topic."""
        where = str(self._where.value)
        return [where.removeprefix(BROKER)] if where.startswith(BROKER) else None

    async def _preview(self) -> None:
        self._result.clear()
        problems = [field for field in (self._read, self._write) if not field.validate()]
        if problems:
            return
        read, write = int(self._read.value), int(self._write.value)
        try:
            with self._result:
                if str(self._where.value).startswith(NEW):
                    self._preview_addition(str(self._where.value), read, write)
                else:
                    change = changed(self._shown, read, write, self._perm.value, self._type.value)
                    await self._preview_change(change, self._chosen())
        except (TianzhouError, OSError) as error:
            ui.notify(self._view.failure(error), type="negative", timeout=0, close_button=True)

    def _preview_addition(self, choice: str, read: int, write: int) -> None:
        view, topic = self._view, self._found.topic
        broker = choice.removeprefix(NEW)
        compare(view, addition_rows(broker, read, write, self._perm.value, self._type.value, view.text))
        target: dict[str, Any] = dict(creation_arguments(choice, self._brokers))
        attributes = TopicChange(message_type=self._type.value or None).attributes

        async def work() -> None:
            await view.console.admin.topics.create(
                topic, read_queue_nums=read, write_queue_nums=write, perm=self._perm.value, order=self._shown.order,
                attributes=attributes, **target,
            )  # fmt: skip

        async def apply() -> None:
            subject = f"{topic} on {broker}: read {read}, write {write}, perm {self._perm.value}"
            if (await view.act("add topic to broker", subject, work)).done:
                ui.navigate.reload()

        ui.button(view.text("change.apply"), on_click=apply)

    async def _preview_change(self, change: TopicChange, brokers: Collection[str] | None) -> None:
        view = self._view
        topics, topic = view.console.admin.topics, self._found.topic
        plan = await topics.plan_queues(
            topic, read_queue_nums=change.read, write_queue_nums=change.write, brokers=brokers
        )
        configs = {name: one for name, one in (await topics.config(topic)).items() if name in plan.numbers}
        rows = change_rows(configs, change, view.text)
        if not rows:
            ui.label(view.text("change.none"))
            return
        compare(view, rows)
        show_plan(view, plan)
        with ui.row():
            ui.button(view.text("change.apply"), on_click=lambda: self._apply(change, brokers, configs, False))
            if plan.unread():

                async def drop() -> None:
                    if await confirmed(view, topic, view.text("change.drop")):
                        await self._apply(change, brokers, configs, True)

                ui.button(view.text("change.drop"), on_click=drop).props("color=negative outline")

    async def _apply(
        self,
        change: TopicChange,
        brokers: Collection[str] | None,
        configs: Mapping[str, TopicConfig],
        drop_unread: bool,
    ) -> None:
        view, topic = self._view, self._found.topic
        topics = view.console.admin.topics

        async def work() -> QueuePlan | None:
            if change.perm is not None or change.message_type is not None:
                await topics.update(topic, perm=change.perm, attributes=change.attributes, brokers=brokers)
            if change.read is None and change.write is None:
                return None
            return await topics.change_queues(
                topic, read_queue_nums=change.read, write_queue_nums=change.write, brokers=brokers,
                drop_unread=drop_unread,
            )  # fmt: skip

        what = ", ".join(
            f"{row['broker']} {row['setting']} {row['now']} to {row['then']}"
            for row in change_rows(configs, change, english)
        )
        outcome = await view.act(
            "change topic", f"{topic}: {what}{', unread messages dropped' if drop_unread else ''}", work, None
        )
        if not outcome.done:
            return
        if outcome.value is None or not outcome.value.steps:
            ui.notify(view.text("done"), type="positive")
            ui.navigate.reload()
            return
        unread = unread_words(outcome.value.unread(), view.text) or view.text("change.late")
        ui.notify(view.text("change.waits", name=topic, unread=unread), type="warning", timeout=0, close_button=True)
        self._result.clear()
        with self._result:
            await self._preview_change(change, brokers)


def compare(view: View, rows: list[dict[str, Any]]) -> None:
    """Show old and new settings side by side."""
    columns = [
        ("broker", view.text("broker")),
        ("setting", view.text("change.setting")),
        ("now", view.text("change.now")),
        ("then", view.text("change.then")),
    ]
    table(columns, rows, key="key").props('data-part="change"')


def show_plan(view: View, plan: QueuePlan) -> None:
    """Show the steps of a plan, and the queues that it drops with their unread messages."""
    if not plan.steps:
        return
    heading(view.text("change.steps"))
    for number, step in enumerate(plan.steps, 1):
        ui.label(f"{number}. {step_words(step, view.text)}")
    if queues := dropped_words(plan):
        ui.label(view.text("change.dropped", queues=queues))
    if rows := dropped_rows(plan.dropped, view.text):
        columns = [
            ("queue", view.text("queue")),
            ("messages", view.text("topic.messages")),
            ("unread", view.text("change.unread")),
        ]
        table(columns, rows[:MOST_SHOWN], key="queue").props('data-part="dropped"')
        if len(rows) > MOST_SHOWN:
            ui.label(view.text("change.dropped.more", shown=MOST_SHOWN, count=len(rows)))
    if unread := plan.unread():
        ui.label(view.text("change.unread.words", unread=unread_words(unread, view.text))).classes("text-negative")
