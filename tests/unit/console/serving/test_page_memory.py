"""Memory of a console stays the same however many pages are loaded, with a web socket or without."""

from __future__ import annotations

import asyncio
import gc
import http.client
import logging
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from nicegui import Client
from processes import Tianzhou

from console_probe import page_id_of, served_console, visitor_at
from tianzhou.console.server import ConsoleServer
from tianzhou.console.serving.waiting_pages import MAX_WAITING_A_SESSION, WaitingPages
from tianzhou.console.settings import ConsoleSettings
from tianzhou.testing import run_virtual

PATHS = ("/", "/topics", "/groups", "/cluster", "/nope")
LOADS = 60
"""Loads of a session, more than `MAX_WAITING_A_SESSION`."""
ENDED_WITHIN_S = 2.0
"""Seconds in which the toolkit's tasks of a deleted page end."""
RECONNECT_S = 3.0
"""Seconds until the toolkit drops a page after its web socket has closed."""


def living_pages() -> int:
    """Return the number of the toolkit's pages in memory, including those that it no longer serves."""
    gc.collect()
    return sum(isinstance(one, Client) for one in gc.get_objects())


@pytest.mark.runner.with_args(run_virtual)
@pytest.mark.parametrize(("at_most", "loads"), [(4, 8), pytest.param(None, LOADS, marks=pytest.mark.slow)])
async def test_pages_without_a_web_socket_are_bounded_and_freed(
    tmp_path: Path, at_most: int | None, loads: int
) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        if at_most is not None:
            console.console.waiting_pages = WaitingPages(at_most_each=at_most)
        before = living_pages()
        for number in range(loads):
            await visitor.get(PATHS[number % len(PATHS)])
        await asyncio.sleep(ENDED_WITHIN_S)
        assert living_pages() - before <= (at_most or MAX_WAITING_A_SESSION)
        while Client.instances:
            next(iter(Client.instances.values())).delete()
        await asyncio.sleep(ENDED_WITHIN_S)
        assert living_pages() <= before


def test_a_console_bounds_the_waiting_pages_of_a_session(tmp_path: Path) -> None:
    waiting = ConsoleServer(ConsoleSettings("127.0.0.1:1", tmp_path, port=0)).console.waiting_pages
    dropped = [page for number in range(LOADS) for page in waiting.add(str(number), "session")]
    assert len(waiting) == MAX_WAITING_A_SESSION
    assert dropped == [str(number) for number in range(LOADS - MAX_WAITING_A_SESSION)]


@pytest.mark.runner.with_args(run_virtual)
async def test_pages_whose_web_socket_has_closed_are_freed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Captured records hold tracebacks, and these hold pages: no browser replies to the script of a page here.
    caplog.set_level(logging.CRITICAL, "nicegui")
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600)
    async with served_console(settings) as console, visitor_at(console) as visitor:
        before = living_pages()
        for number in range(2 * len(PATHS)):
            page = page_id_of(await visitor.get(PATHS[number % len(PATHS)]))
            await Client.instances[page].handle_handshake(f"socket {number}", "tab", None, "document", None)
            Client.instances[page].handle_disconnect(f"socket {number}")
        assert len(console.console.waiting_pages) == 0
        await asyncio.sleep(RECONNECT_S + ENDED_WITHIN_S)
        assert living_pages() <= before


@pytest.mark.slow
def test_five_thousand_loads_take_the_memory_of_two_hundred(tmp_path: Path) -> None:
    with Tianzhou(tmp_path, "console", "--port", 0, "-o", "json", namesrv="127.0.0.1:1", fresh=True) as console:
        ready = console.ready()

        def loads(count: int) -> int:
            """Load pages, and return the private memory of the console in KiB."""
            connection = http.client.HTTPConnection(ready["url"].removeprefix("http://"), timeout=60)
            for number in range(count):
                connection.request("GET", PATHS[number % len(PATHS)], headers={"accept": "text/html"})
                connection.getresponse().read()
            connection.close()
            status = Path(f"/proc/{ready['pid']}/status").read_text(encoding="ascii")
            return int(status.split("RssAnon:")[1].split()[0])

        early = loads(200)
        assert loads(4_800) < 1.2 * early
