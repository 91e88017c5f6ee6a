"""The form that changes a consumer group: a comparison of old and new settings, then the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from tianzhou.console.forms.topic_change import compare
from tianzhou.console.forms.values import LEAST_RETRIES, MOST_RETRIES, changed_settings, group_rows, number_problem
from tianzhou.console.layout import View
from tianzhou.console.texts import english
from tianzhou.model import SubscriptionGroupConfig


def group_form(view: View, configs: Mapping[str, SubscriptionGroupConfig]) -> None:
    """Show the form.

    Args:
        view: view of the visitor.
        configs: configurations of the group by broker name, at least one.
    """
    shown = next(iter(configs.values()))
    bounds = view.text("form.range", least=LEAST_RETRIES, most=f"{MOST_RETRIES:,}")
    with ui.row().classes("items-center"):
        enabled = ui.switch(view.text("group.enabled"), value=shown.consume_enable)
        broadcast = ui.switch(view.text("group.broadcast"), value=shown.consume_broadcast_enable)
        retries = ui.number(
            view.text("group.retries"),
            value=shown.retry_max_times,
            validation=lambda given: number_problem(given, LEAST_RETRIES, MOST_RETRIES, view.text),
        ).props(f'dense outlined hint="{bounds}"')
        ui.button(view.text("change.preview"), on_click=lambda: preview()).props("outline")
    result = ui.column().classes("w-full")
    for field in (enabled, broadcast, retries):
        field.on_value_change(result.clear)

    def preview() -> None:
        result.clear()
        if not retries.validate():
            return
        settings = changed_settings(shown, enabled.value, broadcast.value, int(retries.value))
        rows = group_rows(configs, settings, view.text)
        with result:
            if not rows:
                ui.label(view.text("change.none"))
                return
            compare(view, rows)
            ui.button(view.text("change.apply"), on_click=lambda: apply(settings))

    async def apply(settings: dict[str, Any]) -> None:
        group = shown.group_name
        what = ", ".join(
            f"{row['broker']} {row['setting']} {row['now']} to {row['then']}"
            for row in group_rows(configs, settings, english)
        )
        outcome = await view.act(
            "change group", f"{group}: {what}", lambda: view.console.admin.groups.update(group, **settings)
        )
        if outcome.done:
            ui.navigate.reload()
