"""A form that changes one key of a server's configuration. The page's address contains the key."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from nicegui import ui

from tianzhou.console.layout import View, keep_in_address
from tianzhou.settings import MASK

_SECRET: Final = re.compile("password|secret|credential|authenticationuser", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether a configuration key looks like a secret. Brokers of RocketMQ show these values to every client."""
    return bool(_SECRET.search(key))


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with masked secrets."""
    return {key: MASK if value and is_secret(key) else value for key, value in values.items()}


def key_change(
    view: View,
    values: Mapping[str, str],
    action: str,
    where: str,
    change: Callable[[dict[str, str]], Awaitable[None]],
    changed: Callable[[str, str], object],
) -> None:
    """Show the form.

    Args:
        view: view of the visitor; the form selects `key` of its query.
        values: the present configuration, masked.
        action: name of the action for the audit log.
        where: the server, for the audit log.
        change: changes the values of keys.
        changed: called with key and value after the change.
    """
    chosen = view.query.get("key", "")
    with ui.row().classes("items-center w-full"):
        key = ui.select(sorted(values), value=chosen if chosen in values else None, label=view.text("broker.key"))
        key.props("use-input hide-selected fill-input input-debounce=0 outlined dense").classes("w-full sm:w-80")
        value = ui.input(view.text("broker.new"), value=values.get(chosen, "")).props("outlined dense").classes("grow")

        def fill() -> None:
            value.value = values.get(key.value or "", "")
            keep_in_address(view, key=key.value or "")

        key.on_value_change(fill)

        async def save() -> None:
            name, new = key.value or "", value.value or ""
            outcome = await view.act(
                action,
                f"{where}: {name}={MASK if is_secret(name) else new}",
                lambda: change({name: new}),
                view.text("broker.changed", name=name, value=MASK if is_secret(name) else new),
            )
            if outcome.done:
                changed(name, MASK if is_secret(name) else new)

        ui.button(view.text("save"), on_click=save).bind_enabled_from(key, "value", bool)
