"""One broker: rates, configuration with a form, report about itself, write permission, clean-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from nicegui import ui

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.send_limits import LimitStatus
from tianzhou.console.display.live_parts import seen_text
from tianzhou.console.forms.key_change import key_change, masked
from tianzhou.console.forms.upkeep import cleanups
from tianzhou.console.layout import (
    Chart,
    View,
    agreed,
    confirmed,
    live,
    page,
    section,
    table,
)
from tianzhou.console.pages.cluster import lag_text, since_ms
from tianzhou.console.pages.dashboard import version_text
from tianzhou.console.snapshot import ClusterSnapshot
from tianzhou.errors import ClientError, TianzhouError


def member_of(now: ClusterSnapshot, broker: str, broker_id: str) -> BrokerStatus:
    """Return the broker process that a page's address names.

    Args:
        now: the snapshot.
        broker: name of the broker.
        broker_id: its id; empty selects a master if there is one, otherwise the first process.

    Raises:
        ClientError: there is no such process.
    """
    members = [one for one in now.brokers if one.broker_name == broker]
    if not broker_id and members:
        return next((one for one in members if one.is_master), members[0])
    for one in members:
        if str(one.broker_id) == broker_id:
            return one
    known = ", ".join(f"{one.broker_name} {one.broker_id}" for one in now.brokers) or "none"
    raise ClientError(f"no broker {broker} {broker_id}".rstrip() + f"; name servers know {known}")


def value_rows(values: Mapping[str, str], broker_id: int) -> list[dict[str, Any]]:
    """Return the rows of a table of keys and values, in the order of the keys."""
    return [{"key": key, "value": value, "id": broker_id} for key, value in sorted(values.items())]


async def _configuration(view: View, address: str) -> tuple[dict[str, str], str]:
    """Return a broker's configuration, or why the broker does not report it."""
    try:
        return masked(await view.console.admin.cluster.broker_config(address)), ""
    except (TianzhouError, OSError) as error:
        return {}, str(error)


def limit_rows(found: Iterable[LimitStatus], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of send limits; `when` returns a time as text (`View.time`)."""
    return [
        {
            "limit": str(one.limit),
            "rate": one.limit.text,
            "refused": one.refused,
            "last": f"{one.last_name} {when(one.last_refused_ms)}" if one.refused else "",
        }
        for one in found
    ]


async def _limits_of(view: View, broker: str) -> list[LimitStatus]:
    """Return the send limits of a broker; empty when it does not report them, as Apache's brokers."""
    try:
        return await view.console.admin.send_limits.list(broker)
    except (TianzhouError, OSError):
        return []


def _limits(view: View, found: list[LimitStatus]) -> None:
    if not found:
        ui.label(view.text("broker.limits.none")).classes("text-grey")
        return
    columns = [
        ("limit", view.text("broker.limits.of")),
        ("rate", view.text("broker.limits.rate")),
        ("refused", view.text("broker.limits.refused")),
        ("last", view.text("broker.limits.last")),
    ]
    table(columns, limit_rows(found, view.time), key="limit")


@page("/brokers/{broker}", "page.broker")
async def show(view: View) -> None:
    """Show the page.

    Raises:
        ClientError: the broker does not exist.
    """
    watcher = view.console.watcher
    if not watcher.now.at_ms:
        await watcher.look()
    one = member_of(watcher.now, view.path["broker"], view.query.get("id", ""))
    summary = ui.column().classes("w-full")
    with summary:
        _summary(view, one)
    seen = ui.label(seen_text(view, watcher.now)).classes("text-sm text-grey")
    values, why = await _configuration(view, one.address)
    with section(view.text("cluster.rates")), ui.row().classes("w-full gap-4"):
        _rates(view, one)
    with section(view.text("broker.config")):
        if why:
            ui.label(view.text("failed", why=why)).classes("text-negative")
        _settings(view, one, values)
    with section(view.text("broker.runtime")):
        columns = [("key", view.text("broker.figure")), ("value", view.text("broker.value"))]
        found = table(columns, value_rows(one.runtime, one.broker_id), key="key", filter_text=view.text("filter"))
    if one.is_master:
        with section(view.text("broker.limits")):
            _limits(view, await _limits_of(view, one.broker_name))
            ui.link(view.text("page.limits"), "/limits")
    if view.visitor.may_change and one.is_master:
        with section(view.text("broker.write")):
            _write_permission(view, one.broker_name)
        with section(view.text("upkeep")):
            cleanups(view, one.broker_name, [one.address])

    def refresh() -> None:
        try:
            now = member_of(watcher.now, one.broker_name, str(one.broker_id))
        except ClientError:
            return
        # A broker that does not answer reports no figures. Its last figures stay, with their time above.
        if now.error is None:
            found.rows = value_rows(now.runtime, now.broker_id)
            seen.text = seen_text(view, watcher.now)
        summary.clear()
        with summary:
            _summary(view, now)

    live(view, refresh)


def _summary(view: View, one: BrokerStatus) -> None:
    figures = [
        ("role", one.role),
        ("id", one.broker_id),
        ("address", one.address),
        ("version", version_text(one)),
        ("cluster", one.cluster),
        ("cluster.since", view.time(since_ms(one))),
        ("disk", f"{one.disk_ratio:.0%}" if one.disk_ratio >= 0 else ""),
        ("cluster.lag", lag_text(one)),
    ]
    with ui.row().classes("w-full gap-x-8 gap-y-2"):
        for key, value in figures:
            if value != "":
                with ui.column().classes("gap-0"):
                    ui.label(view.text(key)).classes("text-sm text-grey")
                    ui.label(str(value))
    if one.error is not None:
        ui.label(view.text("broker.silent", why=one.error)).classes("text-negative")
    with ui.row().classes("gap-4"):
        for other in view.console.watcher.now.brokers:
            if other.broker_name == one.broker_name and other.broker_id != one.broker_id:
                ui.link(f"{other.role} {other.broker_id} ({other.address})", f"?id={other.broker_id}")
        ui.link(view.text("broker.doctor"), f"/doctor?broker={quote(one.broker_name)}")


def _settings(view: View, one: BrokerStatus, values: dict[str, str]) -> None:
    def rows() -> list[dict[str, Any]]:
        return value_rows(values, one.broker_id)

    def changed(key: str, value: str) -> None:
        values[key] = value
        found.rows = rows()

    if view.visitor.may_change and values:
        where = f"{one.broker_name} {one.broker_id} ({one.address})"
        update = partial(view.console.admin.cluster.update_broker_config, one.address)
        key_change(view, values, "change broker configuration", where, update, changed)
    columns = [("key", view.text("broker.key")), ("value", view.text("broker.value"))]
    links = {"key": "?id={id}&key={value}"} if view.visitor.may_change else {}
    found = table(columns, rows(), key="key", links=links, filter_text=view.text("filter"), kept_for=view)


def _rates(view: View, one: BrokerStatus) -> None:
    watcher, name = view.console.watcher, one.broker_name
    charts = {way: Chart(view.text(f"messages.{way}"), {}, view.zone) for way in ("in", "out")}

    def refresh() -> None:
        for way, graph in charts.items():
            graph.show({name: watcher.series.of(f"{way}:{name}")})

    refresh()
    live(view, refresh)


def _write_permission(view: View, broker: str) -> None:
    cluster = view.console.admin.cluster
    ui.label(view.text("broker.write.means")).classes("text-grey")

    async def wipe() -> None:
        if await confirmed(view, broker, view.text("broker.wipe")):
            await _tell(view, "wipe write permission", broker, cluster.wipe_write_perm)

    async def add() -> None:
        if await agreed(view, view.text("broker.add.ask", name=broker), view.text("broker.add")):
            await _tell(view, "add write permission", broker, cluster.add_write_perm)

    with ui.row():
        ui.button(view.text("broker.wipe"), on_click=wipe).props("color=negative outline")
        ui.button(view.text("broker.add"), on_click=add).props("outline")


async def _tell(view: View, action: str, broker: str, change: Any) -> None:
    outcome = await view.act(action, broker, lambda: change(broker), " ")
    if outcome.value is not None:
        for address, count in outcome.value.items():
            ui.notify(view.text("broker.touched", count=count, address=address), type="positive")
