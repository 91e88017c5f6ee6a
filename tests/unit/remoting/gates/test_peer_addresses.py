"""Peers whose PROXY header is trusted, and the limit of connections per address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_probe import ServerProbe
from tianzhou.errors import ConfigError
from tianzhou.limits import Bounds
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.gates.peer_addresses import PeerCounts, TrustedProxies
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings
from tianzhou.wire.command import Command, encode

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WHO = b"PROXY TCP4 203.0.113.%d 10.0.0.1 4711 10911\r\n"


def server(seen: list[tuple[str, str]], trusted: str = "", **most: int) -> RemotingServer:
    def note(connection: Connection, command: Command) -> Reply:
        seen.append((connection.remote_ip, connection.verified_ip))
        return command.reply(0)

    return RemotingServer(
        "127.0.0.1",
        0,
        note,
        tls=ServerTls(TlsSettings("permissive")),
        trusted_proxies=TrustedProxies.parse(trusted),
        bounds=Bounds(SimpleNamespace(**most)),
    )


async def connect(to: RemotingServer, source: str = "127.0.0.1") -> Pair:
    return await asyncio.open_connection("127.0.0.1", to.port, local_addr=(source, 0))


async def served(pair: Pair, header: bytes = b"") -> bool:
    """Whether a request gets a reply; False when the connection was closed instead."""
    reader, writer = pair
    try:
        writer.write(header + encode(Command(1)))
        return len(await asyncio.wait_for(reader.read(4), 10)) == 4
    except ConnectionError:
        return False


async def gone(to: RemotingServer, left: int) -> None:
    async with asyncio.timeout(10):
        while ServerProbe(to).admitted > left:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("trusted", "believed"),
    [("", False), ("10.0.0.0/8", False), ("127.0.0.1", True), ("10.0.0.0/8; 127.0.0.0/8", True)],
)
async def test_a_forged_proxy_header_does_not_become_the_address_that_is_believed(trusted: str, believed: bool) -> None:
    seen: list[tuple[str, str]] = []
    async with server(seen, trusted) as to:
        pairs = [await connect(to), await connect(to)]
        assert await served(pairs[0], WHO % 9)
        assert await served(pairs[1])
        for _, writer in pairs:
            writer.close()
    assert seen == [("203.0.113.9", "203.0.113.9" if believed else "127.0.0.1"), ("127.0.0.1", "127.0.0.1")]


@pytest.mark.over_limit("maxConnectionsPerAddress")
async def test_an_address_with_too_many_connections_gets_no_more_and_others_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with server([], max_connections_per_address=2) as to:
        pairs = [await connect(to, "127.0.0.2") for _ in range(2)]
        assert [await served(pair) for pair in pairs] == [True, True]
        with caplog.at_level(logging.WARNING):
            more = [await connect(to, "127.0.0.2") for _ in range(100)]
            # Another address with each connection is not to be had by saying so.
            answers = [await served(pair, WHO % number) for number, pair in enumerate(more)]
        assert not any(answers)
        assert to.group.bounds.refusals.counts["maxConnectionsPerAddress"] == 100
        assert caplog.messages[0] == (
            "closing 127.0.0.2: it has 2 connections, the most allowed (maxConnectionsPerAddress)"
        )
        assert len(caplog.messages) <= 20
        friend = await connect(to, "127.0.0.3")
        assert await served(friend)
        pairs.pop()[1].close()
        await gone(to, 2)
        again = await connect(to, "127.0.0.2")
        assert await served(again)
        for _, writer in (*pairs, *more, friend, again):
            writer.close()
        await gone(to, 0)
        assert ServerProbe(to).counted_addresses == 0


async def test_clients_behind_a_trusted_load_balancer_are_counted_one_by_one() -> None:
    async with server([], "127.0.0.1", max_connections_per_address=1) as to:
        pairs = [await connect(to) for _ in range(5)]
        answers = [await served(pair, WHO % number) for pair, number in zip(pairs[:3], (1, 2, 3), strict=True)]
        assert answers == [True, True, True]
        await served(pairs[3], WHO % 2)
        assert await asyncio.wait_for(_end(pairs[3]), 10)
        assert await served(pairs[4]), "the balancer looks whether the server is there"
        for _, writer in pairs:
            writer.close()
        await gone(to, 0)
        assert ServerProbe(to).counted_addresses == 0


async def _end(pair: Pair) -> bool:
    with contextlib.suppress(ConnectionError):
        await pair[0].read()
    return True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10.0.0.1;proxy", "proxyProtocolTrusted=10.0.0.1;proxy: 'proxy' does not appear"),
        ("10.0.0.1/8", "has host bits set"),
        (";".join(["10.0.0.1"] * 1001), "1001 addresses, at most 1000"),
    ],
)
def test_what_is_no_list_of_addresses_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TrustedProxies.parse(text)


def test_addresses_of_both_kinds_are_compared() -> None:
    some = TrustedProxies.parse("10.0.0.7, 2001:db8::/32")
    assert [some.trusts(host) for host in ("10.0.0.7", "::ffff:10.0.0.7", "2001:db8::5%eth0")] == [True] * 3
    assert [some.trusts(host) for host in ("10.0.0.8", "::1", "", "a peer")] == [False] * 4


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "2001:db8::1", "odd"]))))
def test_counts_are_those_of_the_connections_that_are_open(steps: list[tuple[bool, Any]]) -> None:
    counts, model = PeerCounts(), Counter[str]()
    for opened, host in steps:
        if opened:
            counts.add(host)
            model[host] += 1
        elif model[host]:
            counts.remove(host)
            model[host] -= 1
    assert {host: counts.of(host) for host in model} == dict(model)
    assert len(counts) == sum(1 for count in model.values() if count)


def test_one_machines_ipv6_addresses_count_together() -> None:
    counts = PeerCounts()
    counts.add("2001:db8:0:1::1")
    assert counts.of("2001:db8:0:1:ffff::2") == 1
    assert counts.of("2001:db8:0:2::1") == 0
    assert counts.of("::ffff:10.0.0.1") == 0
