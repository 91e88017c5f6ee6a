"""One waiting message: a delayed message until its time, or a half message until its transaction ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from nicegui import ui

from tianzhou.admin import HalfMessage
from tianzhou.admin.delays import Due
from tianzhou.console.layout import View, agreed, page, section, table
from tianzhou.console.pages.message import body_part
from tianzhou.errors import ClientError
from tianzhou.escaping import escaped
from tianzhou.model import MessageExt, TransactionState

DECISIONS: Final = {TransactionState.COMMIT: "commit transaction", TransactionState.ROLLBACK: "roll back transaction"}
"""Names of the decisions in the audit log."""


def delayed_facts(level: int, due: Due, message: MessageExt, when: Callable[[int], str]) -> list[tuple[str, str]]:
    """Return the text keys and values of a delayed message's facts.

    Args:
        level: its delay level.
        due: its topic and time.
        message: the message as it is stored.
        when: returns a time as text (`View.time`).
    """
    return [
        ("topic", due.topic),
        ("delay.due", when(due.due_ms)),
        ("delay.level", str(level)),
        ("message.stored", when(message.store_timestamp)),
        ("half.born", when(message.born_timestamp)),
        ("waiting.producer", message.born_host),
        ("message.id", due.msg_id),
        ("message.tags", message.tags or ""),
        ("message.keys", message.keys),
        ("message.size", f"{len(message.body):,}"),
    ]


def half_facts(
    half: HalfMessage, message: MessageExt, now_ms: int, when: Callable[[int], str]
) -> list[tuple[str, str]]:
    """Return the text keys and values of a half message's facts.

    Args:
        half: the half message.
        message: the message as it is stored.
        now_ms: the time now, in milliseconds since 1970.
        when: returns a time as text (`View.time`).
    """
    return [
        ("topic", half.topic),
        ("half.group", half.producer_group),
        ("waiting.producer", message.born_host),
        ("half.born", when(half.born_ms)),
        ("half.age", f"{max(0, now_ms - half.born_ms) // 1000:,}"),
        ("half.checks", str(half.checks)),
        ("waiting.copied", when(half.stored_ms)),
        ("message.id", half.msg_id),
        ("message.tags", message.tags or ""),
        ("message.keys", message.keys),
        ("message.size", f"{half.body_bytes:,}"),
    ]


def place_of(query: Mapping[str, str], *names: str) -> list[int]:
    """Return the numbers in an address that locate a message.

    Args:
        query: query of the address.
        names: names of the address' parameters.

    Raises:
        ClientError: one of the parameters is not a number.
    """
    texts = [query.get(name, "") for name in names]
    if not all(text.isascii() and text.isdecimal() and len(text) < 19 for text in texts):
        raise ClientError("this address names no message; open one in the list")
    return [int(text) for text in texts]


@page("/delayed", "page.delayed")
async def show_delayed(view: View) -> None:
    """Show the page of a delayed message.

    Raises:
        ClientError: the message is not waiting.
    """
    level, offset = place_of(view.query, "level", "offset")
    due, message = await view.console.admin.delays.message(view.query.get("broker", ""), level, offset)
    _facts(view, delayed_facts(level, due, message, view.time))
    _content(view, message)


@page("/half", "page.half")
async def show_half(view: View) -> None:
    """Show the page of a half message.

    Raises:
        ClientError: the half message is not open.
    """
    (offset,) = place_of(view.query, "offset")
    transactions = view.console.admin.transactions
    half, message = await transactions.half(view.query.get("broker", ""), offset)
    _facts(view, half_facts(half, message, time.time_ns() // 1_000_000, view.time))
    if view.visitor.may_change:
        with section(view.text("half.decide")):
            _decisions(view, half)
    _content(view, message)


def _facts(view: View, facts: list[tuple[str, str]]) -> None:
    with ui.row().classes("w-full gap-x-8 gap-y-2"):
        for key, value in facts:
            if value:
                with ui.column().classes("gap-0"):
                    ui.label(view.text(key)).classes("text-sm text-grey")
                    ui.label(escaped(value))


def _content(view: View, message: MessageExt) -> None:
    with section(view.text("message.body")):
        body_part(view, message)
    with section(view.text("message.properties")):
        columns = [("name", view.text("message.field")), ("value", view.text("message.value"))]
        rows: list[dict[str, Any]] = [
            {"name": escaped(name), "value": escaped(value)} for name, value in sorted(message.properties.items())
        ]
        table(columns, rows, key="name")


def _decisions(view: View, half: HalfMessage) -> None:
    ui.label(view.text("half.decide.words", group=half.producer_group))

    async def decide(state: TransactionState) -> None:
        verb = view.text(f"half.{state.name.lower()}")
        if not await agreed(view, view.text(f"half.{state.name.lower()}.ask", topic=half.topic), verb):
            return
        subject = f"{half.topic} {half.msg_id} of {half.producer_group} at {half.broker_name}"
        outcome = await view.act(DECISIONS[state], subject, lambda: view.console.admin.transactions.end(half, state))
        if outcome.done:
            ui.navigate.to("/transactions")

    with ui.row():
        commit, roll_back = TransactionState.COMMIT, TransactionState.ROLLBACK
        ui.button(view.text("half.commit"), icon="done", on_click=lambda: decide(commit))
        button = ui.button(view.text("half.rollback"), icon="undo", on_click=lambda: decide(roll_back))
        button.props("color=negative outline")
