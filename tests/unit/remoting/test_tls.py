"""TLS and plain on one port, on both event loops; accepted, refused and replaced certificates."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import ssl
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from authority import Authority, certified, trusting
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tianzhou.errors import ConfigError, ConnectFailed, ConnectionLost
from tianzhou.limits import Bounds
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context, load_tls
from tianzhou.wire.command import Command, encode
from waiting import until_async

TWO = Bounds(SimpleNamespace(max_connections=2))
BOTH_LOOPS = True


def echo(_connection: Connection, command: Command) -> Reply:
    return command.reply(0, body=bytes(command.body))


def server(settings: TlsSettings, **options: Any) -> RemotingServer:
    return RemotingServer("127.0.0.1", 0, echo, tls=ServerTls(settings), **options)


def client(settings: TlsSettings | None = None) -> RemotingClient:
    return RemotingClient(tls=None if settings is None else client_context(settings))


async def echoed(of: RemotingClient, to: RemotingServer, body: bytes = b"hello") -> None:
    reply = await of.invoke(f"127.0.0.1:{to.port}", Command(1, body=body), 10_000)
    assert reply.body == body


async def test_plain_and_tls_share_a_port_without_any_configuration() -> None:
    async with server(TlsSettings()) as to, client() as plain, client(TlsSettings()) as secure:
        await asyncio.gather(
            *(echoed(one, to, os.urandom(size)) for size in (0, 5, 3_000_000) for one in (plain, secure))
        )
        many = [secure.invoke(f"127.0.0.1:{to.port}", Command(1, body=b"%d" % n), 10_000) for n in range(2000)]
        assert [reply.body for reply in await asyncio.gather(*many)] == [b"%d" % n for n in range(2000)]
        assert len(to.connections) == 2


async def test_a_lost_tls_connection_is_freed_without_the_garbage_collector() -> None:
    def connections() -> int:
        return sum(type(one) is Connection for one in gc.get_objects())

    gc.collect()
    before = connections()
    gc.disable()
    try:
        async with server(TlsSettings()) as to:
            for _ in range(3):
                async with client(TlsSettings()) as secure:
                    await echoed(secure, to, bytes(1_000_000))
            await until_async(lambda: connections() == before)
    finally:
        gc.enable()


async def test_enforcing_closes_who_speaks_plain(caplog: pytest.LogCaptureFixture) -> None:
    async with server(TlsSettings("enforcing")) as to, client() as plain, client(TlsSettings()) as secure:
        await echoed(secure, to)
        with pytest.raises(ConnectionLost):
            await echoed(plain, to)
        await echoed(secure, to)
    assert "tls.server.mode is enforcing" in caplog.text


async def test_disabled_closes_who_speaks_tls_and_the_client_asks_the_right_question() -> None:
    async with server(TlsSettings("disabled")) as to, client() as plain, client(TlsSettings()) as secure:
        await echoed(plain, to)
        with pytest.raises(ConnectFailed, match="does the server speak TLS"):
            await echoed(secure, to)


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x00\x04oops"])
async def test_who_says_too_little_or_nonsense_is_dropped_and_others_are_served(said: bytes) -> None:
    async with server(TlsSettings(), idle_timeout_s=0.2, bounds=TWO) as to, client(TlsSettings()) as secure:
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(said)
        if said != b"\x16":  # the handshake has a longer limit
            while await asyncio.wait_for(reader.read(100), 10):
                pass
        await echoed(secure, to)
        writer.close()


@pytest.mark.over_limit("maxHandshakeSeconds")
@pytest.mark.parametrize("said", [b"\x16\x03\x01", b"PROXY TCP4 10.", b"\r\n\r\n\0\r\nQUIT\n"])
async def test_who_ends_no_handshake_is_dropped(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.remoting.server.HANDSHAKE_TIMEOUT_S", 0.2)
    bounds = Bounds()
    async with server(TlsSettings(), bounds=bounds) as to, client(TlsSettings()) as secure:
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(said)
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.wait_for(reader.read(100), 10):
                pass
        await echoed(secure, to)
        writer.close()
    assert bounds.refusals.counts == {"maxHandshakeSeconds": 1}


async def test_who_never_says_anything_is_dropped_and_counted() -> None:
    bounds = Bounds(SimpleNamespace(first_request_timeout_millis=100))
    async with server(TlsSettings(), bounds=bounds) as to:
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        assert not await asyncio.wait_for(reader.read(100), 10)
        writer.close()
    assert bounds.refusals.counts == {"firstRequestTimeoutMillis": 1}


async def test_connections_that_ended_count_no_more() -> None:
    async with server(TlsSettings(), bounds=TWO) as to:
        for _ in range(5):
            async with client(TlsSettings()) as secure:
                await echoed(secure, to)
            while to.connections:
                await asyncio.sleep(0.01)


async def test_a_client_verifies_the_server_on_request(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")

    async with (
        server(certified(authority)) as to,
        client(trusting(authority)) as knows,
        client(trusting(other)) as knows_not,
        client(TlsSettings()) as trusts_all,
    ):
        await echoed(knows, to)
        await echoed(trusts_all, to)
        with pytest.raises(ConnectFailed, match=r"not trusted .*tls\.client\.trustCertPath"):
            await echoed(knows_not, to)


async def test_a_certificate_of_another_host_is_refused_and_says_whose_it_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    elsewhere = certified(authority, hosts=["mq.example.com", "10.1.2.3"])
    asks_not = replace(trusting(authority), client_check_host_name=False)
    own = ssl.create_default_context(cafile=str(authority.path))

    async with (
        server(elsewhere) as to,
        client(trusting(authority)) as checks,
        client(asks_not) as trusts_the_signer,
        RemotingClient(tls=own) as of_the_user,
    ):
        said = (
            r"not trusted \(IP address mismatch.*'127\.0\.0\.1'.*\); it is for mq\.example\.com, 10\.1\.2\.3;"
            r" connect by a name the certificate is for, or set "
        )
        with pytest.raises(ConnectFailed, match=said + r"tls\.client\.checkHostName=false"):
            await echoed(checks, to)
        await echoed(trusts_the_signer, to)
        with pytest.raises(ConnectFailed, match=said + r"check_hostname=False at the ssl\.SSLContext"):
            await echoed(of_the_user, to)


async def test_a_client_connects_by_name_or_address_when_the_certificate_has_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async with server(certified(authority)) as to, client(trusting(authority)) as checks:
        for host in ("127.0.0.1", "localhost"):
            assert (await checks.invoke(f"{host}:{to.port}", Command(1, body=b"hi"), 10_000)).body == b"hi"


async def test_a_handshake_that_fails_says_why_on_both_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with server(certified(authority)) as to, client(trusting(other)) as knows_not:
        with pytest.raises(ConnectFailed, match="unable to get local issuer certificate"):
            await echoed(knows_not, to)
        for _ in range(100):
            if "could not be set up" in caplog.text:
                break
            await asyncio.sleep(0.01)
    abrupt = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = abrupt.sockets[0].getsockname()[1]
    async with abrupt, client(trusting(authority)) as knows:
        with pytest.raises(ConnectFailed, match=r"ended the connection in the TLS handshake.*\(\w+Error\)"):
            await knows.invoke(f"127.0.0.1:{port}", Command(1), 5_000)
    (line,) = [r.getMessage() for r in caplog.records if "could not be set up" in r.getMessage()]
    assert re.search(r"closing 127\.0\.0\.1:\d+: it could not be set up: .*(does not trust|certificate)", line)


async def test_a_server_requests_certificates_of_clients_when_configured(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    asking = replace(
        certified(authority),
        server_mode="enforcing",
        need_client_auth="require",
        server_auth_client=True,
        server_trust_cert_path=str(authority.path),
    )
    certificate, key = authority.issue("client", password="sesame")
    known = replace(
        trusting(authority), client_cert_path=certificate, client_key_path=key, client_key_password="sesame"
    )

    async with server(asking) as to, client(known) as one, client(trusting(authority)) as nobody:
        await echoed(one, to)
        with pytest.raises((ConnectFailed, ConnectionLost)):
            await echoed(nobody, to)


async def test_new_certificates_come_into_force_once_both_files_have_changed(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    settings = certified(old)
    tls = ServerTls(settings)
    certificate, key = Path(settings.server_cert_path), Path(settings.server_key_path)
    fresh = [Path(path).read_bytes() for path in new.issue("fresh")]

    async with (
        RemotingServer("127.0.0.1", 0, echo, tls=tls) as to,
        client(trusting(old)) as before,
        client(trusting(old)) as too_late,
        client(trusting(new)) as after,
    ):
        await echoed(before, to)
        certificate.write_bytes(fresh[0])
        tls.refresh()
        with pytest.raises(ConnectFailed):
            await echoed(after, to)
        key.write_bytes(fresh[1])
        tls.refresh()
        await echoed(after, to)
        with pytest.raises(ConnectFailed):
            await echoed(too_late, to)
        await echoed(before, to)


def test_certificates_that_cannot_be_used_leave_the_old_ones_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    settings = certified(authority)
    tls = ServerTls(settings)
    before = tls.context()
    with caplog.at_level(logging.ERROR):
        for path in (settings.server_cert_path, settings.server_key_path):
            Path(path).write_text("nonsense")
        tls.refresh()
    assert tls.context() is before
    assert "the old ones stay in force" in caplog.text
    for path, content in zip(settings.server_identity, authority.issue("again"), strict=False):
        Path(path).write_bytes(Path(content).read_bytes())
    tls.refresh()
    assert tls.context() is not before


def test_the_file_goes_before_the_configuration_except_for_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.mode=disabled\ntls.enable=true\ntls.server.need.client.auth=optional\n")
    values = {"tls.config.file": str(path), "tls.server.need.client.auth": "none", "listenPort": "1"}
    settings = load_tls(values)
    assert (settings.server_mode, settings.enable, settings.need_client_auth) == ("permissive", False, "optional")


def test_what_is_not_said_follows_from_what_is() -> None:
    assert load_tls({"tls.server.mode": "enforcing"}).enable
    assert not load_tls({"tls.server.mode": "enforcing", "tls.enable": "false"}).enable
    assert load_tls({}).test_mode_enable
    assert not load_tls({"tls.server.certPath": "a"}).test_mode_enable
    assert not load_tls({"tls.client.authServer": "true"}).test_mode_enable
    assert not load_tls({"tls.client.certPath": "a"}).test_mode_enable
    assert load_tls({"tls.server.certPath": "a", "tls.test.mode.enable": "true"}).test_mode_enable


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"tls.server.mode": "enforcng"}, "tls.server.mode=enforcng: expected one of disabled, permissive, enforcing"),
        ({"tls.server.need.client.auth": "yes"}, "expected one of none, optional, require"),
        ({"tls.enable": "on"}, "tls.enable=on: expected true or false"),
        ({"tls.config.file": "no/such/file"}, "tls.config.file=no/such/file: No such file"),
    ],
)
def test_settings_that_cannot_be_are_named(values: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_tls(values)


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("one", password="sesame")
    _, stranger = authority.issue("two")
    good = TlsSettings(
        test_mode_enable=False, server_cert_path=certificate, server_key_path=key, server_key_password="sesame"
    )
    assert isinstance(ServerTls(good).context(), ssl.SSLContext)
    for bad, says in [
        (replace(good, server_key_password="wrong"), "tls.server.keyPassword has to open the key"),
        (replace(good, server_key_path=stranger), "belong together"),
        (replace(good, server_key_path="away.pem"), "tls.server.keyPath=away.pem: there is no such file"),
        (replace(good, server_key_path=""), "needs tls.server.certPath and tls.server.keyPath"),
        (replace(good, need_client_auth="require"), "tls.server.authClient=true"),
        (
            replace(
                good,
                server_mode="enforcing",
                need_client_auth="require",
                server_auth_client=True,
                server_trust_cert_path=key,
            ),
            "tls.server.trustCertPath",
        ),
    ]:
        with pytest.raises(ConfigError, match=says):
            ServerTls(bad)


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
async def test_a_load_balancer_says_whom_it_speaks_for(mode: str) -> None:
    """The header precedes TLS. Lists and logs have the client's address, stored messages the balancer's."""
    seen: list[tuple[str, bytes, object]] = []

    def note(connection: Connection, command: Command) -> Reply:
        told = connection.attributes.get("proxy_protocol_tlv_0xe0")
        seen.append((connection.remote_address, connection.remote_host_bytes, told))
        return command.reply(0)

    headers = [
        b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 10911\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xcb\0\x71\x09\x0a\0\0\x01\x12\x67\x2a\x9f\xe0\0\x03vpc",
    ]

    async with RemotingServer("127.0.0.1", 0, note, tls=ServerTls(TlsSettings(mode))) as to:
        for header in headers:
            reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
            for piece in (header[:7], header[7:]):
                writer.write(piece)
                await asyncio.sleep(0.02)
            if mode != "disabled":
                await writer.start_tls(client_context(TlsSettings()))
            writer.write(encode(Command(1)))
            assert await asyncio.wait_for(reader.readexactly(4), 10)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(b"PROXY nobody\r\n  ")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    home = bytes([127, 0, 0, 1])
    assert seen == [("203.0.113.9:4711", home, None), ("203.0.113.9:4711", home, "vpc")]


OLD = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1


def outdated(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return a context for one old version of TLS only, if this machine's OpenSSL supports it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize("version", OLD)
async def test_old_versions_of_tls_are_refused_and_the_log_says_so(
    version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(TlsSettings()) as to:
        async with RemotingClient(tls=outdated(client_context(TlsSettings()), version)) as old:
            with pytest.raises(
                ConnectFailed, match=r"ended the connection in the TLS handshake.*1\.2|no version of TLS in common"
            ):
                await echoed(old, to)
        for _ in range(100):
            if "could not be set up" in caplog.text:
                break
            await asyncio.sleep(0.01)
    assert "only speaks a version of TLS that is too old" in caplog.text


@pytest.mark.parametrize("version", OLD)
async def test_a_server_that_speaks_old_versions_only_is_refused(version: ssl.TLSVersion, tmp_path: Path) -> None:
    certificate, key, _ = certified(Authority(tmp_path)).server_identity
    context = outdated(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), version)
    context.load_cert_chain(certificate, key)
    old = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0, ssl=context)
    async with old, client(TlsSettings()) as of:
        with pytest.raises(ConnectFailed, match="TLS"):
            await of.invoke(f"127.0.0.1:{old.sockets[0].getsockname()[1]}", Command(1), 5_000)


def test_no_context_compresses_renegotiates_or_speaks_what_is_older_than_1_2(tmp_path: Path) -> None:
    settings = certified(Authority(tmp_path))
    for context in (
        ServerTls(TlsSettings()).context(),
        ServerTls(settings).context(),
        client_context(TlsSettings()),
        client_context(replace(settings, client_auth_server=True)),
    ):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.options & ssl.OP_NO_RENEGOTIATION


async def test_a_client_uses_new_files_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its authority and certificate files change during its life; broken files have no effect."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.path.read_bytes())
    certificate, key = (Path(path) for path in old.issue("client"))
    mine = replace(
        trusting(old),
        client_trust_cert_path=str(trusted),
        client_cert_path=str(certificate),
        client_key_path=str(key),
    )

    def asking(authority: Authority) -> TlsSettings:
        return replace(
            certified(authority),
            server_mode="enforcing",
            need_client_auth="require",
            server_auth_client=True,
            server_trust_cert_path=str(authority.path),
        )

    async with server(asking(old)) as before, server(asking(new)) as after, client(mine) as of:
        await echoed(of, before)
        with pytest.raises(ConnectFailed, match="not trusted"):
            await echoed(of, after)

        trusted.write_text("nonsense")
        with pytest.raises(ConnectFailed, match="not trusted"):
            await echoed(of, after)
        assert "the old ones stay in force: tls.client.trustCertPath" in caplog.text
        await echoed(of, before)

        trusted.write_bytes(new.path.read_bytes())
        for path, fresh in zip((certificate, key), new.issue("renewed"), strict=True):
            path.write_bytes(Path(fresh).read_bytes())
        await echoed(of, after)
        await echoed(of, before)  # this connection was open


def test_a_new_certificate_for_the_same_key_comes_into_force(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = certified(authority)
    tls = ServerTls(settings)
    before = tls.context()
    key = serialization.load_pem_private_key(Path(settings.server_key_path).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    Path(settings.server_cert_path).write_bytes(authority.sign("server", key))
    tls.refresh()
    assert tls.context() is not before
