"""The console's web server: NiceGUI's pages behind the console's access check, on this process' event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Self

import uvicorn
from fastapi import FastAPI, Request
from nicegui import app as toolkit
from nicegui import ui
from starlette.routing import BaseRoute

from tianzhou.admin import Admin
from tianzhou.console.console import Console
from tianzhou.console.door import Door
from tianzhou.console.layout import PAGES, Page, View, show_page
from tianzhou.console.login import add_login
from tianzhou.console.serving.page_sockets import OwnSockets, PageSockets
from tianzhou.console.serving.unknown_paths import UnknownPaths
from tianzhou.console.settings import ConsoleSettings
from tianzhou.errors import ConfigError
from tianzhou.supervision import start_awaited, start_owned

MOST_CONNECTIONS = 500
LARGEST_SOCKET_MESSAGE = 1 << 20
PAGE_LIMIT_S = 60.0
"""Seconds after which the toolkit replies with its own error page.

No page takes as long: its frame is sent at once, and its content follows (`tianzhou.console.serving.content`).
"""


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the command that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield


class ConsoleServer:
    """A console that listens. A process can have only one, because the toolkit's pages belong to the process.

    Args:
        settings: settings of the console.

    Attributes:
        url: its URL, once it listens.

    Raises:
        ConfigError: the address is not loopback and there is no account, or the port is in use.
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
            # uvicorn trusts loopback by default, so every user of the machine could claim any address.
            forwarded_allow_ips=list(settings.trusted_proxies),
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
    """Return the console as an ASGI application."""
    import tianzhou.console.pages  # noqa: F401 - registers the pages

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_login(app, console)
    own = list(app.routes)
    for page in PAGES:
        _add(console, page)

    async def missing(request: Request) -> None:
        await show_page(console, Page(request.url.path, "page.missing", "", _show_missing), request)

    ui.run_with(app, root=missing, title=console.settings.namesrv_addr, show_welcome_message=False, dark=None)
    PageSockets(console.is_open).install()

    def routes() -> list[BaseRoute]:
        # The toolkit adds routes when it starts, such as the route of its icon.
        return [*own, *toolkit.routes]

    return Door(UnknownPaths(OwnSockets(app), routes), console.visitor, console.settings.host_names)


async def _show_missing(view: View) -> None:
    ui.context.client.status_code = HTTPStatus.NOT_FOUND
    ui.label(view.text("missing"))


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
