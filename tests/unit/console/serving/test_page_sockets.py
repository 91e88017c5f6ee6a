"""Web sockets are bound to the session of their page: no other session acts on it, and none that has ended."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import aiohttp
import httpx
import socketio
from nicegui import ui

from console_probe import add_accounts, cookie_of, log_in, page_id_of, served_console, visitor_at
from tianzhou.console import server
from tianzhou.console.accounts import ConsoleRole
from tianzhou.console.door import COOKIE
from tianzhou.console.layout import PAGES, Page, View
from tianzhou.console.server import ConsoleServer
from tianzhou.console.settings import ConsoleSettings

SOCKETS = "/_nicegui_ws/socket.io"
WITHIN_S = 5.0
EVENTS_WITHIN_S = 0.5
"""Seconds in which an event arrives that the console must not handle. It arrives in milliseconds."""


@dataclass
class Tried:
    """A console with an admin's page, and the buttons that were pressed on it.

    Attributes:
        console: the console.
        admin: the admin.
        viewer: the viewer.
        page: the admin's page.
        pressed: one entry for each press of the button on the page.
        arrived: set by each press.
    """

    console: ConsoleServer
    admin: httpx.AsyncClient
    viewer: httpx.AsyncClient
    page: httpx.Response
    pressed: list[str]
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def press(self) -> dict[str, Any]:
        """The message that presses the button of the page."""
        button = re.search(r'"(\d+)":\{"tag":"q-btn"[^}]*"label":"press me".*?"listener_id":"([^"]+)"', self.page.text)
        assert button
        return {"client_id": page_id_of(self.page), "id": int(button[1]), "listener_id": button[2], "args": []}


@asynccontextmanager
async def tried_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tried]:
    """Serve a console on which an admin has opened a page with a button, and a viewer has logged in."""
    pressed: list[str] = []
    arrived = asyncio.Event()

    async def show(view: View) -> None:
        def press() -> None:
            pressed.append(view.visitor.name)
            arrived.set()

        ui.button("press me", on_click=press)

    monkeypatch.setattr(server, "PAGES", [*PAGES, Page("/tried", "page.dead_letters", "", show)])
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600, login=True)
    add_accounts(settings, {"alice": ConsoleRole.ADMIN, "bob": ConsoleRole.VIEWER})
    async with served_console(settings) as console, visitor_at(console) as admin, visitor_at(console) as viewer:
        await log_in(admin, "alice")
        await log_in(viewer, "bob")
        yield Tried(console, admin, viewer, await admin.get("/tried"), pressed, arrived)


@asynccontextmanager
async def socket_of(
    tried: Tried, visitor: httpx.AsyncClient, transport: str = "websocket", query: str = ""
) -> AsyncIterator[Any]:
    """Connect a web socket with a visitor's session.

    Args:
        tried: the console.
        visitor: has the session.
        transport: `websocket`, or `polling` for requests in the place of a web socket.
        query: of the address, such as the page to join.
    """
    async with aiohttp.ClientSession(headers={"Cookie": cookie_of(visitor)}) as http:
        client = socketio.AsyncClient(reconnection=False, http_session=http)
        address = f"{tried.console.url}{query}"
        await client.connect(address, socketio_path=SOCKETS, transports=[transport], wait_timeout=10)
        try:
            yield client
        finally:
            await client.disconnect()


def handshake(tried: Tried) -> dict[str, Any]:
    return {"client_id": page_id_of(tried.page), "tab_id": "tab", "document_id": "document", "next_message_id": 0}


@pytest.mark.parametrize("transport", ["websocket", "polling"])
async def test_the_pages_own_session_acts_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    async with tried_console(tmp_path, monkeypatch) as tried, socket_of(tried, tried.admin, transport) as socket:
        assert await socket.call("handshake", handshake(tried), timeout=30) is True
        await socket.emit("event", tried.press)
        await asyncio.wait_for(tried.arrived.wait(), WITHIN_S)
        assert tried.pressed == ["alice"]


async def test_another_session_joins_no_page_and_acts_on_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        tried_console(tmp_path, monkeypatch) as tried,
        socket_of(tried, tried.admin) as own,
        socket_of(tried, tried.viewer) as other,
    ):
        assert await own.call("handshake", handshake(tried), timeout=30) is True
        assert await other.call("handshake", handshake(tried), timeout=30) is False
        await other.emit("event", tried.press)
        await asyncio.sleep(EVENTS_WITHIN_S)
        assert tried.pressed == []
        await own.emit("event", tried.press)
        await asyncio.wait_for(tried.arrived.wait(), WITHIN_S)
        assert tried.pressed == ["alice"]


async def test_another_session_joins_no_page_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tried_console(tmp_path, monkeypatch) as tried:
        query = f"?client_id={page_id_of(tried.page)}&tab_id=tab&document_id=d&implicit_handshake=true"
        with pytest.raises(socketio.exceptions.ConnectionError):
            async with socket_of(tried, tried.viewer, query=query):
                pass
        async with socket_of(tried, tried.admin, query=query) as socket:
            await socket.emit("event", tried.press)
            await asyncio.wait_for(tried.arrived.wait(), WITHIN_S)


async def test_a_session_that_has_ended_acts_on_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tried_console(tmp_path, monkeypatch) as tried:
        console = tried.console.console
        ways: list[Callable[[], object]] = [
            lambda: console.sessions.end(tried.admin.cookies[COOKIE]),
            lambda: add_accounts(console.settings, {"alice": ConsoleRole.VIEWER, "bob": ConsoleRole.VIEWER}),
            lambda: add_accounts(console.settings, {"bob": ConsoleRole.VIEWER}),
        ]
        for end in ways:
            add_accounts(console.settings, {"alice": ConsoleRole.ADMIN, "bob": ConsoleRole.VIEWER})
            await log_in(tried.admin, "alice")
            tried.page = await tried.admin.get("/tried")
            async with socket_of(tried, tried.admin) as socket:
                assert await socket.call("handshake", handshake(tried), timeout=30) is True
                end()
                await socket.emit("event", tried.press)
                await asyncio.sleep(EVENTS_WITHIN_S)
        assert tried.pressed == []


async def test_another_session_sends_nothing_over_a_polled_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tried_console(tmp_path, monkeypatch) as tried, socket_of(tried, tried.admin, "polling") as socket:
        assert await socket.call("handshake", handshake(tried), timeout=30) is True
        path = f"{SOCKETS}/?EIO=4&transport=polling&sid={socket.eio.sid}"
        body = "42" + json.dumps(["event", tried.press])
        found = await tried.viewer.post(path, content=body)
        assert (found.status_code, found.text) == (403, "this web socket belongs to another session\n")
        assert tried.pressed == []
        assert (await tried.admin.post(path, content=body)).status_code == 200
        await asyncio.wait_for(tried.arrived.wait(), WITHIN_S)


async def test_malformed_messages_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    malformed: list[Any] = ["text", None, [], {}, {"client_id": 7}, {"client_id": ["a"]}, {"client_id": "no"}]
    async with tried_console(tmp_path, monkeypatch) as tried, socket_of(tried, tried.admin) as socket:
        assert await socket.call("handshake", handshake(tried), timeout=30) is True
        for message in malformed:
            for name in ("event", "javascript_response", "ack", "log", "handshake"):
                await socket.emit(name, message)
        await socket.emit("event", tried.press)
        await asyncio.wait_for(tried.arrived.wait(), WITHIN_S)
    assert "Error" not in caplog.text
