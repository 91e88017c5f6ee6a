"""Status 404 for unknown paths, without a page of the toolkit.

The toolkit builds a page for each unknown path, and stores it for a minute. A logged-in visitor gets one in the frame
of the console. All other requests get a line of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from tianzhou.console.door import STATE, TOOLKIT

NO_SUCH_PATH: Final = "the console has no such path\n"


def matches(routes: Iterable[BaseRoute], scope: MutableMapping[str, Any]) -> bool:
    """Whether a route serves the path of a request, with or without a slash at its end."""
    path = str(scope["path"])
    twin = path.rstrip("/") if path.endswith("/") else f"{path}/"
    scopes = [scope] if path in ("", "/") else [scope, {**scope, "path": twin}]
    return any(route.matches(one)[0] is not Match.NONE for route in routes for one in scopes)


def wants_page(scope: MutableMapping[str, Any]) -> bool:
    """Whether a logged-in visitor's browser opens a page, and not a part of one."""
    if scope["method"] != "GET" or scope.get("state", {}).get(STATE) is None:
        return False
    return "text/html" in Headers(scope=scope).get("accept", "") and not str(scope["path"]).startswith(TOOLKIT)


class UnknownPaths:
    """An ASGI middleware that replies 404 to requests for unknown paths, unless `wants_page` allows a page.

    Args:
        app: the wrapped application.
        routes: returns all routes of the application.
    """

    def __init__(self, app: ASGIApp, routes: Callable[[], Iterable[BaseRoute]]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or web socket."""
        if scope["type"] == "http" and not wants_page(scope) and not matches(self._routes(), scope):
            await PlainTextResponse(NO_SUCH_PATH, 404)(scope, receive, send)
            return
        await self._app(scope, receive, send)
