"""Operations: configuration of name servers, KV entries, clean-ups of all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from tianzhou.console.forms.key_change import key_change, masked
from tianzhou.console.forms.upkeep import cleanups
from tianzhou.console.layout import View, confirmed, keep_in_address, page, section, table
from tianzhou.errors import TianzhouError

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Namespace of RocketMQ's own KV entries: queues of ordered topics."""


def config_rows(configs: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the rows of the table of name servers' settings. A key has several rows when the servers differ."""
    keys = sorted({key for values in configs.values() for key in values})
    rows: list[dict[str, Any]] = []
    for key in keys:
        servers: dict[str, list[str]] = {}
        for address, values in configs.items():
            servers.setdefault(values.get(key, ""), []).append(address)
        for value, addresses in servers.items():
            of = "" if len(servers) == 1 else ", ".join(addresses)
            rows.append({"id": f"{key} {of}", "key": key, "value": value, "server": of})
    return rows


@page("/ops", "page.ops", "build")
async def show(view: View) -> None:
    """Show the page."""
    with section(view.text("ops.namesrv")):
        await _name_servers(view)
    with section(view.text("ops.kv")):
        await _kv(view)
    masters = [one for one in view.console.watcher.now.brokers if one.is_master and one.error is None]
    if view.visitor.may_change and masters:
        with section(view.text("upkeep")):
            where = ", ".join(one.broker_name for one in masters)
            ui.label(view.text("upkeep.where", where=where)).classes("text-grey")
            cleanups(view, where, [one.address for one in masters])


async def _name_servers(view: View) -> None:
    cluster = view.console.admin.cluster
    ui.label(", ".join(cluster.name_servers))
    try:
        configs = {one: masked(values) for one, values in (await cluster.namesrv_config()).items()}
    except (TianzhouError, OSError) as error:
        ui.label(view.text("failed", why=error)).classes("text-negative")
        return
    values = {row["key"]: row["value"] for row in config_rows(configs)}

    def changed(key: str, value: str) -> None:
        for one in configs.values():
            one[key] = value
        found.rows = config_rows(configs)

    if view.visitor.may_change:
        action, update = "change name server configuration", cluster.update_namesrv_config
        key_change(view, values, action, "all name servers", update, changed)
    columns = [("key", view.text("broker.key")), ("value", view.text("broker.value"))]
    if any(row["server"] for row in config_rows(configs)):
        columns.append(("server", view.text("ops.server")))
    links = {"key": "?key={value}"} if view.visitor.may_change else {}
    found = table(columns, config_rows(configs), key="id", links=links, filter_text=view.text("filter"), kept_for=view)


async def _kv(view: View) -> None:
    cluster = view.console.admin.cluster
    namespace = view.query.get("namespace") or ORDER_TOPICS
    try:
        entries = await cluster.kv_entries(namespace)
    except (TianzhouError, OSError) as error:
        ui.label(view.text("failed", why=error)).classes("text-negative")
        entries = {}
    with ui.row().classes("items-center w-full"):
        field = ui.input(view.text("ops.namespace"), value=namespace).props("outlined dense").classes("w-80")

        async def look() -> None:
            found.rows = await _entries(view, field.value.strip())
            keep_in_address(view, namespace=field.value.strip())

        field.on("keydown.enter", look)
        ui.button(view.text("show"), on_click=look).props("outline")
    columns = [("key", view.text("broker.key")), ("value", view.text("broker.value"))]
    rows = [{"key": key, "value": value} for key, value in sorted(entries.items())]
    found = table(columns, rows, key="key", filter_text=view.text("filter"))
    if not view.visitor.may_change:
        return
    with ui.row().classes("items-center w-full"):
        key = ui.input(view.text("ops.kv.key")).props("outlined dense").classes("w-80")
        value = ui.input(view.text("ops.kv.value")).props("outlined dense").classes("grow")

        async def put() -> None:
            of, name, new = field.value.strip(), key.value.strip(), value.value or ""
            outcome = await view.act(
                "put KV entry", f"{of} {name}={new}", lambda: cluster.put_kv(of, name, new), view.text("ops.kv.there")
            )
            if outcome.done:
                await look()

        async def delete() -> None:
            of, name = field.value.strip(), key.value.strip()
            if not await confirmed(view, name):
                return
            outcome = await view.act("delete KV entry", f"{of} {name}", lambda: cluster.delete_kv(of, name))
            if outcome.done:
                await look()

        ui.button(view.text("ops.kv.put"), on_click=put).bind_enabled_from(key, "value", bool)
        ui.button(view.text("delete"), on_click=delete).props("color=negative outline").bind_enabled_from(
            key, "value", bool
        )


async def _entries(view: View, namespace: str) -> list[dict[str, Any]]:
    entries = await view.console.admin.cluster.kv_entries(namespace)
    return [{"key": key, "value": value} for key, value in sorted(entries.items())]
