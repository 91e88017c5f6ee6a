"""The console's web server: NiceGUI's pages behind our door, on this process's loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Self

import uvicorn
from fastapi import FastAPI, Request
from nicegui import ui

from tianzhou.admin import Admin
from tianzhou.console.console import Console
from tianzhou.console.door import Door
from tianzhou.console.layout import PAGES, Page, show_page
from tianzhou.console.login import add_login
from tianzhou.console.settings import ConsoleSettings
from tianzhou.errors import ConfigError
from tianzhou.supervision import start_awaited, start_owned

MOST_CONNECTIONS = 500
LARGEST_SOCKET_MESSAGE = 1 << 20
PAGE_LIMIT_S = 60.0
"""Seconds that a page may take to ask the cluster; after that the visitor gets an error page.

A page asks several servers one after the other, and a server that is slow or gone costs up to 5 s. The toolkit's own
limit of 3 s is shorter than that.
"""


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's."""
        yield


class ConsoleServer:
    """A console that listens; one in a process, as the toolkit's pages are the process's.

    Args:
        settings: of the console.

    Attributes:
        url: where it is, once it listens.

    Raises:
        ConfigError: it may not listen there without anybody who may log in, or the port is taken.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._admin = Admin(settings.namesrv_addr, tls=settings.tls)
        self.console = Console(settings, self._admin)
        self.url = ""
        self._tasks: list[asyncio.Task[Any]] = []
        self._server: _Server | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        listener = _listener(settings.host, settings.port)
        await self._admin.start()
        scheme = "https" if settings.certificate is not None else "http"
        host, port = listener.getsockname()[:2]
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            application(self.console),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=MOST_CONNECTIONS,
            ws_max_size=LARGEST_SOCKET_MESSAGE,
            timeout_graceful_shutdown=2,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
        )
        self._server = _Server(config)
        self._tasks = [
            start_owned(self.console.watcher.run(), "console"),
            start_awaited(self._server.serve(sockets=[listener])),
        ]
        while not self._server.started:
            if self._tasks[1].done():
                self._tasks[1].result()
                raise ConfigError(f"the console cannot be served at {self.url}; its log says why")
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
            await self._tasks[1]
        self._tasks[0].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._admin.stop()


def application(console: Console) -> Door:
    """The console as an ASGI application."""
    import tianzhou.console.pages  # noqa: F401 - registers the pages

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_login(app, console)
    for page in PAGES:
        _add(console, page)
    ui.run_with(app, title=console.settings.namesrv_addr, show_welcome_message=False, tailwind=True, dark=None)
    return Door(app, console.visitor, console.settings.host_names)


def _add(console: Console, page: Page) -> None:
    @ui.page(page.path, response_timeout=PAGE_LIMIT_S)
    async def fill(request: Request) -> None:
        await show_page(console, page, request)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise ConfigError(f"console: {host}:{port}: {error.strerror or error}; give another --port or --host") from None
    return listener
