"""One consumer group: progress by queue and over time, members with their stacks, settings, reset of offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from nicegui import ui

from tianzhou.admin.progress import GroupLag
from tianzhou.console.display.live_parts import live_part
from tianzhou.console.forms.group_change import group_form
from tianzhou.console.forms.offsets import reset_form
from tianzhou.console.layout import (
    Chart,
    View,
    deletion_button,
    live,
    missing,
    missing_brokers,
    page,
    preformatted,
    section,
    table,
)
from tianzhou.console.serving.by_broker import describe_group
from tianzhou.model.names import RETRY_PREFIX
from tianzhou.wire.bodies import handler_times
from tianzhou.wire.bodies.clients import ConsumerConnection, ConsumerRunningInfo
from tianzhou.wire.codes import version_name

OWNERS_WITHIN_S: Final = 2.0
"""Maximum seconds to wait for the reports of all members, which name the queues that they read."""
MAX_ASKED_MEMBERS: Final = 50
"""Maximum number of members that an open page asks for such a report every few seconds."""


def lag_rows(lag: GroupLag, when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of progress; `when` returns a time as text (`View.time`)."""
    return [
        {
            "key": f"{one.queue.topic}:{one.queue.broker_name}:{one.queue.queue_id}",
            "topic": one.queue.topic,
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "max": one.broker_offset,
            "consumed": one.consumer_offset,
            "lag": one.lag,
            "last": when(one.last_timestamp),
            "member": one.client_id or "",
        }
        for one in lag.queues
    ]


def member_rows(members: ConsumerConnection | None) -> list[dict[str, Any]]:
    """Return the rows of the table of members; empty when no member is connected."""
    return [
        {
            "member": one.client_id,
            "address": one.client_addr,
            "language": one.language,
            "version": version_name(one.version),
        }
        for one in (members.connection_set if members is not None else ())
    ]


def subscription_rows(members: ConsumerConnection | None) -> list[dict[str, Any]]:
    """Return the rows of the table of subscriptions; empty when no member is connected."""
    return [
        {"topic": one.topic, "expression": one.sub_string, "type": one.expression_type}
        for one in (members.subscription_table.values() if members is not None else ())
    ]


@page("/groups/{group}", "page.group")
async def show(view: View) -> None:
    """Show the page.

    Raises:
        Missing: no broker has the group.
    """
    group = view.path["group"]
    answers = await describe_group(view.console.admin, group)
    configs, lag, members = answers.found.configs, answers.found.lag, answers.found.members
    missing_brokers(view, answers.failures)
    if not configs and not lag.queues and members is None:
        if answers.failures:
            return
        raise missing(view, "group", group)
    with section(view.text("group.progress"), "status"):
        _progress(view, group, lag)
    with section(view.text("group.members"), "members"):
        _members(view, group, members)
    if not view.visitor.may_change:
        return
    with section(view.text("group.reset"), "reset"):
        topics = sorted({one.queue.topic for one in lag.queues if not one.queue.topic.startswith(RETRY_PREFIX)})
        reset_form(view, topics, view.text("topic"), group, is_of_group=True)
    if configs:
        with section(view.text("group.settings"), "configuration"):
            group_form(view, configs)
    deletion_button(view, "group", group, view.console.admin.groups.delete)


def _progress(view: View, group: str, lag: GroupLag) -> None:
    groups, title = view.console.admin.groups, view.text("group.lag")
    graph = Chart(title, {}, view.zone)
    names = ("topic", "broker", "queue", "topic.max", "group.consumed", "group.lag", "group.last", "group.member")
    columns = [(name.rpartition(".")[2], view.text(name)) for name in names]
    found = table(
        columns,
        lag_rows(lag, view.time),
        key="key",
        links={"topic": "/topics/{value}"},
        filter_text=view.text("filter"),
    )

    def draw() -> None:
        view.console.watcher.shown_groups.add((group,), time.monotonic())
        graph.show({title: view.console.watcher.series.of(f"lag:{group}")})

    async def read() -> tuple[GroupLag, bool]:
        """Return the progress, and whether it names the members that read the queues.

        It does not name them when there are many members, or when a member does not answer.
        """
        if len({row["member"] for row in found.rows}) <= MAX_ASKED_MEMBERS:
            with suppress(TimeoutError):
                async with asyncio.timeout(OWNERS_WITHIN_S):
                    return await groups.lag(group, clients=True), True
        return await groups.lag(group), False

    def show_lag(answer: tuple[GroupLag, bool]) -> None:
        now, has_members = answer
        known = {} if has_members else {row["key"]: row["member"] for row in found.rows}
        found.rows = [{**row, "member": known.get(row["key"], row["member"])} for row in lag_rows(now, view.time)]

    live_part(view, read, show_lag)
    draw()
    live(view, draw)


def _members(view: View, group: str, members: ConsumerConnection | None) -> None:
    nobody = ui.label(view.text("group.nobody"))
    columns = [("member", view.text("group.member")), ("address", view.text("address"))]
    columns += [("language", view.text("group.language")), ("version", view.text("version"))]
    shown = table(columns, (), key="member", links={"member": f"/groups/{group}/members/{{value}}"})
    label = ui.label(view.text("group.subscriptions")).classes("text-md")
    subscribed = table(
        [
            ("topic", view.text("topic")),
            ("expression", view.text("group.expression")),
            ("type", view.text("group.type")),
        ],
        (),
        key="topic",
    )

    def show_members(now: ConsumerConnection | None) -> None:
        shown.rows, subscribed.rows = member_rows(now), subscription_rows(now)
        nobody.set_visibility(not shown.rows)
        for part in (shown, label, subscribed):
            part.set_visibility(bool(shown.rows))

    show_members(members)
    live_part(view, partial(view.console.admin.groups.connections, group), show_members)


@page("/groups/{group}/members/{member}", "page.member")
async def show_member(view: View) -> None:
    """Show the page of one member: its report about itself, with the stacks of its threads.

    Raises:
        Missing: no broker has the group.
    """
    group, member = view.path["group"], view.path["member"]
    if not await view.console.admin.groups.config(group):
        raise missing(view, "group", group)
    info = await view.console.admin.groups.running_info(group, member, stack=True)
    _running_info(view, info)


def _running_info(view: View, info: ConsumerRunningInfo) -> None:
    queues = [
        {
            "key": f"{queue.topic}:{queue.broker_name}:{queue.queue_id}",
            "topic": queue.topic,
            "queue": f"{queue.broker_name}:{queue.queue_id}",
            "cached": found.cached_msg_count,
            "commit": found.commit_offset,
            "locked": view.text("member.yes" if found.locked else "member.no"),
        }
        for queue, found in info.mq_table.items()
    ]
    of_queues = ("topic", "queue", "member.cached", "member.commit", "member.locked")
    with section(view.text("member.queues")):
        table([(name.removeprefix("member."), view.text(name)) for name in of_queues], queues, key="key")
    times = handler_times.read(info.user_consumer_info)
    rates = [
        {
            "topic": topic,
            "rt": f"{one.consume_rt:.1f}",
            "cpu": f"{times[topic].cpu_ms:.2f}" if topic in times else "",
            "wall": f"{times[topic].wall_ms:.2f}" if topic in times else "",
            "ok": f"{one.consume_ok_tps:.1f}",
            "failed": f"{one.consume_failed_tps:.1f}",
        }
        for topic, one in info.status_table.items()
    ]
    of_rates = ("topic", "member.rt", "member.cpu", "member.wall", "member.ok", "member.failed")
    with section(view.text("member.rates")):
        table([(name.removeprefix("member."), view.text(name)) for name in of_rates], rates, key="topic")
    with section(view.text("member.properties")):
        rows = [{"name": key, "value": value} for key, value in sorted(info.properties.items())]
        table([(name, view.text(f"member.{name}")) for name in ("name", "value")], rows, key="name")
    if info.jstack:
        with section(view.text("member.stack")):
            preformatted(info.jstack)
