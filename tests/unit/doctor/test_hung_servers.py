"""Reasons derived from the behaviour of a server that closes a connection."""

from __future__ import annotations

import asyncio

import pytest

from tianzhou.errors import ConnectionLost
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.handshakes import REFUSES_TLS_WITHIN_MS
from tianzhou.testing import run_virtual
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

pytestmark = pytest.mark.runner.with_args(run_virtual)


@pytest.mark.parametrize(("after_ms", "is_about_tls"), [(0, True), (REFUSES_TLS_WITHIN_MS + 500, False)])
async def test_advice_on_tls_is_for_servers_that_refuse_at_once(after_ms: int, is_about_tls: bool) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        await asyncio.sleep(after_ms / 1000)
        writer.close()

    server = await asyncio.start_server(end, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, RemotingClient() as client:
        with pytest.raises(ConnectionLost) as lost:
            await client.invoke(f"{host}:{port}", Command(RequestCode.GET_BROKER_RUNTIME_INFO), 10_000)
    text = str(lost.value)
    assert ("tls.enable" in text) is is_about_tls
    assert ("see whether its process hangs" in text) is not is_about_tls
