"""The dialog with the lag of each group of a topic, queue by queue, which also opens a reset of offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from tianzhou.admin.progress import GroupLag
from tianzhou.console.layout import View, answer_of, table
from tianzhou.errors import TianzhouError
from tianzhou.supervision import start_awaited

MAX_GROUPS: Final = 50
"""Maximum number of groups whose lag the dialog reads."""
AT_ONCE: Final = 4
"""Maximum number of groups whose lag is read at the same time; each read asks the members of the group."""


def groups_to_read(groups: Sequence[str], lags: Mapping[str, int]) -> list[str]:
    """Return the groups whose lag the dialog reads, the largest lag first, at most `MAX_GROUPS`.

    Args:
        groups: groups that have consumed the topic.
        lags: last measured lag by group; a group without a measurement counts as 0.
    """
    return sorted(groups, key=lambda name: (-lags.get(name, 0), name))[:MAX_GROUPS]


def queue_rows(lag: GroupLag) -> list[dict[str, Any]]:
    """Return the rows of one group in one topic, with the figures of `tianzhou group lag GROUP -t TOPIC`."""
    return [
        {
            "key": f"{one.queue.broker_name}:{one.queue.queue_id}",
            "broker": one.queue.broker_name,
            "queue": one.queue.queue_id,
            "consumed": one.consumer_offset,
            "max": one.broker_offset,
            "lag": one.lag,
            "member": one.client_id or "",
        }
        for one in lag.queues
    ]


async def lag_dialog(view: View, topic: str) -> None:
    """Show the lag of each group of a topic by queue, and wait until the visitor closes the dialog.

    Args:
        view: view of the visitor. A visitor who may change offsets gets a reset button for each group.
        topic: the topic.

    Raises:
        TianzhouError: the topic does not exist, or no broker answers.
    """
    groups = await view.console.admin.topics.groups(topic)
    lags = {name: figures.lags.get(topic, 0) for name, figures in view.console.watcher.groups.items()}
    chosen = groups_to_read(groups, lags)
    turns = asyncio.Semaphore(AT_ONCE)
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 70rem"):
        title = view.text("lag.of", topic=topic)
        ui.label(title).classes("text-lg").props('role="heading" aria-level="2"')
        if not chosen:
            ui.label(view.text("lag.none"))
        elif len(chosen) < len(groups):
            ui.label(view.text("lag.part", shown=len(chosen), count=len(groups)))
        parts = [_Part(view, group, topic, turns) for group in chosen]
        with ui.row().classes("w-full justify-end"):
            ui.button(view.text("close"), on_click=dialog.close).props("flat autofocus")
    reads = [start_awaited(part.read()) for part in parts]
    try:
        await answer_of(dialog)
    finally:
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


class _Part:
    """The part of the dialog that shows one group."""

    def __init__(self, view: View, group: str, topic: str, turns: asyncio.Semaphore) -> None:
        self._view, self._group, self._topic, self._turns = view, group, topic, turns
        with ui.row().classes("w-full items-center gap-x-4").props(f'role="group" data-group="{quote(group)}"'):
            ui.link(group, f"/groups/{quote(group, safe='')}")
            self._total = ui.label("…")
            ui.space()
            if view.visitor.may_change:
                ui.button(view.text("group.reset"), icon="history", on_click=self._reset).props("outline dense")
        names = ("broker", "queue", "group.consumed", "topic.max", "group.lag", "group.member")
        self._table = table([(name.rpartition(".")[2], view.text(name)) for name in names], [], key="key")

    async def read(self) -> None:
        """Show the present lag, or why it is unknown."""
        async with self._turns:
            try:
                found = await self._view.console.admin.groups.lag(self._group, self._topic, clients=True)
            except (TianzhouError, OSError) as error:
                self._total.set_text(self._view.text("lag.failed", why=error))
                return
        self._total.set_text(self._view.text("lag.total", count=f"{found.total:,}"))
        self._table.rows = queue_rows(found)

    async def _reset(self) -> None:
        # `pages.offsets` imports nothing of this module; an import above would be a cycle through the pages.
        from tianzhou.console.forms.offsets import reset_dialog

        await reset_dialog(self._view, [(self._group, self._topic)], self._topic)
        await self.read()
