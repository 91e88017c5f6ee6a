"""Web sockets bound to sessions: a message acts on a page only when the page's own session sent it.

The toolkit finds a page by the id in a message, and does not check the sender. A viewer with the id of an admin's page
could press its buttons. So this module checks each message before the toolkit handles it:

- The socket has joined the page. A socket joins only pages of its own session.
- The session is still open. A deleted account, or one with another role or password, has no open session.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from nicegui import Client, core
from starlette.types import ASGIApp, Receive, Scope, Send

from tianzhou.console.door import STATE, closed
from tianzhou.console.sessions import Visitor

NAMESPACE: Final = "/"
SOCKETS: Final = "/_nicegui_ws"
"""Prefix of the paths of web sockets, and of the requests that replace a web socket."""
_CONNECT: Final = "connect"
_DISCONNECT: Final = "disconnect"
_HANDSHAKE: Final = "handshake"
_NO_PAGE: Final = "none"
"""Page id that no page has. The toolkit rejects it, and its script reloads the page."""
_ORIGINAL: Final = "unguarded"
"""Attribute of a guarded handler: the toolkit's own handler."""


def visitor_of_socket(environ: Mapping[str, Any] | None) -> Visitor | None:
    """Return the visitor whose session opened a web socket; None without a session."""
    scope = (environ or {}).get("asgi.scope") or {}
    found = scope.get("state", {}).get(STATE)
    return found if isinstance(found, Visitor) else None


def visitor_of_page(page_id: object) -> Visitor | None:
    """Return the visitor for whom a page was built; None when the page does not exist."""
    client = Client.instances.get(page_id) if isinstance(page_id, str) else None
    found = getattr(client.request.state, STATE, None) if client is not None else None
    return found if isinstance(found, Visitor) else None


class PageSockets:
    """The checks of a console's web sockets.

    Args:
        is_open: whether a visitor's session is still open.
    """

    def __init__(self, is_open: Callable[[Visitor], bool]) -> None:
        self._is_open = is_open

    def install(self) -> None:
        """Wrap the toolkit's handlers of all messages in the checks."""
        handlers = core.sio.handlers[NAMESPACE]
        for name, handler in list(handlers.items()):
            original = getattr(handler, _ORIGINAL, handler)
            if name == _CONNECT:
                guarded = self._guarded_connect(original)
            elif name == _HANDSHAKE:
                guarded = self._guarded_handshake(original)
            elif name != _DISCONNECT:
                guarded = self._guarded_message(original)
            else:
                continue
            setattr(guarded, _ORIGINAL, original)
            handlers[name] = guarded

    def may_join(self, socket_id: str, page_id: object) -> bool:
        """Whether a socket may join a page, which then receives its messages."""
        visitor = visitor_of_page(page_id)
        if visitor is None or visitor is not visitor_of_socket(core.sio.get_environ(socket_id)):
            return False
        return self._is_open(visitor)

    def may_act(self, socket_id: str, message: object) -> bool:
        """Whether a socket may send a message to the page that the message names."""
        page_id = message.get("client_id") if isinstance(message, dict) else None
        return page_id in core.sio.rooms(socket_id) and self.may_join(socket_id, page_id)

    def _guarded_connect(self, original: Callable[..., Any]) -> Callable[..., Any]:
        async def connect(socket_id: str, environ: dict[str, Any], _: object = None) -> Any:
            page_id = parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [""])[0]
            if page_id and not self.may_join(socket_id, page_id):
                environ = {**environ, "QUERY_STRING": f"implicit_handshake=true&client_id={_NO_PAGE}"}
            return await original(socket_id, environ)

        return connect

    def _guarded_handshake(self, original: Callable[..., Any]) -> Callable[..., Any]:
        async def handshake(socket_id: str, message: object = None, *_: object) -> Any:
            if not isinstance(message, dict) or not self.may_join(socket_id, message.get("client_id")):
                return False
            return await original(socket_id, message)

        return handshake

    def _guarded_message(self, original: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def handle_later(socket_id: str, message: object = None, *_: object) -> Any:
                return await original(socket_id, message) if self.may_act(socket_id, message) else None

            return handle_later

        @functools.wraps(original)
        def handle(socket_id: str, message: object = None, *_: object) -> Any:
            return original(socket_id, message) if self.may_act(socket_id, message) else None

        return handle


class OwnSockets:
    """An ASGI middleware that refuses a request for the web socket of another session.

    A browser that cannot open a web socket sends and receives its messages by requests with the socket's id. Each of
    them must belong to the session that opened the socket.

    Args:
        app: the wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or web socket."""
        if scope["type"] in ("http", "websocket") and str(scope["path"]).startswith(SOCKETS):
            socket_id = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [""])[0]
            environ = core.sio.environ.get(socket_id)
            if environ is not None and visitor_of_socket(environ) is not scope.get("state", {}).get(STATE):
                refuse = closed("this web socket belongs to another session", 403, scope["type"] == "websocket")
                await refuse(scope, receive, send)
                return
        await self._app(scope, receive, send)
