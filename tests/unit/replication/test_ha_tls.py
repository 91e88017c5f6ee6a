"""TLS at the HA port: accepted and refused peers, and log lines of both sides (docs/adr/0017)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from authority import Authority, certified, trusting
from two_stores import bodies, caught_up, master, put, slave

from tianzhou.access.needs import plain_needs
from tianzhou.access.plain_config import Account
from tianzhou.clock import SystemClock
from tianzhou.limits import Refusals
from tianzhou.remoting.gates.access_gate import AccessGate
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.remoting.loop import run
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context
from tianzhou.replication import ha_client
from tianzhou.replication.allowed_addresses import AllowedAddresses
from tianzhou.replication.ha_server import HaServer
from tianzhou.replication.port_protection import PortProtection
from waiting import until_async

# The servers' loop; the scenarios run on asyncio's own loop.
pytestmark = pytest.mark.runner.with_args(run)
Log = pytest.LogCaptureFixture
SET_ENABLE = "if it takes TLS only (tls.server.mode=enforcing), set tls.enable=true here"
SET_CERTIFICATE = "tls.client.certPath has to be one that is trusted there"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_client, "AGAIN_S", 0.05)


def protected(settings: TlsSettings, allowed: str = "", access: AccessGate | None = None) -> PortProtection:
    return PortProtection(AllowedAddresses(allowed), ServerTls(settings), access=access)


def asking(authority: Authority, **more: str) -> TlsSettings:
    """Return the settings of a master that accepts only certificates of this authority."""
    return replace(
        certified(authority, "master"),
        server_mode="enforcing",
        need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=str(authority.path),
        **more,  # type: ignore[arg-type]
    )


def showing(authority: Authority, name: str, trusts: Authority | None = None) -> TlsSettings:
    certificate, key = authority.issue(name)
    return replace(trusting(trusts or authority), client_cert_path=certificate, client_key_path=key)


@asynccontextmanager
async def recorded(server: HaServer) -> AsyncIterator[tuple[int, bytearray]]:
    """Yield a port that leads to a master, and all bytes in both directions."""
    seen = bytearray()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                seen.extend(data)
                writer.write(data)
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(lead(reader, inner_writer), lead(inner_reader, writer))

    between = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield between.sockets[0].getsockname()[1], seen
    finally:
        between.close()


async def refused(folder: Path, server: HaServer, tls: TlsSettings | None, log: Log, line: str) -> None:
    """Check that a slave copies no byte, and that its log has a line with the reason."""
    context = None if tls is None else client_context(tls)
    async with slave(folder, server, context) as copy:
        await until_async(lambda: line in log.text, line, within_s=20)
        assert copy.end_offset == 0


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_log_is_copied_by_tls_and_nobody_between_can_read_it(tmp_path: Path, mode: str) -> None:
    authority = Authority(tmp_path)
    settings = replace(certified(authority), server_mode=mode)
    async with master(tmp_path / "m", protected(settings)) as (store, server), recorded(server) as (port, seen):
        put(store, 2_000)
        async with slave(tmp_path / "s", server, client_context(trusting(authority)), port) as copy:
            await caught_up(store, copy)
            put(store, 500, first=2_000)
            await caught_up(store, copy)
            assert bodies(copy) == bodies(store)
            assert server.slaves.connected[0].acked == store.end_offset
    assert len(seen) > store.end_offset
    assert (seen[0], b"body" in seen) == (0x16, False)


async def test_a_plain_slave_is_served_as_before_where_tls_is_not_enforced(tmp_path: Path) -> None:
    async with master(tmp_path / "m", protected(TlsSettings())) as (store, server):
        put(store, 500)
        async with (
            slave(tmp_path / "s", server) as copy,
            slave(tmp_path / "t", server, client_context(TlsSettings())) as other,
        ):
            await caught_up(store, copy)
            await caught_up(store, other)
            assert bodies(copy) == bodies(other) == bodies(store)


async def test_a_plain_slave_of_a_master_that_enforces_is_refused_and_both_say_so(tmp_path: Path, caplog: Log) -> None:
    async with master(tmp_path / "m", protected(TlsSettings("enforcing"))) as (store, server):
        put(store, 10)
        await refused(tmp_path / "s", server, None, caplog, SET_ENABLE)
        assert "speaks no TLS, and tls.server.mode is enforcing here; set tls.enable=true at the slave" in caplog.text
        assert not server.links


async def test_a_slave_by_tls_of_a_master_that_takes_none_says_what_to_do(tmp_path: Path, caplog: Log) -> None:
    async with master(tmp_path / "m", protected(TlsSettings("disabled"))) as (store, server):
        put(store, 10)
        await refused(tmp_path / "s", server, TlsSettings(), caplog, "tls.replication.enable=false")
        assert "it speaks TLS, and tls.server.mode is disabled here" in caplog.text


async def test_a_master_of_another_authority_or_host_is_refused(tmp_path: Path, caplog: Log) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    elsewhere = certified(authority, hosts=["mq.example.com"])
    trusts = trusting(authority)
    async with master(tmp_path / "m", protected(certified(authority, "here"))) as (store, server):
        put(store, 10)
        await refused(tmp_path / "s", server, trusting(other), caplog, "give tls.client.trustCertPath the certificate")
    async with master(tmp_path / "n", protected(elsewhere)) as (store, server):
        put(store, 10)
        says = "it is for mq.example.com; connect by a name the certificate is for, or set tls.client.checkHostName"
        await refused(tmp_path / "t", server, trusts, caplog, says)
        async with slave(tmp_path / "u", server, client_context(replace(trusts, client_check_host_name=False))) as copy:
            await caught_up(store, copy)


async def test_only_slaves_with_a_certificate_of_the_authority_copy(tmp_path: Path, caplog: Log) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with master(tmp_path / "m", protected(asking(authority))) as (store, server):
        put(store, 10)
        await refused(tmp_path / "s", server, trusting(authority), caplog, SET_CERTIFICATE)
        assert "shows no certificate, and one is required" in caplog.text
        caplog.clear()
        stranger = showing(other, "stranger", trusts=authority)
        await refused(tmp_path / "t", server, stranger, caplog, SET_CERTIFICATE)
        assert "the certificate shown is not trusted" in caplog.text
        async with slave(tmp_path / "u", server, client_context(showing(authority, "slave"))) as copy:
            await caught_up(store, copy)


async def test_new_certificates_are_used_for_the_next_connection(tmp_path: Path, caplog: Log) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    settings, trusts = certified(old), trusting(new)
    async with master(tmp_path / "m", protected(settings)) as (store, server):
        put(store, 10)
        async with slave(tmp_path / "s", server, client_context(trusts)) as copy:
            await until_async(lambda: "not trusted" in caplog.text, "refused")
            renewed = new.issue("renewed")
            for path, fresh in zip(settings.server_identity, renewed, strict=False):
                Path(path).write_bytes(Path(fresh).read_bytes())
            await caught_up(store, copy)


def gate(folder: Path) -> AccessGate:
    """Return a gate with two accounts: an administrator and an ordinary one."""
    file = folder / "plain_acl.yml"
    file.write_text("accounts:\n- {accessKey: reader-a, secretKey: reader-secret, defaultTopicPerm: SUB}\n")
    broker = Account("broker-b", "broker-secret", admin=True)
    return AccessGate(PlainFiles(file, folder / "acl", plain_needs, SystemClock(), broker).rules, Refusals())


async def test_a_slaves_certificate_has_to_be_an_account_that_may_replicate(tmp_path: Path, caplog: Log) -> None:
    authority = Authority(tmp_path)
    settings = replace(asking(authority, account_from="CN"), need_client_auth="optional", server_mode="permissive")
    access = gate(tmp_path)
    async with master(tmp_path / "m", protected(settings, access=access)) as (store, server):
        put(store, 10)
        says = "the account of its certificate, 'reader-a', may not copy the log"
        await refused(tmp_path / "s", server, showing(authority, "reader-a"), caplog, says)
        await refused(tmp_path / "t", server, trusting(authority), caplog, "shows no certificate")
        assert "list its address in replicationAllowedAddresses" in caplog.text
        await refused(tmp_path / "v", server, None, caplog, "ended the connection before it sent anything")
        async with slave(tmp_path / "u", server, client_context(showing(authority, "broker-b"))) as copy:
            await caught_up(store, copy)
    async with master(tmp_path / "n", protected(settings, "127.0.0.1", access)) as (store, server):
        put(store, 10)
        async with slave(tmp_path / "w", server) as copy:
            await caught_up(store, copy)


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x00\x04oops"])
async def test_who_says_too_little_or_nonsense_keeps_no_place(tmp_path: Path, said: bytes, caplog: Log) -> None:
    caplog.set_level(logging.ERROR)
    async with master(tmp_path / "m", protected(TlsSettings()), ha_housekeeping_interval=200) as (store, server):
        put(store, 10)
        writers = [(await asyncio.open_connection("127.0.0.1", server.port))[1] for _ in range(5)]
        for writer in writers:
            writer.write(said)
        await until_async(lambda: len(server.links) == 5 or bool(caplog.records), "they are there")
        if said != b"\x16":  # the handshake has a longer limit
            await until_async(lambda: not server.links, "they are gone")
        async with slave(tmp_path / "s", server, client_context(TlsSettings())) as copy:
            await caught_up(store, copy)
        for writer in writers:
            writer.close()
    assert not server.links
    assert not server.slaves.connected


def test_the_switch_for_replication_follows_the_one_for_all() -> None:
    assert TlsSettings().replicates(enabled=True)
    assert not TlsSettings().replicates(enabled=False)
    assert TlsSettings(replication_enable="true").replicates(enabled=False)
    assert not TlsSettings(replication_enable="false").replicates(enabled=True)
    with pytest.raises(ValueError, match=r"tls\.replication\.enable=yes: expected one of true, false"):
        TlsSettings(replication_enable="yes")
