"""The console's access check: middleware for every request and every web socket before a page handles it.

It rejects attacks by other sites: a foreign host name that resolves to this address (`Host`), and a web socket or form
of another page (`Origin`). It redirects visitors without a session to the log-in page, except for the few files that
this page needs.

Opening a page uses a session, and so do the visitor's actions on an open page: clicks and typed words. The traffic of
an open page itself does not count: the page refreshes over its web socket and reconnects. Otherwise a session at an
unattended desk would never expire.
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
"""Parameter of the log-in page, which then reports that the session has ended."""
OPEN_PATHS: Final = (LOGIN, "/language/", "/healthz", "/_nicegui/", "/favicon.ico")
"""Paths, or prefixes of paths, that need no session. The toolkit's script and style files are below one of them."""
STATE: Final = "visitor"
"""Key of the `Visitor` in a request's state."""
TOOLKIT: Final = "/_nicegui"
"""Prefix of the paths of the toolkit's files and web socket. Pages request them, not visitors."""
_log = logging.getLogger(__name__)
_EVENT: Final = re.compile(r'42\d*\["event"')
"""Beginning of a message for a click or typed words: Socket.IO's event packet, with the toolkit's event name."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'none'; object-src 'none'; base-uri 'self'; form-action 'self'"),
)


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without its port, in lower case."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text


def is_named_here(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this console: an IP address, `localhost`, or one of its names.

    An attacker can let a domain name resolve to this machine, but not an IP address.
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
    """Whether a request comes from a page of this console.

    Browsers send their page's origin, other programs send none.
    """
    return origin is None or urlsplit(origin).netloc.lower() == host.strip().lower()


def is_deed(message: Message) -> bool:
    """Whether a message of a web socket is an action of the visitor, and not traffic of the page itself."""
    return message["type"] == "websocket.receive" and _EVENT.match(message.get("text") or "") is not None


def cookie_of(headers: Headers) -> str:
    """Return the session token in a request's cookies; empty when there is none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


class Door:
    """An ASGI middleware that checks host, origin and session.

    Args:
        app: the wrapped application.
        visitor: returns the visitor of a session token, or None without a session; its second argument is whether the
            visitor acts now.
        names: host names of the console, in lower case.
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
                # The session is checked again before a change (`Actions.run`).
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
