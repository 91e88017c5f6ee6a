"""Producers: groups with their members, and the connections of one group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nicegui import ui

from tianzhou.console.layout import View, keep_in_address, page, section, table
from tianzhou.errors import TianzhouError
from tianzhou.wire.bodies.clients import Connection, ProducerInfo
from tianzhou.wire.codes import version_name

Found = dict[str, dict[str, ProducerInfo]]
"""Members of producer groups by client id, by group."""


def together(tables: Iterable[Mapping[str, Sequence[ProducerInfo]]]) -> Found:
    """Return the producers that several brokers know.

    A client of several brokers counts once, with its latest heartbeat.
    """
    found: Found = {}
    for groups in tables:
        for group, members in groups.items():
            known = found.setdefault(group, {})
            for one in members:
                before = known.get(one.client_id)
                if before is None or before.last_update_timestamp < one.last_update_timestamp:
                    known[one.client_id] = one
    return found


def group_rows(found: Found, when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the table of groups; `when` returns a time as text (`View.time`)."""
    return [
        {
            "group": group,
            "members": len(members),
            "languages": ", ".join(sorted({one.language for one in members.values()})),
            "seen": when(max((one.last_update_timestamp for one in members.values()), default=0)),
        }
        for group, members in sorted(found.items())
    ]


def connection_rows(connections: Iterable[Connection]) -> list[dict[str, Any]]:
    """Return the rows of the table of a group's connections, each client once."""
    once = {one.client_id: one for one in connections}
    return [
        {
            "client": one.client_id,
            "address": one.client_addr,
            "language": one.language,
            "version": version_name(one.version),
        }
        for _, one in sorted(once.items())
    ]


async def _all(view: View) -> tuple[Found, list[str]]:
    """Return all producers, and the brokers that did not answer with the cause."""
    servers = view.console.admin.servers
    masters = await view.console.admin.cluster.masters()

    async def ask(name: str, address: str) -> dict[str, list[ProducerInfo]] | str:
        try:
            return await servers.producers(address)
        except (TianzhouError, OSError) as error:
            return f"{name}: {view.failure(error)}"

    answers = await asyncio.gather(*(ask(name, address) for name, address in masters.items()))
    tables = [one for one in answers if not isinstance(one, str)]
    return together(tables), [one for one in answers if isinstance(one, str)]


async def _connections(view: View, group: str, topic: str) -> list[Connection]:
    """Return the connections of a group to the brokers of a topic, or to all brokers."""
    admin = view.console.admin
    masters = await admin.cluster.masters()
    if topic:
        names = {data.broker_name for data in (await admin.topics.route(topic)).broker_datas}
        masters = {name: address for name, address in masters.items() if name in names}

    async def ask(address: str) -> list[Connection]:
        try:
            return await admin.servers.producer_connections(address, group)
        except TianzhouError:
            return []  # a broker reports a group without members as missing

    return [one for some in await asyncio.gather(*map(ask, masters.values())) for one in some]


@page("/producers", "page.producers", "upload")
async def show(view: View) -> None:
    """Show the page."""
    found, failures = await _all(view)
    with section(view.text("producers.groups")):
        names = ("group", "members", "languages", "seen")
        table(
            [(name, view.text(f"producers.{name}")) for name in names],
            group_rows(found, view.time),
            key="group",
            links={"group": "?group={value}"},
            filter_text=view.text("filter"),
            kept_for=view,
        )
        for failure in failures:
            ui.label(view.text("producers.untold", broker=failure)).classes("text-grey")
    with section(view.text("producers.connections")):
        await _group(view)


async def _group(view: View) -> None:
    group, topic = view.query.get("group", ""), view.query.get("topic", "")
    rows = connection_rows(await _connections(view, group, topic)) if group else []
    with ui.row().classes("items-center w-full"):
        field = ui.input(view.text("producers.group"), value=group).props("outlined dense").classes("w-80")
        of = ui.input(view.text("producers.topic"), value=topic).props("outlined dense").classes("w-80")

        async def look() -> None:
            asked = field.value.strip()
            keep_in_address(view, group=asked, topic=of.value.strip())
            try:
                shown.rows = connection_rows(await _connections(view, asked, of.value.strip()))
            except (TianzhouError, OSError) as error:
                shown.rows = []
                ui.notify(view.failure(error), type="negative")
            nobody.set_visibility(not shown.rows)

        for one in (field, of):
            one.on("keydown.enter", look)
        ui.button(view.text("show"), on_click=look)
    names = ("client", "address", "language", "version")
    shown = table([(name, view.text(f"producers.{name}")) for name in names], rows, key="client")
    nobody = ui.label(view.text("producers.nobody")).classes("text-grey")
    nobody.set_visibility(bool(group) and not rows)
