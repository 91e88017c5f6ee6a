"""Audit log: who changed what through the console."""

from __future__ import annotations

import asyncio
from typing import Final

from tianzhou.console.layout import View, page, table

SHOWN: Final = 500


@page("/audit", "page.audit", "history")
async def show(view: View) -> None:
    """Fill the page."""
    entries = await asyncio.to_thread(view.console.audit_log.tail, SHOWN)
    names = ("time", "who", "from", "action", "subject", "outcome")
    rows = [{"key": number, **entry} for number, entry in enumerate(entries)]
    table([(name, view.text(name)) for name in names], rows, key="key", filter_text=view.text("filter"), kept_for=view)
