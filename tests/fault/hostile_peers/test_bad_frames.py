"""Peers that send garbage, stop half way or never read: others are served, memory stays bounded, no
connection remains.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Coroutine
from typing import Any

import pytest

from broker_probe import ConnectionProbe
from open_fixtures import open_for_test
from tianzhou.remoting.budget import LARGEST_SMALL_READ
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.connection import FLUSH_BYTES, Connection, Reply
from tianzhou.remoting.loop import loop_factory
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.session import MAX_FRAME, READ_SIZE
from tianzhou.remoting.unread import HIGH_BYTES
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.command import Command, encode
from waiting import WITHIN_S

BIG_REPLY = b"r" * 200_000


def echo(_connection: Connection, command: Command) -> Reply:
    return command.reply(0, body=BIG_REPLY if command.code == 11 else command.body)


@pytest.fixture(autouse=True, params=["asyncio", "fastest"])
def on_each_loop(request: pytest.FixtureRequest) -> None:
    factory = asyncio.new_event_loop if request.param == "asyncio" else loop_factory()

    def runner(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(test, 60))

    request.node.add_marker(pytest.mark.runner.with_args(runner))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> RemotingServer:
    return open_for_test(request, RemotingServer("127.0.0.1", 0, echo))


async def closed_by_server(port: int, data: bytes) -> bytes:
    """Return the server's reply before it closes the connection that sent `data`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), WITHIN_S)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def still_serves(server: RemotingServer) -> None:
    async with RemotingClient() as client:
        assert (await client.invoke(f"127.0.0.1:{server.port}", Command(10, body=b"ok"))).body == b"ok"


GOOD = encode(Command(10, opaque=1, fields={"a": "b"}, body=b"body"))
BAD = {
    "length zero": b"\0\0\0\0",
    "length shorter than a header word": b"\0\0\0\x03abc",
    "negative length": b"\xff\xff\xff\xfe" + b"x" * 20,
    "oversize": struct.pack(">I", 16_777_213) + b"\0\0\0\x02{}",
    "well framed, shorter than 12 bytes": b"\0\0\0\x04\0\0\0\0",
    "well framed, no JSON": b"\0\0\0\x07\0\0\0\x03abc",
    "header longer than the frame": b"\0\0\0\x08\0\0\x10\0{}{}",
    "unknown serialize type": b"\0\0\0\x06\x05\0\0\x02{}",
    "binary header cut off": b"\0\0\0\x06\x01\0\0\x02ab",
    "binary header with lying sizes": struct.pack(">IIhBhiiii", 4 + 21, 0x01000015, 10, 0, 1, 1, 0, 1 << 30, 0),
    "JSON of another shape": b'\0\0\0\x0f\0\0\0\x0b["no","no"]',
    "code that is no number": b'\0\0\0\x13\0\0\0\x0f{"code":"ten!!"}'[:-1] + b"}",
    "deeply nested JSON": struct.pack(">II", 4 + 60_000, 60_000) + b'{"a":' + b"[" * 59_995,
    "HTTP": b"GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 100,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "Kafka": struct.pack(">ihhi", 0x7FFFFFFF, 18, 3, 1),
}


@pytest.mark.parametrize("kind", BAD)
async def test_bytes_of_no_meaning_close_the_connection_and_only_that(server: RemotingServer, kind: str) -> None:
    assert await closed_by_server(server.port, BAD[kind]) == b""
    await still_serves(server)


async def test_good_requests_in_front_of_bad_bytes_are_answered(server: RemotingServer) -> None:
    answer = await closed_by_server(server.port, GOOD + GOOD + BAD["HTTP"])
    assert answer.count(b'"opaque":1') == 2


async def test_random_bytes_and_random_damage_never_stop_the_server() -> None:
    rng = random.Random(20_261_121)
    async with RemotingServer("127.0.0.1", 0, echo) as server:
        for _ in range(150):
            if rng.random() < 0.3:
                data = rng.randbytes(rng.randrange(1, 300))
            else:
                damaged = bytearray(GOOD * rng.randrange(1, 4))
                for _ in range(rng.randrange(1, 6)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                data = bytes(damaged)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), WITHIN_S)
            writer.close()
        await still_serves(server)


async def test_peers_that_vanish_at_any_byte_leave_nothing(server: RemotingServer) -> None:
    for cut in range(0, len(GOOD), 7):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GOOD + GOOD[:cut])
        if cut % 2:
            writer.transport.abort()
        else:
            writer.close()
    await still_serves(server)
    for _ in range(500):
        if not server.connections:
            break
        await asyncio.sleep(0.01)
    assert not server.connections


async def test_peers_that_never_read_cost_bounded_memory_and_nobody_else_waits() -> None:
    served = 0

    def counting(connection: Connection, command: Command) -> Reply:
        nonlocal served
        served += command.code == 11
        return echo(connection, command)

    async with RemotingServer("127.0.0.1", 0, counting) as server:
        requests = b"".join(encode(Command(11, opaque=i)) for i in range(5000))  # a gigabyte of replies
        deaf = []
        for _ in range(3):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(peer, ("127.0.0.1", server.port))
            deaf.append((peer, loop.create_task(loop.sock_sendall(peer, requests))))
        for _ in range(20):
            await still_serves(server)
        before = -1
        while served != before:
            before = served
            await asyncio.sleep(0.1)
        for connection in server.connections:
            waiting = ConnectionProbe(connection).transport.get_write_buffer_size()
            assert waiting <= HIGH_BYTES + FLUSH_BYTES + 2 * len(BIG_REPLY)
        assert served * len(BIG_REPLY) < 3 * 16_000_000  # the rest is in the kernel's buffers
        for peer, sending in deaf:
            sending.cancel()
            peer.close()
        await still_serves(server)


async def test_near_limit_frames_that_stop_half_way_cost_bounded_memory_and_are_closed_when_idle() -> None:
    clock = VirtualClock()
    async with RemotingServer("127.0.0.1", 0, echo, clock=clock) as server:
        server.group.budget.limit = 8_000_000
        head = struct.pack(">II", 16_777_212, 2) + b"{}"
        loop = asyncio.get_running_loop()
        peers = []
        for _ in range(12):
            peer = socket.socket()
            peer.setblocking(False)
            await loop.sock_connect(peer, ("127.0.0.1", server.port))
            peers.append((peer, loop.create_task(loop.sock_sendall(peer, head + b"h" * 14_000_000))))
        budget = server.group.budget
        before = -1
        while budget.used != before or not budget.waiting:
            before = budget.used
            await asyncio.sleep(0.1)
            await still_serves(server)
        # Each is held after the growth that crossed the limit, and buffers double. One frame continues. Every frame has
        # a small read, in a buffer of twice its size.
        most = 2 * budget.limit + MAX_FRAME + 2 * (READ_SIZE + 8) + len(peers) * 2 * LARGEST_SMALL_READ
        assert budget.used <= most
        clock.advance(119)
        await still_serves(server)
        assert len(server.connections) >= 12
        clock.advance(2)
        server.group.sweep_idle()
        await still_serves(server)
        for _ in range(500):
            if not server.connections:
                break
            await asyncio.sleep(0.01)
        assert not server.connections
        assert (budget.used, budget.waiting) == (0, 0)
        for peer, sending in peers:
            sending.cancel()
            peer.close()


async def test_many_large_frames_at_once_all_arrive_although_some_have_to_wait(server: RemotingServer) -> None:
    server.group.budget.limit = 3_000_000
    clients = [RemotingClient() for _ in range(8)]
    body = b"m" * 2_000_000
    replies = await asyncio.gather(
        *(client.invoke(f"127.0.0.1:{server.port}", Command(10, body=body), 30_000) for client in clients)
    )
    assert all(reply.body == body for reply in replies)
    assert server.group.budget.used == 0
    for client in clients:
        await client.close()
