"""Unknown paths: 404 in the console's words, with a page for logged-in visitors alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from nicegui import Client

from console_probe import add_accounts, log_in, served_console, visitor_at
from tianzhou.console.accounts import ConsoleRole
from tianzhou.console.serving.unknown_paths import NO_SUCH_PATH
from tianzhou.console.settings import ConsoleSettings
from tianzhou.testing import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)
TOOLKIT_PATHS = ("/_nicegui/anything", "/_nicegui/9.9.9/nothing.js", "/_nicegui", "/_nicegui/")


async def test_strangers_and_programs_get_a_line_and_no_page(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600, login=True)
    add_accounts(settings, {"alice": ConsoleRole.VIEWER})
    async with served_console(settings) as console, visitor_at(console) as visitor:
        before = set(Client.instances)
        for path in TOOLKIT_PATHS:
            found = await visitor.get(path)
            assert found.status_code in (401, 404), path
        elsewhere = await visitor.get("/nope")
        assert (elsewhere.status_code, elsewhere.headers["location"]) == (303, "/login?to=%2Fnope")

        await log_in(visitor, "alice")
        for path in TOOLKIT_PATHS:
            assert (await visitor.get(path)).text == NO_SUCH_PATH
        for headers in ({"accept": "image/png"}, {"accept": "*/*"}, {"accept": "application/json"}):
            found = await visitor.get("/nope.png", headers=headers)
            assert (found.status_code, found.text) == (404, NO_SUCH_PATH)
        assert (await visitor.post("/nope")).status_code == 404
        assert set(Client.instances) == before


async def test_a_visitor_gets_the_frame_with_the_menu(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        found = await visitor.get("/nope/at/all")
        assert found.status_code == 404
        assert "The console has no page with this address" in found.text
        assert "/topics" in found.text, "the menu"
        assert "This page doesn't exist." not in found.text, "the toolkit's words"
        found = await visitor.get("/nope", headers={"accept-language": "zh-CN"})
        assert "控制台没有该地址的页面" in found.text


async def test_paths_that_the_console_has_are_served(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with served_console(settings) as console, visitor_at(console, accept="*/*") as visitor:
        for path in ("/", "/topics", "/healthz", "/login", "/favicon.ico"):
            assert (await visitor.get(path)).status_code == 200, path
        page = await visitor.get("/topics")
        script = page.text.split('src="/_nicegui/', 1)[1].split('"', 1)[0]
        assert (await visitor.get(f"/_nicegui/{script}")).status_code == 200
        assert (await visitor.get("/topics/")).is_redirect
