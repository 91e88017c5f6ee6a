"""The console's door: every request and every web socket passes it before a page sees it.

It closes what browsers let other sites do: a name that was made to point here (`Host`), a web socket or form of
another page (`Origin`). Who has to log in is sent to the log-in page, but for the few files that page needs.

A session is used by opening a page, and by what its visitor does on an open one: clicks, typed words. A page that is
open keeps itself up to date over its web socket, and connects again, for ever; that is no use, or a session at an
unattended desk would never end for being idle.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from tianzhou.console.sessions import Visitor
from tianzhou.errors import ConfigError
from tianzhou.escaping import shown

COOKIE: Final = "tianzhou_console"
LOGIN: Final = "/login"
ENDED: Final = "ended"
"""Parameter of the log-in page that says why an open page led there: its session has ended."""
OPEN_PATHS: Final = (LOGIN, "/language/", "/healthz", "/_nicegui/", "/favicon.ico")
"""Paths, or their beginnings, that nobody has to log in for; the toolkit's own script and style files are below one."""
STATE: Final = "visitor"
"""Key of the `Visitor` in a request's state."""
TOOLKIT: Final = "/_nicegui"
"""How paths of the toolkit's files and of its web socket begin: pages ask for them, not people."""
_log = logging.getLogger(__name__)
_EVENT: Final = re.compile(r'42\d*\["event"')
"""How a message begins that tells of a click or of typed words: Socket.IO's event packet, with the toolkit's name."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'none'; object-src 'none'; base-uri 'self'; form-action 'self'"),
)


def host_name(host: str) -> str:
    """The name or address in a Host header, without its port, in small letters."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


def is_named_here(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this console: an address, `localhost`, or one of its names.

    An address cannot be made to point elsewhere; a name can, by whoever owns it.
    """
    name = host_name(host)
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same_origin(origin: str | None, host: str) -> bool:
    """Whether a request comes from a page of this console: browsers name their page's origin, other programs none."""
    return origin is None or urlsplit(origin).netloc.lower() == host.strip().lower()


def is_deed(message: Message) -> bool:
    """Whether what comes over a web socket is something that the visitor does, and not the page by itself."""
    return message["type"] == "websocket.receive" and _EVENT.match(message.get("text") or "") is not None


def cookie_of(headers: Headers) -> str:
    """The session token in a request's cookies; empty when there is none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


class Door:
    """ASGI middleware.

    Args:
        app: what is behind it.
        visitor: of a session token, and whether they do something now; None when there is no such session.
        names: host names of the console, in small letters.
    """

    def __init__(self, app: ASGIApp, visitor: Callable[[str, bool], Visitor | None], names: Iterable[str]) -> None:
        self._app = app
        self._visitor = visitor
        self._names = frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or web socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refuse = self._refusal(scope)
        if refuse is not None:
            await refuse(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        async def receive_deeds() -> Message:
            message = await receive()
            if is_deed(message):
                # Whoever acts is asked again before anything is changed (`Actions.run`).
                with contextlib.suppress(ConfigError):
                    self._visitor(cookie_of(Headers(scope=scope)), True)
            return message

        await self._app(scope, receive_deeds if scope["type"] == "websocket" else receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        socket = scope["type"] == "websocket"
        host = headers.get("host", "")
        if not is_named_here(host, self._names):
            text = f"this console is not {host_name(host)[:80]!r}; if it is, start it with --host-name"
            return closed(text, 421, socket)
        changes = socket or scope["method"] not in _SAFE
        if changes and not is_same_origin(headers.get("origin"), host):
            return closed("this request comes from another site", 403, socket)
        path = scope["path"]
        try:
            visitor = self._visitor(cookie_of(headers), not path.startswith(TOOLKIT))
        except ConfigError as error:
            _log.error("nobody can use the console: %s", shown(str(error)))
            return closed("the console cannot read its accounts; its log has the reason", 503, socket)
        if visitor is not None:
            scope.setdefault("state", {})[STATE] = visitor
            return None
        if any(path == each or (each.endswith("/") and path.startswith(each)) for each in OPEN_PATHS):
            return None
        if socket or scope["method"] not in _SAFE or path.startswith(TOOLKIT):
            return closed("log in first", 401, socket)
        wanted = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return RedirectResponse(f"{LOGIN}?to={quote(wanted, safe='')}", 303)


def closed(text: str, status: int, socket: bool) -> ASGIApp:
    """Return an application that refuses a request with a status and a line of text, or closes a web socket."""
    return WebSocketClose(1008, text) if socket else PlainTextResponse(text + "\n", status)
