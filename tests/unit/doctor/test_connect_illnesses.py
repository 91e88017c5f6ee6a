"""Addresses that clients cannot use: ports, TLS, signatures, other kinds of servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority, certified, trusting
from ill_clusters import named

from server_ports import server_ports
from tianzhou.admin import Admin
from tianzhou.doctor import Report, diagnose
from tianzhou.doctor.looks.address import see_address
from tianzhou.doctor.observations import Failure, PortKind
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings
from tianzhou.testing import AsyncCluster
from tianzhou.testing.brokers import ClusterBroker

ACCOUNTS = """
accounts:
- accessKey: administrator
  secretKey: admin-secret
  admin: true
"""
LIMIT_MS = 2_000
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def look(namesrv: str, address: str | None = None, timeout_ms: float = LIMIT_MS, **options: Any) -> Report:
    async with Admin(namesrv, timeout_ms=round(timeout_ms), **options) as admin:
        return await diagnose(admin, "connect", address, timeout_ms=timeout_ms)


@asynccontextmanager
async def name_server(folder: Path, tls: TlsSettings) -> AsyncIterator[str]:
    settings = replace(
        NamesrvSettings(),
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with NameServer(settings, tls=tls) as server:
        yield f"127.0.0.1:{server.port}"


@asynccontextmanager
async def listener(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_servers_that_speak_tls_only_or_never(tmp_path: Path) -> None:
    async with name_server(tmp_path, TlsSettings(server_mode="enforcing")) as address:
        assert "tls-required" in (await look(address)).names
        assert (await look(address, tls=True)).names == []
    async with name_server(tmp_path, TlsSettings(server_mode="disabled")) as address:
        assert "tls-not-spoken" in (await look(address, tls=True)).names
        assert (await look(address)).names == []
    async with name_server(tmp_path, TlsSettings(server_mode="permissive")) as address:
        trusting_nobody = TlsSettings(enable=True, test_mode_enable=False, client_auth_server=True)
        assert "certificate-not-trusted" in (await look(address, tls=trusting_nobody)).names


async def test_a_server_that_asks_for_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("doctor")
    mine = replace(trusting(authority), client_cert_path=certificate, client_key_path=key)
    at_server = replace(
        certified(authority),
        server_mode="enforcing",
        server_auth_client=True,
        need_client_auth="require",
        server_trust_cert_path=str(authority.path),
    )
    async with name_server(tmp_path, at_server) as address:
        assert (await look(address, tls=mine)).names == []
        assert not (await look(address, tls=trusting(authority))).healthy


async def test_signatures(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server:
        where = server.namesrv_address
        assert "signature-missing" in (await look(where)).names
        wrong = await look(where, access_key="administrator", secret_key="not-this-one")
        assert "signature-refused" in wrong.names
        right = {"access_key": "administrator", "secret_key": "admin-secret"}
        assert (await look(where, **right)).names == []
        async with Admin(where, **right) as admin:
            report = await diagnose(admin, "access", timeout_ms=LIMIT_MS)
            assert not {"broker-open-to-all", "name-server-open-to-all"} & set(report.names)
            (tmp_path / "plain_acl.yml").chmod(0o644)
            assert "secret-file-readable" in (await diagnose(admin, "access", timeout_ms=LIMIT_MS)).names


async def test_other_servers_at_the_address(tmp_path: Path) -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with EmbeddedServer(EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0)) as server:
        where, broker = server.namesrv_address, server.broker_address
        assert (await look(where)).names == []
        assert (await look(where, broker)).names == []
        host, _, port = broker.rpartition(":")
        assert (await look(where, f"{host}:{int(port) - 2}")).names == ["fast-port"]
        assert "wrong-server" in (await look(broker)).names
        assert (await look(where, "nonsense")).names == ["no-address"]
        assert (await look(where, "no..such..host:10911")).names == ["host-name-unknown"]
        assert (await look(where, "127.0.0.1:1")).names == ["port-closed"]
        async with listener(hang_up) as address:
            assert (await look(where, address)).names == ["not-rocketmq"]
        async with listener(silent) as address:
            assert (await look(where, address, timeout_ms=200)).names == ["server-does-not-answer"]
            async with Admin(where, tls=True) as admin:
                seen = await see_address(admin.instance, address, PortKind.BROKER, 200)
            assert seen.failure is Failure.SILENT, "a process that hangs shakes no hands, but its address is reached"


async def test_ports_between_brokers(tmp_path: Path) -> None:
    """A client's request on these ports does not come from a slave or member; the doctor names the kind of port."""
    async with EmbeddedServer(EmbeddedSettings(tmp_path / "one", namesrv_port=0, broker_port=0)) as server:
        where, broker = server.namesrv_address, server.broker_address
        host, _, port = broker.rpartition(":")
        (found,) = (await look(where, f"{host}:{int(port) + 1}")).findings
        assert (found.name, found.fix) == ("ha-port", f"Use the broker's own port: {broker}")
    chosen, member = (server_ports() for _ in range(2))
    async with AsyncCluster(settings={"haListenPort": chosen}) as one:
        assert (await look(one.namesrv_addr, f"127.0.0.1:{chosen}")).names == ["ha-port"]
    group = {"enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0",
             "dLegerPeers": f"n0-127.0.0.1:{member}"}  # fmt: skip
    async with AsyncCluster(settings=group) as alone:
        broker = alone.brokers["broker-a"].address
        (found,) = (await look(alone.namesrv_addr, f"127.0.0.1:{member}")).findings
        assert (found.name, found.fix) == ("ha-port", f"Use the broker's own port: {broker}")
        assert (await look(alone.namesrv_addr, broker)).names == []


async def test_packets_that_are_dropped(tmp_path: Path) -> None:
    """Like a firewall: a listener with a full backlog drops further connects."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as stack:
        address = full.getsockname()
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        async with name_server(tmp_path, TlsSettings(server_mode="disabled")) as where:
            found = await look(where, f"127.0.0.1:{address[1]}", timeout_ms=300)
            assert found.names == ["host-unreachable"]


async def test_what_strangers_may_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "broker.example")
    opened = {"name-server-open-to-all", "broker-open-to-all", "remote-admin-open", "connections-not-encrypted",
              "replication-port-open"}  # fmt: skip
    values = {"bindAddress": "broker.example", "brokerIP1": "broker.example", "brokerConfigPath": ""}
    namesrv = replace(
        NamesrvSettings(),
        bind_address="broker.example",
        listen_port=0,
        enable_remote_admin=True,
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    async with NameServer(namesrv) as server:
        where = f"broker.example:{server.port}"
        broker = ClusterBroker("broker-a", tmp_path / "a", where, None, values | {"enableRemoteAdmin": True})
        await broker.start()
        async with Admin(where, timeout_ms=LIMIT_MS) as admin:
            report = await diagnose(admin, "access", timeout_ms=LIMIT_MS)
            assert opened <= set(report.names)
            subjects = {one.subject for one in report.findings if one.name == "remote-admin-open"}
            assert subjects == {"broker broker-a", f"name server {where}"}
        await broker.stop()
    # The same servers at loopback are not reachable for others, so no finding.
    async with AsyncCluster() as local, Admin(local.namesrv_addr, timeout_ms=LIMIT_MS) as admin:
        assert (await diagnose(admin, "access", timeout_ms=LIMIT_MS)).names == []
