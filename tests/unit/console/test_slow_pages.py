"""Pages of a cluster whose servers answer slowly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import httpx
from nicegui import ui

from tianzhou.console import server
from tianzhou.console.layout import Page, View
from tianzhou.console.server import ConsoleServer
from tianzhou.console.settings import ConsoleSettings
from tianzhou.testing import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)

SLOW_S = 20.0
"""Seconds of virtual time: a page that asks four servers which answer after 5 s."""


async def test_a_page_is_shown_when_the_cluster_has_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def show(view: View) -> None:
        await asyncio.sleep(SLOW_S)
        ui.label("the answer of the cluster")

    monkeypatch.setattr(server, "PAGES", [Page("/slow", "page.dead_letters", "", show)])
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with ConsoleServer(settings) as console, httpx.AsyncClient(timeout=60, trust_env=False) as visitor:
        page = await visitor.get(f"{console.url}/slow")
    assert page.status_code == 200
    assert "the answer of the cluster" in page.text
