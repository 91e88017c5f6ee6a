"""Addresses that clients cannot use: ports, TLS, signatures, other kinds of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority, certified, trusting

from tianzhou.admin import Admin
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.doctor import Report, diagnose
from tianzhou.doctor.illnesses import access, connect
from tianzhou.doctor.observations import (
    AddressSeen,
    BrokerSeen,
    ClusterSeen,
    Failure,
    NameServerSeen,
    PortKind,
    SecretFileSeen,
)
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.model import ClusterInfo
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.remoting.tls import TlsSettings

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


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (AddressSeen("10.9.9.9:10911", PortKind.BROKER, failure=Failure.NO_ROUTE), "host-unreachable"),
        (AddressSeen("10.0.0.1:10912", PortKind.BROKER, failure=Failure.SILENT), "ha-port"),
        (AddressSeen("10.0.0.1:80", PortKind.BROKER, PortKind.NOT_ROCKETMQ), "not-rocketmq"),
        (AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, unsigned=True), None),
    ],
)
def test_what_connecting_shows(seen: AddressSeen, name: str | None) -> None:
    assert [one.name for one in connect.findings(seen, ["10.0.0.1:10911"])] == ([name] if name else [])


def cluster(config: dict[str, str], seen: AddressSeen) -> ClusterSeen:
    status = BrokerStatus("c", "broker-a", 0, "10.0.0.1:10911")
    server = NameServerSeen("10.0.0.9:9876", ClusterInfo(), {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true"})
    return ClusterSeen(0, [server], [BrokerSeen(status, config, access=seen)])


def test_what_strangers_may_do() -> None:
    open_to_all = AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, plain=True, unsigned=True)
    port = AddressSeen("10.0.0.9:9876", PortKind.NAME_SERVER, PortKind.NAME_SERVER, plain=True, unsigned=True)
    config = {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true", "replicationAllowedAddresses": ""}
    found = list(access.findings(cluster(config, open_to_all), [port], [SecretFileSeen("/etc/plain_acl.yml", 0o644)]))
    names = [one.name for one in found]
    assert sorted(set(names)) == sorted(
        ["broker-open-to-all", "name-server-open-to-all", "remote-admin-open", "connections-not-encrypted",
         "replication-port-open", "secret-file-readable"]
    )  # fmt: skip
    assert "reset the offsets of any group" in next(one.message for one in found if one.name == "broker-open-to-all")
    assert "register a broker" in next(one.message for one in found if one.name == "name-server-open-to-all")


def test_what_strangers_may_not_do() -> None:
    closed = AddressSeen("10.0.0.1:10911", PortKind.BROKER, PortKind.BROKER, plain=False, unsigned=False)
    port = AddressSeen("127.0.0.1:9876", PortKind.NAME_SERVER, PortKind.NAME_SERVER, plain=True, unsigned=True)
    config = {"bindAddress": "0.0.0.0", "enableRemoteAdmin": "true", "replicationAllowedAddresses": "10.0.0.2"}
    assert list(access.findings(cluster(config, closed), [port], [SecretFileSeen("/etc/plain_acl.yml", 0o600)])) == []
    local = {"bindAddress": "127.0.0.1", "enableRemoteAdmin": "true"}
    assert list(access.findings(cluster(local, replace(closed, unsigned=True, plain=True)), [])) == []
