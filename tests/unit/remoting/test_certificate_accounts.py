"""A client's certificate, and nothing else in the request, names its account."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from authority import Authority, certified, trusting

from tianzhou.errors import ConfigError
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context, load_tls
from tianzhou.wire.command import Command, encode

BOTH_LOOPS = True


def account(connection: Connection, command: Command) -> Reply:
    return command.reply(0, body=connection.account.encode())


def asking(authority: Authority, source: str, **changes: object) -> TlsSettings:
    return replace(
        certified(authority),
        server_auth_client=True,
        server_trust_cert_path=str(authority.path),
        account_from=source,
        **changes,  # type: ignore[arg-type]
    )


def showing(
    authority: Authority, name: str, hosts: tuple[str, ...] = (), trusts: Authority | None = None
) -> TlsSettings:
    certificate, key = authority.issue(name, hosts=hosts)
    return replace(trusting(trusts or authority), client_cert_path=certificate, client_key_path=key)


async def seen_as(settings: TlsSettings | None, to: RemotingServer) -> str:
    async with RemotingClient(tls=None if settings is None else client_context(settings)) as client:
        reply = await client.invoke(f"127.0.0.1:{to.port}", Command(1), 10_000)
        return bytes(reply.body).decode()


def server(settings: TlsSettings) -> RemotingServer:
    return RemotingServer("127.0.0.1", 0, account, tls=ServerTls(settings))


async def test_a_verified_certificate_is_an_account_from_the_first_request_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    joined: list[str] = []
    async with server(asking(authority, "CN")) as to:
        to.group.on_connect = lambda connection: joined.append(connection.account)
        assert await seen_as(showing(authority, "orders"), to) == "orders"
        assert await seen_as(trusting(authority), to) == ""
        assert await seen_as(None, to) == ""
    assert joined == ["orders", "", ""]


async def test_the_first_alternative_name_is_the_account_when_it_shall_be(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(asking(authority, "san")) as to:
        for names, expected in (
            (("spiffe://mq/orders", "orders.example.com"), "spiffe://mq/orders"),
            (("10.0.0.1", "orders.example.com"), "orders.example.com"),
            (("ops@example.com",), "ops@example.com"),
            (("10.0.0.1",), ""),
        ):
            assert await seen_as(showing(authority, "x", names), to) == expected


async def test_without_the_setting_certificates_are_no_accounts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(asking(authority, "off")) as to:
        assert await seen_as(showing(authority, "orders"), to) == ""


async def test_a_name_that_cannot_be_an_account_is_none_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    async with server(asking(authority, "CN")) as to:
        assert await seen_as(showing(authority, "or\tders"), to) == ""
    assert "has no account by its certificate" in caplog.text
    assert "'or\\tders'" in caplog.text


async def test_what_a_balancer_speaks_for_has_no_account(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with server(asking(authority, "CN")) as to:
        reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 10911\r\n")
        await writer.start_tls(client_context(showing(authority, "orders")), server_hostname="localhost")
        writer.write(encode(Command(1)))
        answer = await asyncio.wait_for(reader.readexactly(4), 10)
        assert b"orders" not in await reader.readexactly(int.from_bytes(answer, "big"))
        writer.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server_auth_client": False}, "tls.server.authClient=true"),
        ({"test_mode_enable": True}, "tls.test.mode.enable=false"),
        ({"server_mode": "disabled"}, "tls.server.mode=permissive or enforcing"),
    ],
)
def test_accounts_need_certificates_that_are_verified(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    settings = asking(Authority(tmp_path), "CN")
    ServerTls(settings)
    with pytest.raises(ConfigError, match=rf"^tls\.server\.accountFrom=CN: .*{says}"):
        ServerTls(replace(settings, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server_auth_client": False}, "tls.server.authClient=true"),
        ({"test_mode_enable": True}, "tls.test.mode.enable=false"),
        ({"server_mode": "disabled"}, "tls.server.mode=enforcing"),
        ({"server_mode": "permissive"}, "tls.server.mode=enforcing"),
    ],
)
def test_required_certificates_are_required_or_nothing_starts(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    settings = asking(Authority(tmp_path), "", need_client_auth="require", server_mode="enforcing")
    ServerTls(settings)
    with pytest.raises(ConfigError, match=rf"^tls\.server\.need\.client\.auth=require: .*{says}"):
        ServerTls(replace(settings, **changes))  # type: ignore[arg-type]


def test_another_source_of_accounts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.accountFrom=OU: expected one of off, CN, SAN"):
        load_tls({"tls.server.accountFrom": "OU"})
    assert load_tls({"tls.server.accountFrom": "cn"}).account_from == "cn"
