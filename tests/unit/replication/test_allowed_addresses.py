"""Allowed source addresses of a group's brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from two_stores import store_of

from tianzhou.clock import SystemClock
from tianzhou.errors import ConfigError, ProtocolError
from tianzhou.replication.allowed_addresses import AllowedAddresses
from tianzhou.replication.ha_server import HaServer
from tianzhou.replication.port_protection import PortProtection


@pytest.mark.parametrize(
    ("text", "ip", "allowed"),
    [
        ("", "203.0.113.9", True),
        ("10.0.0.7, 10.1.0.0/16", "10.0.0.7", True),
        ("10.0.0.7, 10.1.0.0/16", "10.1.2.3", True),
        ("10.0.0.7, 10.1.0.0/16", "10.0.0.8", False),
        ("10.0.0.7", "::ffff:10.0.0.7", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.0.0.7", "?", False),
    ],
)
def test_who_is_among_them(text: str, ip: str, allowed: bool) -> None:
    if allowed:
        AllowedAddresses(text).check(ip)
    else:
        with pytest.raises(ProtocolError, match="not among replicationAllowedAddresses"):
            AllowedAddresses(text).check(ip)


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.1/8", "broker-a", ",".join(["10.0.0.1"] * 1001)])
def test_what_is_no_list_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="replicationAllowedAddresses"):
        AllowedAddresses(text)


@pytest.mark.parametrize(("text", "taken"), [("", True), ("127.0.0.1", True), ("10.0.0.0/8", False)])
async def test_the_ha_port_closes_who_is_not_among_them(
    tmp_path: Path, text: str, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        store_of(tmp_path, "ASYNC_MASTER") as store,
        HaServer(store, SystemClock(), "127.0.0.1", 0, PortProtection(AllowedAddresses(text))) as server,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write((0).to_bytes(8, "big"))
        try:
            first = await asyncio.wait_for(reader.read(1), 10)
        except ConnectionResetError:
            first = b""
        writer.close()
    assert bool(first) is taken
    assert ("not among replicationAllowedAddresses" in caplog.text) is not taken
