"""A SOCKS 5 server (RFC 1928, RFC 1929) for tests: it connects, forwards bytes, and records the requested
destinations.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SocksServer:
    """The requests of the server, and its behaviour.

    Attributes:
        port: listening port.
        asked: each destination, `host:port`, as requested.
        refuse: a reply code instead of connecting.
        names: addresses of names, as a proxy behind a firewall would resolve them.
    """

    def __init__(self, users: dict[str, str] | None = None) -> None:
        self.users = users
        self.port = 0
        self.asked: list[str] = []
        self.refuse = 0
        self.names: dict[str, str] = {}
        self._carrying: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._greeted(reader, writer):
                await self._connected(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        version, count = await reader.readexactly(2)
        assert version == 5
        ways = await reader.readexactly(count)
        if self.users is None:
            writer.write(b"\5\0" if 0 in ways else b"\5\xff")
            return 0 in ways
        if 2 not in ways:
            writer.write(b"\5\xff")
            return False
        writer.write(b"\5\2")
        version, size = await reader.readexactly(2)
        assert version == 1
        user = (await reader.readexactly(size)).decode()
        (size,) = await reader.readexactly(1)
        password = (await reader.readexactly(size)).decode()
        right = self.users.get(user) == password
        writer.write(b"\1\0" if right else b"\1\1")
        return right

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, command, _, kind = await reader.readexactly(4)
        assert (version, command) == (5, 1)
        if kind == 3:
            (size,) = await reader.readexactly(1)
            host = (await reader.readexactly(size)).decode("idna")
        else:
            host = str(ipaddress.ip_address(await reader.readexactly({1: 4, 4: 16}[kind])))
        port = int.from_bytes(await reader.readexactly(2))
        self.asked.append(f"{host}:{port}")
        if self.refuse:
            writer.write(bytes([5, self.refuse, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self.names.get(host, host), port)
        except OSError:
            writer.write(b"\5\5\0\1" + bytes(6))
            return
        # The bound address is a name here, because clients must skip any form of it.
        writer.write(b"\5\0\0\3\x05proxy" + b"\x10\x10")
        back = asyncio.get_running_loop().create_task(_carry(far_reader, writer))
        self._carrying.add(back)
        try:
            await _carry(reader, far_writer)
        finally:
            back.cancel()
            self._carrying.discard(back)
            far_writer.close()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.close()


@asynccontextmanager
async def socks_server(users: dict[str, str] | None = None) -> AsyncIterator[SocksServer]:
    """Yield a server on a free port; with users, only these may connect."""
    proxy = SocksServer(users)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        for task in list(proxy._carrying):
            task.cancel()
