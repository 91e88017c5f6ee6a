"""Advice to callers for each unsuccessful response code."""

from __future__ import annotations

import pytest

from tianzhou.client.cluster.remedies import broker_error
from tianzhou.remoting.error_codes import unsupported
from tianzhou.wire.codes import OF_NAME_SERVERS, RequestCode
from tianzhou.wire.command import Command

PORTS = "a name server's port is 9876 as a rule, a broker's 10911"


def told(code: int, remark: str | None) -> str:
    return str(broker_error(Command(code, remark=remark), "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("remark", "hint"),
    [
        (None, " (the server's log has the cause)"),
        ("ValueError: x", " (the server's log has the cause)"),
        ("java.lang.IllegalStateException: x", " (the server's log has the cause)"),
        ("TIMER_DELAY_SEC: this version delivers no messages at arbitrary times (timers); use a delay level", ""),
    ],
)
def test_the_log_is_named_when_it_has_more_to_say(remark: str | None, hint: str) -> None:
    assert told(1, remark) == f"code 1 from 127.0.0.1:1: {remark or 'no remark'}{hint}"


def test_apaches_servers_are_distinguished_by_what_they_do_not_serve() -> None:
    assert told(3, " request type 206 not supported").endswith(
        f"(GET_ALL_TOPIC_LIST_FROM_NAMESERVER is served by a name server, and this seems to be a broker; {PORTS})"
    )
    assert told(3, " request type 26 not supported").endswith(
        f"(GET_BROKER_CONFIG is served by a broker, and this seems to be a name server; {PORTS})"
    )
    for newer in (RequestCode.POP_MESSAGE, 4711):
        assert told(3, f" request type {int(newer)} not supported").endswith("; it may be older than this client)")


def test_what_a_refusal_says_itself_is_not_repeated() -> None:
    text = "or set enableRemoteAdmin=true in the broker's configuration file"
    assert told(16, text) == f"code 16 from 127.0.0.1:1: {text}"
    assert told(16, "forbidden").endswith("and the credentials)")


def test_our_servers_say_what_they_are() -> None:
    remark = unsupported(Command(206), "broker", "10.0.0.1:9876 or 10.0.0.2:9876").remark
    assert remark == (
        " request type 206 not supported: this is a broker, and GET_ALL_TOPIC_LIST_FROM_NAMESERVER is served by a name"
        " server; give its address, as 10.0.0.1:9876 or 10.0.0.2:9876"
    )
    assert told(3, remark).endswith(f"({PORTS})")
    assert unsupported(Command(4711), "broker", "x").remark == " request type 4711 not supported"
    assert unsupported(Command(RequestCode.POP_MESSAGE), "broker").remark == " request type 200050 not supported"
    assert all("this is a broker" in str(unsupported(Command(code), "broker").remark) for code in OF_NAME_SERVERS)
