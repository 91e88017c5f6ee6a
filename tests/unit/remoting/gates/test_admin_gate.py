"""Requests that can lose messages or stop the service are accepted only from this machine, unless a setting allows
others.
"""

from __future__ import annotations

from typing import Any

import pytest

from tianzhou.errors import BrokerError
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.gates.admin_gate import DANGEROUS, AdminGate, exposure_warning
from tianzhou.remoting.gates.locality import is_on_this_machine, origin
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.proxies.proxy import parse
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command


class Placed(MemoryTransport):
    """A transport with addresses at both ends."""

    def __init__(self, connection: Connection, peer: str, own: str) -> None:
        super().__init__(connection, (peer, 4000))
        self._extra["sockname"] = (own, 10911)


def connection(peer: str, own: str = "10.0.0.5", proxied: str = "") -> Connection:
    made = Connection(ConnectionGroup(lambda *_: None, clock=VirtualClock(), idle_timeout_s=0))  # type: ignore[arg-type]
    if proxied:
        made.use_proxy_header(parse(f"PROXY {proxied}\r\n".encode()))
    Placed(made, peer, own)
    return made


@pytest.mark.parametrize(
    ("peer", "proxied", "near"),
    [
        ("127.0.0.1", "", True),
        ("127.8.0.1", "", True),
        ("::1", "", True),
        ("::ffff:127.0.0.1", "", True),
        ("10.0.0.5", "", True),  # its own address, used by tools on the broker's machine
        ("10.0.0.6", "", False),
        ("fe80::1%eth0", "", False),
        ("127.0.0.1", "TCP4 203.0.113.9 10.0.0.5 4000 10911", False),  # through a load balancer on this machine
        ("203.0.113.9", "TCP4 127.0.0.1 10.0.0.5 4000 10911", False),  # any peer can claim it
        ("127.0.0.1", "TCP4 127.0.0.1 10.0.0.5 4000 10911", True),
        ("127.0.0.1", "UNKNOWN", True),
    ],
)
def test_who_is_on_this_machine(peer: str, proxied: str, near: bool) -> None:
    assert is_on_this_machine(connection(peer, proxied=proxied)) is near


def test_where_a_peer_comes_from_is_who_sends_and_for_whom() -> None:
    proxied = connection("10.0.0.9", proxied="TCP4 203.0.113.9 10.0.0.5 4000 10911")
    assert origin(proxied) == ("10.0.0.9", "203.0.113.9")
    assert origin(connection("10.0.0.9")) == ("10.0.0.9", "10.0.0.9")


def served(code: int, peer: str, *, opened: bool) -> Any:
    table = AdminGate("broker", lambda: opened).guarded({code: lambda _connection, _command: "done"})
    return table[code](connection(peer), Command(code))


@pytest.mark.parametrize("code", sorted(DANGEROUS))
def test_a_dangerous_request_of_another_machine_needs_the_key(code: int) -> None:
    assert served(code, "127.0.0.1", opened=False) == "done"
    assert served(code, "10.0.0.6", opened=True) == "done"
    with pytest.raises(BrokerError) as refused:
        served(code, "10.0.0.6", opened=False)
    assert refused.value.code == 16
    name = RequestCode(code).name
    assert refused.value.remark == (
        f"{name} ({code}) {DANGEROUS[code]}, and 10.0.0.6:4000 is another machine; ask from the broker's own machine, "
        "or set enableRemoteAdmin=true in the broker's configuration file"
    )


def test_other_requests_have_their_handlers_themselves() -> None:
    handlers = {code: (lambda: None) for code in set(RequestCode) - DANGEROUS.keys()}
    assert AdminGate("broker", lambda: False).guarded(handlers) == handlers


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_nothing_is_shown_of_a_server_that_only_this_machine_reaches(host: str) -> None:
    assert exposure_warning("broker", host, False) == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.5", "broker.example"])
def test_a_server_that_others_reach_says_what_they_may(host: str) -> None:
    assert "settings and deletions need this machine, or enableRemoteAdmin=true" in exposure_warning(
        "broker", host, False
    )
    assert "change settings and delete (enableRemoteAdmin=true)" in exposure_warning("name server", host, True)
    assert "read any topic, by offset too, create topics, reset offsets" in exposure_warning("broker", host, False)
    assert "take the name of one that is gone" in exposure_warning("name server", host, False)
    for server in ("broker", "name server"):
        assert "set aclEnable or authenticationEnabled" in exposure_warning(server, host, False)


@pytest.mark.parametrize("opened", [False, True])
def test_a_server_that_checks_who_asks_is_not_warned_of(opened: bool) -> None:
    assert exposure_warning("broker", "0.0.0.0", opened, checked=True) == ""
    assert "without checking who asks" in exposure_warning("broker", "0.0.0.0", opened, checked=False)
