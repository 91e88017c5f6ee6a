"""Audit log: who changed what through the console."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tianzhou.console.layout import View, page, table
from tianzhou.console.texts.audit import ACTIONS, OUTCOMES

SHOWN: Final = 500


def entry_in_chinese(entry: Mapping[str, Any], view: View) -> dict[str, Any]:
    """An entry as a Chinese page shows it; the log itself is in English, whoever acts."""
    outcome, _, why = str(entry.get("outcome", "")).partition(": ")
    words = OUTCOMES.get(outcome, outcome) + (f"：{view.failure(why)}" if why else "")
    action = str(entry.get("action", ""))
    return {**entry, "action": ACTIONS.get(action, action), "outcome": words}


@page("/audit", "page.audit", "history")
async def show(view: View) -> None:
    """Fill the page."""
    entries = await asyncio.to_thread(view.console.audit_log.tail, SHOWN)
    names = ("time", "who", "from", "action", "subject", "outcome")
    if view.language == "zh":
        entries = [entry_in_chinese(entry, view) for entry in entries]
    rows = [{"key": number, **entry} for number, entry in enumerate(entries)]
    table([(name, view.text(name)) for name in names], rows, key="key", filter_text=view.text("filter"), kept_for=view)
