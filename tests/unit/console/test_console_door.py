"""Only authorised visitors get in: not other hosts, other sites, visitors without a login, or after too many
attempts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from console_probe import add_accounts, log_in, served_console, visitor_at
from tianzhou.console.accounts import FILE_NAME, ConsoleRole
from tianzhou.console.door import COOKIE, STATE, Door, host_name, is_named_here, is_same_origin
from tianzhou.console.login import local_path
from tianzhou.console.sessions import (
    MAX_COUNTED,
    TRIES,
    TRIES_OF_ADDRESS,
    LoginTries,
    Sessions,
    Visitor,
    network_of,
    same_token,
)
from tianzhou.console.settings import ConsoleSettings, check_proxies
from tianzhou.errors import ConfigError

VISITOR = Visitor("alice", ConsoleRole.ADMIN)


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
    """Return the response to a request, or `served` when the app gets it."""
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
    alice, bob = sessions.begin("alice", ConsoleRole.ADMIN, 0.0), sessions.begin("bob", ConsoleRole.VIEWER, 0.0)
    assert sessions.find(alice.token, 59.0) is alice
    assert sessions.find(bob.token, 61.0) is None
    for now in range(100, 300, 50):
        assert sessions.find(alice.token, float(now)) is alice
    assert not sessions.is_open(alice, 301.0)
    assert sessions.find(alice.token, 301.0) is None
    carol = sessions.begin("carol", ConsoleRole.VIEWER, 400.0)
    sessions.end(carol.token)
    assert sessions.find(carol.token, 400.0) is None
    dave = sessions.begin("dave", ConsoleRole.VIEWER, 400.0)
    sessions.end_all_of("dave")
    assert not sessions.is_open(dave, 400.0)


async def uses(path: str, kind: str = "http", *messages: str) -> list[bool]:
    """Return whether a request, or each web socket message, counts as use of the session."""
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
    sessions.begin("alice", ConsoleRole.ADMIN, 0.0)
    assert all(sessions.find("token", float(now), used=False) for now in range(0, 61, 10))
    assert sessions.find("token", 61.0, used=False) is None


def test_the_sixth_wrong_password_for_a_name_waits_at_its_address_alone() -> None:
    tries = LoginTries()
    for now in range(TRIES):
        assert tries.wait_s("alice", "10.0.0.6", float(now)) == 0.0
        tries.failed("alice", "10.0.0.6", float(now))
    assert tries.wait_s("alice", "10.0.0.6", 10.0) == 290.0
    assert tries.wait_s("bob", "10.0.0.6", 10.0) == 0.0, "another name of the address"
    assert tries.wait_s("alice", "10.0.0.7", 10.0) == 0.0, "the name from another address"
    assert tries.wait_s("alice", "10.0.0.6", 300.5) == 0.0
    tries.succeeded("alice", "10.0.0.6")
    assert tries.wait_s("alice", "10.0.0.6", 10.0) == 0.0


def test_an_address_that_guesses_for_many_names_waits() -> None:
    tries = LoginTries()
    for number in range(TRIES_OF_ADDRESS):
        assert tries.wait_s(f"name {number}", "10.0.0.6", 1.0) == 0.0
        tries.failed(f"name {number}", "10.0.0.6", 1.0)
    tries.succeeded("name 1", "10.0.0.6")
    assert tries.wait_s("alice", "10.0.0.6", 2.0) == 299.0
    assert tries.wait_s("alice", "10.0.0.7", 2.0) == 0.0


def test_addresses_that_one_machine_may_use_count_as_one() -> None:
    tries = LoginTries()
    for number in range(TRIES):
        tries.failed("alice", f"2001:db8::{number:x}", 1.0)
    assert tries.wait_s("alice", "2001:db8::ffff", 1.0) == 300.0
    assert tries.wait_s("alice", "2001:db8:0:1::1", 1.0) == 0.0
    assert [network_of(one) for one in ("::ffff:10.0.0.6", "10.0.0.6", "fe80::1%eth0", "", "unix:")] == [
        "10.0.0.6", "10.0.0.6", "fe80::/64", "", "unix:",
    ]  # fmt: skip


def test_counters_of_wrong_passwords_are_bounded() -> None:
    tries = LoginTries()
    for number in range(2 * MAX_COUNTED):
        tries.failed("alice", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1.0)
        if number % 100 == 0:
            tries.failed("n" * 1_000_000, "192.168.0.1", 1.0)
    assert len(tries) <= MAX_COUNTED
    assert tries.wait_s("n" * 1_000_000, "192.168.0.1", 1.0) == 300.0, "a counter that is used is not dropped"


@pytest.mark.parametrize("proxies", [["10.0.0.7"], ["10.0.0.0/24", "::1"], []])
def test_trusted_proxies_are_addresses_and_networks(proxies: list[str]) -> None:
    assert check_proxies(proxies) == tuple(proxies)


@pytest.mark.parametrize("proxy", ["", "proxy.example", "*", "10.0.0.7:80", "10.0.0.7/24"])
def test_other_proxies_are_refused(proxy: str) -> None:
    with pytest.raises(ConfigError, match="no address and no network"):
        check_proxies([proxy])


@pytest.mark.parametrize(("proxies", "known"), [((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.9")])
async def test_only_trusted_proxies_name_the_address_of_a_visitor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, proxies: tuple[str, ...], known: str
) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600, login=True, trusted_proxies=proxies)
    add_accounts(settings, {"alice": ConsoleRole.ADMIN})
    # The proxy appends the address that it sees. Addresses before it are the visitor's claim.
    forwarded = {"x-forwarded-for": "198.51.100.1, 203.0.113.9"}
    async with served_console(settings) as console, visitor_at(console) as visitor:
        assert (await log_in(visitor, "alice", "wrong", **forwarded)).status_code == 403
        assert f"wrong password for alice from {known}" in caplog.text
        assert (await log_in(visitor, "alice", **forwarded)).status_code == 303


async def test_five_wrong_passwords_lock_no_other_name(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600, login=True)
    add_accounts(settings, {"alice": ConsoleRole.ADMIN, "bob": ConsoleRole.VIEWER})
    async with served_console(settings) as console, visitor_at(console) as visitor:
        codes = [(await log_in(visitor, "alice", "wrong")).status_code for _ in range(TRIES + 1)]
        assert codes == [403] * TRIES + [429]
        assert (await log_in(visitor, "bob")).status_code == 303


async def test_accounts_that_cannot_be_read_end_in_words(tmp_path: Path) -> None:
    settings = ConsoleSettings("127.0.0.1:1", tmp_path, port=0, refresh_s=3600, login=True)
    add_accounts(settings, {"alice": ConsoleRole.ADMIN})
    async with served_console(settings) as console, visitor_at(console) as visitor:
        (tmp_path / FILE_NAME).write_text("no JSON")
        found = await visitor.get("/topics")
        assert (found.status_code, found.text) == (
            503,
            "the console cannot read its accounts; its log has the reason\n",
        )


def test_tokens() -> None:
    assert same_token("abc", "abc")
    assert not same_token("", "")
    assert not same_token("é", "e")
    assert host_name("Console.Example:1") == "console.example"
