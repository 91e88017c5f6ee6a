"""Buttons for clean-ups of brokers, each with a confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nicegui import ui

from tianzhou.admin.servers import Servers
from tianzhou.console.layout import View, agreed

CLEANUPS: Final[dict[str, tuple[str, Callable[[Servers, str], Awaitable[None]]]]] = {
    "queues": ("clean expired consume queues", Servers.clean_expired_queues),
    "topics": ("clean unused topics", Servers.clean_unused_topics),
    "logs": ("delete expired commit log", Servers.delete_expired_logs),
}
"""Clean-ups: key of their texts, mapped to their name in the audit log and their function."""


def cleanups(view: View, where: str, addresses: Sequence[str]) -> None:
    """Show the buttons of all clean-ups.

    Args:
        view: view of the visitor.
        where: the brokers, as text for visitors.
        addresses: addresses of the brokers to clean.
    """

    async def clean(name: str) -> None:
        action, work = CLEANUPS[name]
        if not await agreed(view, view.text(f"upkeep.{name}.ask", where=where), view.text(f"upkeep.{name}")):
            return

        async def everywhere() -> None:
            await asyncio.gather(*(work(view.console.admin.servers, address) for address in addresses))

        await view.act(action, where, everywhere, view.text("upkeep.done", where=where))

    with ui.row():
        for name in CLEANUPS:
            ui.button(view.text(f"upkeep.{name}"), on_click=lambda name=name: clean(name)).props("outline")
