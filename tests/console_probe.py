"""A console in the process of a test: its visitors, their pages, and the toolkit's objects of these pages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import httpx
from nicegui import Client
from nicegui import app as toolkit

from tianzhou.console.accounts import FILE_NAME, ConsoleRole, make_account, save_accounts
from tianzhou.console.door import COOKIE
from tianzhou.console.server import ConsoleServer
from tianzhou.console.settings import ConsoleSettings

PASSWORD: Final = "correct horse battery"
HTML: Final = {"accept": "text/html"}


@asynccontextmanager
async def served_console(settings: ConsoleSettings) -> AsyncIterator[ConsoleServer]:
    """Serve a console. The toolkit allows one in a process, so its set-up of an earlier one is dropped."""
    toolkit.middleware_stack = None
    toolkit.user_middleware.clear()
    async with ConsoleServer(settings) as console:
        yield console


# Hashing a password is slow by design.
_account = cache(lambda name, role: make_account(name, PASSWORD, role))


def add_accounts(settings: ConsoleSettings, roles: Mapping[str, ConsoleRole]) -> None:
    """Write the accounts of a console, all with the password `PASSWORD`."""
    path = settings.data / FILE_NAME
    save_accounts(path, {name: _account(name, role) for name, role in roles.items()})


def visitor_at(console: ConsoleServer, **headers: str) -> httpx.AsyncClient:
    """Return a visitor that follows no redirect."""
    return httpx.AsyncClient(base_url=console.url, timeout=60, trust_env=False, headers={**HTML, **headers})


async def log_in(visitor: httpx.AsyncClient, name: str, password: str = PASSWORD, **headers: str) -> httpx.Response:
    """Send the form of the log-in page."""
    form = {"name": name, "password": password, "to": "/"}
    return await visitor.post("/login", data=form, headers=headers)


def cookie_of(visitor: httpx.AsyncClient) -> str:
    """Return the header `Cookie` of a visitor's session."""
    return f"{COOKIE}={visitor.cookies[COOKIE]}"


def page_id_of(page: httpx.Response) -> str:
    """Return the toolkit's id of a page."""
    found = re.search(r"['\"]client_id['\"]: ?['\"]([0-9a-f-]{36})", page.text)
    assert found, page.text
    return found[1]


def toolkit_page(page: httpx.Response) -> Client:
    """Return the toolkit's object of a page."""
    return Client.instances[page_id_of(page)]


def texts_on(client: Client) -> list[str]:
    """Return the texts of a page's labels, in the order in which they were added."""
    found: list[Any] = [getattr(element, "text", None) for element in client.elements.values()]
    return [text for text in found if isinstance(text, str)]
