"""The metrics page over TLS: TLS clients are served, and where only TLS is served, plain clients get an error
about TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from authority import Authority, certified

from broker_probe import ServerProbe
from tianzhou.limits import METRICS_CONNECTIONS
from tianzhou.metrics import http_server
from tianzhou.metrics.http_server import MetricsServer
from tianzhou.metrics.readiness import Readiness
from tianzhou.remoting.loop import run
from tianzhou.remoting.tls import ServerTls, TlsSettings

# Use the servers' loop; the tests below also run on asyncio's own loop.
pytestmark = pytest.mark.runner.with_args(run)
BOTH_LOOPS = pytest.mark.parametrize(
    "loop", [pytest.param("fast"), pytest.param("asyncio", marks=pytest.mark.runner.with_args(asyncio.run))]
)
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"tianzhou_x 1\n" * 20_000


@asynccontextmanager
async def page(settings: TlsSettings, **changes: Any) -> AsyncIterator[MetricsServer]:
    async def pieces() -> AsyncIterator[bytes]:
        yield PAGE

    values: dict[str, Any] = {"ready": Readiness, "allowed": lambda ip, who: 200, "monotonic": time.monotonic}
    tls = ServerTls(settings).for_page
    one = MetricsServer("127.0.0.1", 0, pieces, tls=tls, **values | changes)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


async def ask(one: MetricsServer, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", one.port, ssl=context, server_hostname="localhost" if context else None
    )
    try:
        writer.write(GET)
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), 10)
    finally:
        writer.close()


def of(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.path))


@BOTH_LOOPS
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_verified_connection_gets_the_page(tmp_path: Path, mode: str, loop: str) -> None:
    authority = Authority(tmp_path)
    async with page(replace(certified(authority), server_mode=mode)) as one:
        for _ in range(3):
            assert await ask(one, of(authority)) == (200, PAGE)
        assert one.url == f"{'https' if mode == 'enforcing' else 'http'}://127.0.0.1:{one.port}/metrics"


@BOTH_LOOPS
async def test_who_speaks_plain_is_served_or_told_to_use_https(tmp_path: Path, loop: str) -> None:
    authority = Authority(tmp_path)
    async with page(certified(authority)) as one:
        assert await ask(one, None) == (200, PAGE)
    async with page(replace(certified(authority), server_mode="enforcing")) as one:
        status, words = await ask(one, None)
    assert status == 400
    assert b"https://" in words
    assert b"tianzhou_x" not in words


@pytest.mark.parametrize(
    "settings",
    [TlsSettings(server_mode="disabled"), TlsSettings(server_mode="enforcing", metrics_enable=False)],
    ids=["disabled", "tls.metrics.enable=false"],
)
async def test_a_page_without_tls_is_plain(settings: TlsSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with page(settings) as one:
        assert await ask(one, None) == (200, PAGE)
        assert one.url.startswith("http://")
        # The server waits this long for a request line, because a TLS handshake does not contain one.
        monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.2)
        with pytest.raises(ssl.SSLError):
            await ask(one, ssl._create_unverified_context())


async def test_a_required_certificate_is_required_of_the_page_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    wanted = replace(
        certified(authority), server_mode="enforcing", need_client_auth="require", server_auth_client=True,
        server_trust_cert_path=str(authority.path),
    )  # fmt: skip
    shown = of(authority)
    shown.load_cert_chain(*authority.issue("prometheus"))
    async with page(wanted) as one:
        assert await ask(one, shown) == (200, PAGE)
        with pytest.raises((OSError, EOFError)):
            await ask(one, of(authority))
        assert await ask(one, shown) == (200, PAGE)


async def test_new_certificates_are_used_for_new_connections(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old, new = Authority(tmp_path), Authority(tmp_path / "new")
    settings = certified(old)
    async with page(settings) as one:
        assert (await ask(one, of(old)))[0] == 200
        fresh = certified(new)
        Path(settings.server_key_path).write_bytes(Path(fresh.server_key_path).read_bytes())
        Path(settings.server_cert_path).write_bytes(Path(fresh.server_cert_path).read_bytes())
        assert (await ask(one, of(new)))[0] == 200


@BOTH_LOOPS
async def test_who_begins_no_handshake_or_ends_none_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 0.2)
    authority = Authority(tmp_path)
    async with page(certified(authority)) as one:
        silent, half = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", one.port) for _ in range(2)))
        half[1].write(b"\x16\x03\x01\x02\x00\x01")
        for reader, writer in (silent, half):
            assert await asyncio.wait_for(reader.read(), 10) in (b"", b"\x15\x03\x01\x00\x02\x02\x5a")
            writer.close()
        assert (await ask(one, of(authority)))[0] == 200
        while ServerProbe(one).served_pages:
            await asyncio.sleep(0.01)


async def test_more_than_the_page_takes_are_let_go_and_many_are_served(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    most = METRICS_CONNECTIONS.default
    async with page(certified(authority)) as one:
        answers = await asyncio.gather(*(ask(one, of(authority)) for _ in range(most)))
        assert {status for status, _ in answers} == {200}
        idle = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(most)]
        try:
            while ServerProbe(one).served_pages < most:
                await asyncio.sleep(0.01)
            with pytest.raises((OSError, EOFError)):
                await ask(one, of(authority))
        finally:
            for each in idle:
                each.close()
        while ServerProbe(one).served_pages:
            await asyncio.sleep(0.01)
        assert (await ask(one, of(authority)))[0] == 200
