"""Pages whose content is slow or fails: the frame is sent immediately, and the content or the error follows in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from nicegui import Client, ui

from console_probe import served_console, texts_on, toolkit_page, visitor_at
from tianzhou.console import server
from tianzhou.console.actions import DEFECT
from tianzhou.console.layout import PAGES, Page, View
from tianzhou.console.serving import content
from tianzhou.console.settings import ConsoleSettings
from tianzhou.errors import ClientError, UnknownTopic
from tianzhou.testing import run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)

SLOW_S = 20.0
"""Seconds of virtual time of a page that queries four servers, each with a reply after 5 s."""
ANSWER = "the answer of the cluster"
Opened = Callable[[Callable[[View], Awaitable[None]]], Awaitable[None]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConsoleSettings:
    """Return the settings of a console whose page `/tried` shows the test's content `tried`."""
    return ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)


def show_on(monkeypatch: pytest.MonkeyPatch, show: Callable[[View], Awaitable[None]]) -> None:
    monkeypatch.setattr(server, "PAGES", [*PAGES, Page("/tried", "page.dead_letters", "", show)])


async def test_the_frame_comes_at_once_and_slow_content_follows(
    settings: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(view: View) -> None:
        ui.label("the first part")
        await asyncio.sleep(SLOW_S)
        ui.label(ANSWER)

    show_on(monkeypatch, show)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        begun = asyncio.get_running_loop().time()
        page = await visitor.get("/tried")
        assert asyncio.get_running_loop().time() - begun < 2
        assert page.status_code == 200
        assert "the first part" in page.text
        assert "Asking the servers" in page.text
        assert "/topics" in page.text, "the menu"
        assert ANSWER not in page.text
        await asyncio.sleep(SLOW_S)
        texts = texts_on(toolkit_page(page))
        assert ANSWER in texts
        assert "Asking the servers…" not in texts


async def test_quick_content_is_in_the_first_response(
    settings: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def show(view: View) -> None:
        await asyncio.sleep(0.01)
        ui.label(ANSWER)

    show_on(monkeypatch, show)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        page = await visitor.get("/tried")
        assert ANSWER in page.text
        assert "Asking the servers" not in page.text


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ClientError("no broker answers"), 200, "This cannot be shown: no broker answers"),
        (UnknownTopic("topic nope does not exist"), 200, "This cannot be shown: topic nope does not exist"),
        (KeyError("a defect"), 500, DEFECT),
    ],
)
async def test_a_failure_is_in_our_words_in_the_frame(
    settings: ConsoleSettings, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, words: str
) -> None:
    async def show(view: View) -> None:
        raise error

    show_on(monkeypatch, show)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        page = await visitor.get("/tried")
        assert page.status_code == status
        assert words in page.text
        assert "/topics" in page.text, "the menu"


async def test_a_late_failure_is_in_the_frame_too(settings: ConsoleSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def show(view: View) -> None:
        await asyncio.sleep(content.CONTENT_WITHIN_S * 2)

    show_on(monkeypatch, show)
    monkeypatch.setattr(content, "CONTENT_WITHIN_S", 10.0)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        page = await visitor.get("/tried")
        assert page.status_code == 200
        await asyncio.sleep(11)
        texts = texts_on(toolkit_page(page))
        assert "This cannot be shown: the servers have not answered within 10 s" in texts


async def test_content_of_a_page_that_is_gone_is_not_requested_any_more(
    settings: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def show(view: View) -> None:
        try:
            await asyncio.sleep(SLOW_S)
            ended.append("shown")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    show_on(monkeypatch, show)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        page = await visitor.get("/tried")
        client: Client = toolkit_page(page)
        client.delete()
        await asyncio.sleep(SLOW_S)
    assert ended == ["cancelled"]
