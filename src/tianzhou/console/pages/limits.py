"""Send limits at all brokers: list, set, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nicegui import ui
from nicegui.events import GenericEventArguments

from tianzhou.admin.send_limits import LimitStatus
from tianzhou.console.layout import View, agreed, page, section, table
from tianzhou.console.pages.broker import limit_rows as rows_of_broker
from tianzhou.errors import TianzhouError
from tianzhou.model.send_limit import LimitProblem, LimitScope, SendLimit, limit_of, split_key

NUMBERS: Final = ("rate", "burst", "rate_bytes", "burst_bytes")
"""Fields of the form with a number, as the attributes of `SendLimit`."""
DELETE_CELL: Final = """
<q-td :props="props">
  <q-btn flat dense icon="delete" color="negative" aria-label="LABEL"
    @click="() => $parent.$emit('delete', {broker: props.row.broker, limit: props.row.limit_key})" />
</q-td>
"""
"""Cell with the button that deletes a limit. The page replaces `LABEL` by its text."""


def limit_rows(found: Iterable[LimitStatus], when: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of the list, with the limits of `tianzhou limit list`. `when` returns a time as text."""
    every = list(found)
    return [
        {**row, "key": f"{one.broker_name} {one.limit.key}", "limit_key": one.limit.key, "broker": one.broker_name}
        for one, row in zip(every, rows_of_broker(every, when), strict=True)
    ]


def limit_or_problem(
    scope: str, name: str, numbers: Mapping[str, float | None]
) -> tuple[SendLimit | None, dict[str, str]]:
    """Return the limit that a form describes, or its problems by field.

    Args:
        scope: one of `LimitScope`.
        name: name of the topic, producer group or client; `*` for all others.
        numbers: value of each of `NUMBERS`; None for an empty field.
    """
    try:
        return limit_of(LimitScope(scope), name.strip(), *(numbers.get(field) for field in NUMBERS)), {}
    except LimitProblem as problem:
        return None, {problem.field or "name": str(problem)}


async def limits_of_brokers(view: View) -> tuple[list[LimitStatus], dict[str, str]]:
    """Return the limits of all brokers with a master, and why brokers do not answer, by broker name.

    Args:
        view: view of the visitor.

    Raises:
        TianzhouError: no name server answers.
    """
    admin = view.console.admin
    failures: dict[str, str] = {}

    async def of(broker: str) -> list[LimitStatus]:
        try:
            return await admin.send_limits.list(broker)
        except (TianzhouError, OSError) as error:
            failures[broker] = str(error)
            return []

    found = await asyncio.gather(*map(of, sorted(await admin.cluster.masters())))
    return [one for each in found for one in each], failures


@page("/limits", "page.limits", "speed")
async def show(view: View) -> None:
    """Show the page."""
    found, failures = await limits_of_brokers(view)
    ui.label(view.text("limit.words"))
    for broker, why in failures.items():
        ui.label(view.text("limit.silent", broker=broker, why=why)).classes("text-negative")
    names = [("broker", "broker"), ("limit", "broker.limits.of"), ("rate", "broker.limits.rate")]
    names += [("refused", "broker.limits.refused"), ("last", "broker.limits.last")]
    columns = [(name, view.text(key)) for name, key in names]
    may_change = view.visitor.may_change
    if may_change:
        columns.append(("delete", ""))
    shown = table(columns, limit_rows(found, view.time), key="key", filter_text=view.text("filter"), kept_for=view)
    empty = ui.label(view.text("limit.none")).classes("text-grey")

    async def refresh() -> None:
        now, _ = await limits_of_brokers(view)
        shown.rows = limit_rows(now, view.time)
        empty.set_visibility(not now)

    empty.set_visibility(not found)
    if may_change:
        shown.add_slot("body-cell-delete", DELETE_CELL.replace("LABEL", view.text("delete")))

        async def delete(event: GenericEventArguments) -> None:
            if await _delete(view, str(event.args.get("broker", "")), str(event.args.get("limit", ""))):
                await refresh()

        shown.on("delete", delete)
        with section(view.text("limit.change")):
            _form(view, sorted({*failures, *(await view.console.admin.cluster.masters())}), refresh)


async def _delete(view: View, broker: str, key: str) -> bool:
    scope, name = split_key(key)
    limit = f"{scope} {name}"
    if not await agreed(view, view.text("limit.ask", limit=limit, broker=broker), view.text("delete")):
        return False
    outcome = await view.act(
        "delete limit",
        f"{limit} at {broker}",
        lambda: view.console.admin.send_limits.delete(scope, name, broker_name=broker),
        view.text("limit.deleted", limit=limit, brokers=broker),
    )
    return outcome.done


def _form(view: View, brokers: list[str], refresh: Any) -> None:
    # The text of a problem takes up to three lines below its field.
    with ui.row().classes("items-start w-full gap-y-8"):
        scopes = {scope.value: view.text(f"limit.scope.{scope.value}") for scope in LimitScope}
        scope = ui.select(scopes, value=LimitScope.TOPIC.value, label=view.text("limit.scope")).classes("w-72")
        name = ui.input(view.text("limit.name")).classes("w-72")
        fields: dict[str, Any] = {"name": name}
        fields |= {one: ui.number(view.text(f"limit.{one}")).classes("w-40") for one in NUMBERS}
        places = {"": view.text("limit.everywhere"), **{broker: broker for broker in brokers}}
        place = ui.select(places, value="", label=view.text("limit.at")).classes("w-48")

        async def save() -> None:
            numbers = {one: fields[one].value for one in NUMBERS}
            limit, problems = limit_or_problem(scope.value, name.value or "", numbers)
            for one, field in fields.items():
                problem = problems.get(one)
                field.error = view.failure(problem) if problem else None
            if limit is None:
                return
            broker = place.value or None
            outcome = await view.act(
                "set limit",
                f"{limit}: {limit.text} at {broker or 'all brokers'}",
                lambda: view.console.admin.send_limits.set(limit, broker_name=broker),
                None,
            )
            if outcome.value is not None:
                reached = ", ".join(outcome.value)
                text = view.text("limit.done", limit=str(limit), rate=limit.text, brokers=reached)
                ui.notify(text, type="positive")
                await refresh()

        ui.button(view.text("limit.set"), on_click=save)
