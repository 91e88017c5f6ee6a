"""Nobody comes in who is not meant to: other hosts, other sites, who is not logged in, who has had too many tries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.console.accounts import Role
from tianzhou.console.door import COOKIE, STATE, Door, host_name, is_named_here, is_same_origin
from tianzhou.console.login import local_path
from tianzhou.console.sessions import Sessions, Tries, Visitor, same_token

VISITOR = Visitor("alice", Role.ADMIN)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1:8080", True), ("localhost:8080", True), ("LOCALHOST", True), ("[::1]:8080", True),
        ("10.0.0.7", True),
        ("console.example:8080", True), ("evil.example", False), ("127.0.0.1.evil.example:8080", False), ("", False),
        ("localhost.evil.example", False), ("console.example.evil", False),
    ],
)  # fmt: skip
def test_hosts_that_are_this_console(host: str, named: bool) -> None:
    assert is_named_here(host, {"console.example"}) is named


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        (None, True), ("http://localhost:8080", True), ("https://localhost:8080", True), ("http://localhost", False),
        ("http://evil.example", False), ("null", False), ("", False), ("http://localhost:8080.evil.example", False),
        ("http://localhost:8080@evil.example", False),
    ],
)  # fmt: skip
def test_origins_that_are_this_console(origin: str | None, same: bool) -> None:
    assert is_same_origin(origin, "localhost:8080") is same


def asked(method: str, path: str, kind: str = "http", **headers: str) -> list[dict[str, Any]]:
    """What the door sends for a request, or `served` when it lets it through."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"type": "served", "visitor": scope.get("state", {}).get(STATE)})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    door = Door(app, lambda token, _used: VISITOR if token == "good" else None, ())
    fields = {"host": "localhost:8080", **headers}
    scope = {
        "type": kind, "method": method, "path": path, "query_string": b"a=b", "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }  # fmt: skip
    asyncio.run(door(scope, receive, send))
    return sent


def test_who_has_a_session_is_served_and_known() -> None:
    assert asked("GET", "/topics", cookie=f"{COOKIE}=good") == [{"type": "served", "visitor": VISITOR}]
    assert asked("GET", "/socket", "websocket", cookie=f"{COOKIE}=good")[0]["type"] == "served"


def test_who_has_none_is_sent_to_log_in_and_back() -> None:
    (start, _) = asked("GET", "/topics", cookie=f"{COOKIE}=bad")
    assert (start["status"], dict(start["headers"])[b"location"]) == (303, b"/login?to=%2Ftopics%3Fa%3Db")
    assert asked("POST", "/logout")[0]["status"] == 401
    assert asked("GET", "/_nicegui_ws/socket.io/")[0]["status"] == 401
    assert asked("GET", "/_nicegui_ws/socket.io/", "websocket")[0] == {
        "type": "websocket.close", "code": 1008, "reason": "log in first",
    }  # fmt: skip
    for path in ("/login", "/healthz", "/_nicegui/3/nicegui.js"):
        assert asked("GET", path)[0] == {"type": "served", "visitor": None}


def test_other_sites_and_hosts_are_refused_even_with_a_session() -> None:
    good = {"cookie": f"{COOKIE}=good"}
    assert asked("GET", "/topics", host="evil.example", **good)[0]["status"] == 421
    assert asked("POST", "/logout", origin="http://evil.example", **good)[0]["status"] == 403
    assert asked("GET", "/x", "websocket", origin="http://evil.example", **good)[0]["type"] == "websocket.close"


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("/topics?a=b", "/topics?a=b"), ("", "/"), ("topics", "/"), ("//evil.example", "/"), ("/\\evil.example", "/"),
        ("http://evil.example/", "/"), ("javascript:alert(1)", "/"), ("/a\r\nSet-Cookie: x", "/"),
    ],
)  # fmt: skip
def test_after_the_log_in_nobody_is_sent_elsewhere(wanted: str, path: str) -> None:
    assert local_path(wanted) == path


def test_sessions_end_when_idle_when_old_and_when_told() -> None:
    tokens = iter(f"token-{number}" for number in range(20))
    sessions = Sessions(60, 300, lambda: next(tokens))
    alice, bob = sessions.begin("alice", Role.ADMIN, 0.0), sessions.begin("bob", Role.VIEWER, 0.0)
    assert sessions.find(alice.token, 59.0) is alice
    assert sessions.find(bob.token, 61.0) is None
    for now in range(100, 300, 50):
        assert sessions.find(alice.token, float(now)) is alice
    assert not sessions.is_open(alice, 301.0)
    assert sessions.find(alice.token, 301.0) is None
    carol = sessions.begin("carol", Role.VIEWER, 400.0)
    sessions.end(carol.token)
    assert sessions.find(carol.token, 400.0) is None
    dave = sessions.begin("dave", Role.VIEWER, 400.0)
    sessions.end_all_of("dave")
    assert not sessions.is_open(dave, 400.0)


async def uses(path: str, kind: str = "http", *messages: str) -> list[bool]:
    """What the door says of a session's use for a request, or for messages over a web socket."""
    found: list[bool] = []
    coming = iter(messages)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in messages:
            await receive()

    async def receive() -> Any:
        return {"type": "websocket.receive", "text": next(coming)}

    async def send(message: Any) -> None:
        pass

    def visitor(token: str, used: bool) -> Visitor:
        found.append(used)
        return VISITOR

    scope = {
        "type": kind, "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await Door(app, visitor, ())(scope, receive, send)
    return found


async def test_a_session_is_used_by_pages_and_by_what_is_done_on_them() -> None:
    assert await uses("/topics") == [True]
    assert await uses("/_nicegui/3/nicegui.js") == [False]
    socket = ("/_nicegui_ws/socket.io/", "websocket")
    assert await uses(*socket) == [False]
    by_itself = ("3", "40", '42["ack",{"next_message_id":7}]', '420["handshake",{}]', '42["javascript_response",{}]')
    assert await uses(*socket, *by_itself, '42["events"]', '42["log",{"a":"42[\\"event\\""}]') == [False]
    assert await uses(*socket, "3", '42["event",{"id":3}]', '4217["event",{}]') == [False, True, True]


def test_an_open_page_alone_does_not_keep_a_session() -> None:
    sessions = Sessions(60, 300, lambda: "token")
    sessions.begin("alice", Role.ADMIN, 0.0)
    assert all(sessions.find("token", float(now), used=False) for now in range(0, 61, 10))
    assert sessions.find("token", 61.0, used=False) is None


def test_the_sixth_wrong_password_waits() -> None:
    tries, keys = Tries(), ("address 10.0.0.6", "name alice")
    for now in range(5):
        assert tries.wait_s(keys, float(now)) == 0.0
        tries.failed(keys, float(now))
    assert tries.wait_s(keys, 10.0) == 290.0
    assert tries.wait_s(("address 10.0.0.7", "name alice"), 10.0) == 290.0
    assert tries.wait_s(("address 10.0.0.7", "name bob"), 10.0) == 0.0
    assert tries.wait_s(keys, 300.5) == 0.0
    tries.succeeded(keys)
    assert tries.wait_s(keys, 10.0) == 0.0


def test_tokens() -> None:
    assert same_token("abc", "abc")
    assert not same_token("", "")
    assert not same_token("é", "e")
    assert host_name("Console.Example:1") == "console.example"
