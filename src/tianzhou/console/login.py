"""Log-in and log-out with plain forms, so that passwords never pass through the toolkit's web socket."""

from __future__ import annotations

import asyncio
import html
import logging
import time
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from tianzhou.console import texts
from tianzhou.console.accounts import check_password
from tianzhou.console.console import Console
from tianzhou.console.display import zones
from tianzhou.console.display.frame_links import other_language, way_back
from tianzhou.console.door import COOKIE, ENDED, LOGIN, STATE
from tianzhou.console.sessions import same_token
from tianzhou.console.style import PRIMARY
from tianzhou.escaping import shown

LONGEST_FORM: Final = 8_192
STYLE: Final = f"""
:root{{color-scheme:light dark}}
body{{font:16px system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0}}
body{{background:#fff;color:#1d1d1d}}
form{{display:grid;gap:.75rem;width:min(20rem,90vw)}}
h1{{font-size:1.6rem;margin:0}}
input,button{{font:inherit;padding:.5rem;box-sizing:border-box;border-radius:4px;border:1px solid #767676}}
label input{{width:100%}}
a{{color:{PRIMARY};justify-self:center}}
button{{background:{PRIMARY};color:#fff;border-color:{PRIMARY};cursor:pointer}}
[role=alert]{{color:#b00020;margin:0}}
@media (prefers-color-scheme:dark){{
body{{background:#121212;color:#e8e8e8}}
input{{background:#1e1e1e;color:inherit}}
a{{color:#7cb8e4}}
[role=alert]{{color:#ff8a80}}
}}
"""
"""Style of the log-in page, light or dark as the browser prefers; the other pages follow the same preference."""
_log = logging.getLogger(__name__)


def local_path(wanted: str) -> str:
    """Return the page to open after the log-in: a path of this console, never another site."""
    parts = urlsplit(wanted)
    inside = not parts.scheme and not parts.netloc and wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if inside and wanted.isprintable() else "/"


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a posted form; empty when the form is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            return {}
    try:
        found = parse_qs(body.decode(), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items()}


def login_page(language: str, to: str, error: str = "") -> str:
    """Return the log-in page as HTML."""

    def text(key: str) -> str:
        return html.escape(texts.text(language, key))

    other, name = other_language(language)
    link = way_back(f"/language/{other}", way_back(LOGIN, to))
    alert = f'<p role="alert">{html.escape(error)}</p>' if error else ""
    return f"""<!doctype html>
<html lang="{language}"><head><meta charset="utf-8"><title>{text("login")} · {text("title")}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head>
<body><form method="post" action="{LOGIN}"><h1>{text("title")}</h1>{alert}
<input type="hidden" name="to" value="{html.escape(to)}">
<label>{text("login.name")}<br><input name="name" autocomplete="username" autofocus required></label>
<label>{text("login.password")}<br>
<input name="password" type="password" autocomplete="current-password" required></label>
<button type="submit">{text("login")}</button>
<a href="{html.escape(link)}" lang="{other}">{name}</a></form></body></html>"""


def add_login(app: FastAPI, console: Console) -> None:
    """Add the routes of log-in and log-out, language, time zone, and health checks."""

    def language_of(request: Request) -> str:
        return texts.choose(request.cookies.get(texts.COOKIE), request.headers.get("accept-language", ""))

    @app.get(LOGIN)
    async def form(request: Request) -> Response:
        language = language_of(request)
        error = texts.text(language, "login.ended") if ENDED in request.query_params else ""
        if not await asyncio.to_thread(lambda: console.accounts):
            error = texts.text(language, "login.none")
        return HTMLResponse(login_page(language, local_path(request.query_params.get("to", "/")), error))

    @app.post(LOGIN)
    async def login(request: Request) -> Response:
        language, fields = language_of(request), await read_form(request)
        name, to = fields.get("name", ""), local_path(fields.get("to", "/"))
        address = request.client.host if request.client is not None else ""
        now = time.monotonic()
        if wait_s := console.tries.wait_s(name, address, now):
            error = texts.text(language, "login.wait", seconds=int(wait_s) + 1)
            return HTMLResponse(login_page(language, to, error), 429, {"retry-after": str(int(wait_s) + 1)})
        # Count the attempt before the check, so that parallel requests get no additional attempts.
        console.tries.failed(name, address, now)
        account = await asyncio.to_thread(lambda: check_password(console.accounts, name, fields.get("password", "")))
        if account is None:
            _log.warning("wrong password for %s from %s", shown(name[:64]), address)
            return HTMLResponse(login_page(language, to, texts.text(language, "login.wrong")), 403)
        console.tries.succeeded(name, address)
        visitor = console.sessions.begin(account.name, account.role, time.monotonic())
        _log.info("%s has logged in from %s", account.name, address)
        answer = RedirectResponse(to, 303)
        # A trusted proxy that terminates TLS sends the scheme `https`.
        secure = console.settings.certificate is not None or request.url.scheme == "https"
        answer.set_cookie(COOKIE, visitor.token, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    @app.post("/logout")
    async def logout(request: Request) -> Response:
        visitor, fields = getattr(request.state, STATE), await read_form(request)
        if not same_token(fields.get("form", ""), visitor.form_token):
            return JSONResponse({"error": "this form is too old; load the page again"}, 403)
        console.sessions.end(visitor.token)
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    @app.get("/language/{language}")
    async def language(request: Request, language: str) -> Response:
        answer = RedirectResponse(local_path(request.query_params.get("to", "/")), 303)
        if language in texts.LANGUAGES:
            answer.set_cookie(texts.COOKIE, language, max_age=365 * 86_400, samesite="strict", path="/")
        return answer

    @app.get("/zone")
    async def zone(request: Request) -> Response:
        answer = RedirectResponse(local_path(request.query_params.get("to", "/")), 303)
        if value := zones.cookie_value(request.query_params.get("name", "")):
            answer.set_cookie(zones.COOKIE, value, max_age=zones.COOKIE_S, samesite="strict", path="/")
        else:
            answer.delete_cookie(zones.COOKIE, path="/")
        return answer

    @app.get("/healthz")
    async def health() -> Response:
        return JSONResponse({"status": "ok"})
