"""Server and client over loopback, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import struct
import time
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.errors import (
    BrokerError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    TianzhouError,
    TooManyRequests,
)
from tianzhou.limits import Bounds
from tianzhou.remoting.client import RemotingClient, parse_address
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.command import Command, encode

BOTH_LOOPS = True
ECHO, LATER, BROKEN, SILENT, PARK, ASK_BACK, REFUSE = range(1, 8)


def processor(connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
    async def later() -> Reply:
        await asyncio.sleep(0.01)
        return command.reply(0, "later")

    async def park() -> Reply:
        await asyncio.sleep(3600)
        return None

    async def ask_back() -> Reply:
        answer = await connection.invoke(Command(307), 1000)
        return command.reply(answer.code, answer.remark)

    if command.code == LATER:
        return later()
    if command.code == BROKEN:
        raise ValueError("boom")
    if command.code == SILENT:
        return None
    if command.code == PARK:
        return park()
    if command.code == ASK_BACK:
        return ask_back()
    if command.code == REFUSE:
        raise BrokerError(17, "no such topic")
    return command.reply(0, body=command.body)


def server(bounds: Bounds | None = None) -> RemotingServer:
    return RemotingServer("127.0.0.1", 0, processor, bounds=bounds)


def address_of(one: RemotingServer) -> str:
    return f"127.0.0.1:{one.port}"


async def test_requests_of_all_sizes_come_back() -> None:
    async with server() as one, RemotingClient() as client:
        bodies = [b"s" * size for size in (0, 1, 1000, 65_000, 65_536, 300_000, 4_194_304)] * 3
        replies = await asyncio.gather(*(client.invoke(address_of(one), Command(ECHO, body=b)) for b in bodies))
        assert [bytes(reply.body) for reply in replies] == bodies
        assert len(one.connections) == 1


async def test_thousands_in_flight_share_one_connection() -> None:
    async with server() as one, RemotingClient() as client:
        replies = await asyncio.gather(
            *(client.invoke(address_of(one), Command(ECHO, body=b"%d" % i), 60_000) for i in range(5000))
        )
        assert [int(bytes(reply.body)) for reply in replies] == list(range(5000))
        assert len(one.connections) == 1


async def test_answers_late_wrong_and_from_the_client_itself() -> None:
    def answer(_connection: Connection, command: Command) -> Reply:
        return command.reply(0, f"client saw {command.code}")

    async with server() as one, RemotingClient(answer) as client:
        address = address_of(one)
        assert (await client.invoke(address, Command(LATER))).remark == "later"
        broken = await client.invoke(address, Command(BROKEN))
        assert (broken.code, broken.remark) == (1, "ValueError: boom")
        refused = await client.invoke(address, Command(REFUSE))
        assert (refused.code, refused.remark) == (17, "no such topic")
        assert (await client.invoke(address, Command(ASK_BACK))).remark == "client saw 307"


async def test_a_timeout_is_kept_and_the_connection_stays() -> None:
    async with server() as one, RemotingClient() as client:
        await client.connect(address_of(one))
        start = time.monotonic()
        with pytest.raises(RequestTimeout, match="200 ms"):
            await client.invoke(address_of(one), Command(SILENT), 200)
        assert 0.19 < time.monotonic() - start < 0.6
        await client.invoke(address_of(one), Command(ECHO))
        assert len(one.connections) == 1


async def test_a_server_that_stops_fails_what_waits_and_a_new_one_is_found() -> None:
    async with RemotingClient() as client:
        first = server()
        await first.start()
        address, port = address_of(first), first.port
        waiting = asyncio.ensure_future(client.invoke(address, Command(PARK), 30_000))
        await client.invoke(address, Command(ECHO))
        await first.close()
        with pytest.raises(ConnectionLost, match=address):
            await waiting
        with pytest.raises(ConnectFailed, match=address):
            await client.invoke(address, Command(ECHO))
        async with RemotingServer("127.0.0.1", port, processor):
            assert (await client.invoke(address, Command(ECHO))).code == 0


async def test_a_client_that_closes_fails_what_waits_and_refuses_more() -> None:
    async with server() as one:
        client = RemotingClient()
        waiting = asyncio.ensure_future(client.invoke(address_of(one), Command(PARK), 30_000))
        await client.invoke(address_of(one), Command(ECHO))
        await client.close()
        with pytest.raises(ConnectionLost):
            await waiting
        with pytest.raises(ConnectionLost, match="closed"):
            await client.invoke(address_of(one), Command(ECHO))
        await client.close()


async def test_callers_at_the_same_time_share_one_connect_and_one_may_give_up() -> None:
    async with server() as one, RemotingClient() as client:
        first = asyncio.ensure_future(client.invoke(address_of(one), Command(ECHO)))
        rest = [asyncio.ensure_future(client.invoke(address_of(one), Command(ECHO))) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        assert [reply.code for reply in await asyncio.gather(*rest)] == [0] * 5
        assert len(one.connections) == 1


async def test_an_address_that_swallows_connects_fails_within_the_timeout() -> None:
    with socket.socket() as deaf:
        # A full backlog drops further connects silently.
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        try:
            async with RemotingClient(connect_timeout_ms=200) as client:
                with pytest.raises(ConnectFailed, match="200 ms"):
                    await client.invoke(address, Command(ECHO))
            async with RemotingClient() as client:
                with pytest.raises(ConnectFailed, match="100 ms"):
                    await client.invoke(address, Command(ECHO), 100)
        finally:
            for filler in fillers:
                filler.close()


async def test_too_many_in_flight_are_refused() -> None:
    async with server() as one, RemotingClient() as client:
        client.group.max_in_flight = 10
        address = address_of(one)
        await client.connect(address)
        results = await asyncio.gather(
            *(client.invoke(address, Command(ECHO)) for _ in range(15)), return_exceptions=True
        )
        assert sum(isinstance(result, TooManyRequests) for result in results) == 5
        await client.invoke(address, Command(ECHO))


async def test_go_away_moves_to_a_new_connection_once() -> None:
    seen: list[Connection] = []

    def leaving(connection: Connection, command: Command) -> Reply:
        if connection not in seen:
            seen.append(connection)
        return command.reply(1500 if connection is seen[0] else 0)

    async with RemotingServer("127.0.0.1", 0, leaving) as one, RemotingClient() as client:
        assert (await client.invoke(address_of(one), Command(ECHO))).code == 0
        assert len(seen) == 2


class SlowToConnect(RemotingClient):
    """A client whose connections open immediately, and by its clock took `took_s`."""

    def __init__(self, took_s: float, **options: Any) -> None:
        super().__init__(clock=self, **options)
        self._took_s = took_s
        self._ahead_s = 0.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    async def connect(self, address: str, timeout_ms: float | None = None) -> Connection:
        connection = await super().connect(address, timeout_ms)
        self._ahead_s += self._took_s
        return connection


async def test_a_connection_that_took_all_the_time_is_named_and_nothing_is_sent() -> None:
    seen: list[int] = []

    def note(_connection: Connection, command: Command) -> Reply:
        seen.append(command.code)
        return command.reply(1500)

    async with RemotingServer("127.0.0.1", 0, note) as one:
        took = rf"connecting to {address_of(one)} took \d{{4}} ms and the request was given 3000, so it was not sent"
        async with SlowToConnect(3.865) as client:
            with pytest.raises(ConnectFailed, match=took):
                await client.invoke(address_of(one), Command(ECHO), 3000)
        async with SlowToConnect(3.865) as client:
            opaque = client.group.opaques.next()
            with pytest.raises(ConnectFailed, match=took):
                await client.invoke_frame(address_of(one), opaque, encode(Command(ECHO, opaque=opaque)), 3000)
        assert not seen
        async with SlowToConnect(2) as client:
            # The second connection, after GO_AWAY, shares the time of the first.
            with pytest.raises(ConnectFailed, match=r"took \d{4} ms and the request was given \d+, so"):
                await client.invoke(address_of(one), Command(ECHO), 3000)
        assert seen == [ECHO]


async def test_a_reply_that_is_late_names_what_connecting_took() -> None:
    async with server() as one, SlowToConnect(2.9) as client:
        with pytest.raises(RequestTimeout, match=r"unknown; of the 3000 ms given, connecting to \S+ took the first 29"):
            await client.invoke(address_of(one), Command(SILENT), 3000)


async def test_one_way_requests_arrive() -> None:
    arrived = asyncio.Event()

    def note(_connection: Connection, command: Command) -> Reply:
        assert command.is_oneway
        arrived.set()
        return command.reply(0)

    async with RemotingServer("127.0.0.1", 0, note) as one, RemotingClient() as client:
        await client.invoke_oneway(address_of(one), Command(ECHO))
        await asyncio.wait_for(arrived.wait(), 5)


async def test_a_taken_port_is_named_with_what_to_do() -> None:
    async with server() as one:
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{one.port}: the port is taken.*listenPort"):
            await RemotingServer("127.0.0.1", one.port, processor).start()
    with pytest.raises(ConfigError, match="no address of this machine"):
        await RemotingServer("192.0.2.77", 0, processor).start()
    with pytest.raises(ConfigError, match="no such host"):
        await RemotingServer("no such host.invalid", 0, processor).start()


@pytest.mark.over_limit("maxConnections")
async def test_connections_above_the_limit_are_closed_at_once() -> None:
    async with server(Bounds(SimpleNamespace(max_connections=2))) as one:
        pairs = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(2)]
        while len(one.connections) < 2:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        pairs.pop()[1].close()
        while len(one.connections) == 2:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(encode(Command(ECHO)))
        assert await asyncio.wait_for(reader.readexactly(4), 5)
        writer.close()
        pairs.pop()[1].close()


async def test_a_server_takes_as_many_descriptors_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    holes = []
    async with server() as one:
        with socket.socket() as late:
            late.setblocking(False)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(late.fileno() + 1, hard - 1), hard))
                with contextlib.suppress(OSError):
                    while True:
                        holes.append(socket.socket())
                late.connect_ex(("127.0.0.1", one.port))
                loop = asyncio.get_running_loop()
                await asyncio.wait_for(loop.sock_sendall(late, encode(Command(ECHO))), 5)
                assert await asyncio.wait_for(loop.sock_recv(late, 4), 5)
                assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for hole in holes:
                    hole.close()


async def test_running_out_of_descriptors_pauses_accepting_and_kills_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tianzhou.remoting.server.ACCEPT_PAUSE_S", 0.05)
    monkeypatch.setattr("tianzhou.remoting.server.allow_more_files", lambda: 0)  # the limit of open files is unchanged

    with caplog.at_level(logging.ERROR):
        async with server() as one, RemotingClient() as client:
            address = address_of(one)
            await client.invoke(address, Command(ECHO))
            late = socket.socket()
            late.setblocking(False)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            highest = late.fileno() + 1
            holes = []
            try:
                # Use every free descriptor below the limit, so that accept fails.
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
                try:
                    while True:
                        holes.append(socket.socket())
                except OSError:
                    pass
                late.connect_ex(("127.0.0.1", one.port))
                await asyncio.sleep(0.15)
                assert (await client.invoke(address, Command(ECHO))).code == 0  # existing connections are served
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for hole in holes:
                    hole.close()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(late, encode(Command(ECHO)))
            assert await asyncio.wait_for(loop.sock_recv(late, 4), 5)
            late.close()
    assert "out of descriptors" in caplog.text


async def test_a_flood_on_some_connections_leaves_the_others_served() -> None:
    async with server() as one, RemotingClient() as client:
        address = address_of(one)
        frames = b"".join(encode(Command(ECHO, opaque=i, body=b"f" * 1000)) for i in range(2000))
        floods = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(4)]

        async def swallow(reader: asyncio.StreamReader) -> None:
            while await reader.read(1 << 20):
                pass

        readers = [asyncio.ensure_future(swallow(reader)) for reader, _ in floods]
        for _, writer in floods:
            writer.write(frames)
        for _ in range(20):
            await client.invoke(address, Command(ECHO), 5000)
        for _, writer in floods:
            await writer.drain()
            writer.close()
        await asyncio.gather(*readers)


async def test_pipelined_requests_keep_their_order_even_when_read_in_many_pieces() -> None:
    served: list[int] = []

    def note(_connection: Connection, command: Command) -> Reply:
        served.append(command.opaque)
        return command.reply(0)

    async with RemotingServer("127.0.0.1", 0, note) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        for start in range(0, 3000, 100):
            writer.write(b"".join(encode(Command(10, opaque=i, body=b"p" * 700)) for i in range(start, start + 100)))
        answered = []
        for _ in range(3000):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            answered.append(int(frame.partition(b'"opaque":')[2].partition(b",")[0]))
        assert served == answered == list(range(3000))
        writer.close()


def test_every_error_says_whether_to_try_again() -> None:
    kinds: list[type[TianzhouError]] = [ConnectFailed, ConnectionLost, RequestTimeout, TooManyRequests]
    assert all(kind.retriable for kind in kinds)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("a.b:9876", ("a.b", 9876)), ("[::1]:10911", ("::1", 10911)), (" 10.0.0.1:1 ", ("10.0.0.1", 1))],
)
def test_addresses(text: str, wanted: tuple[str, int]) -> None:
    assert parse_address(text) == wanted


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:port", "host:70000", "host:-1"])
def test_bad_addresses_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        parse_address(text)
