"""Bytes that count as unread: partly sent replies in full, replies that handlers hold, and replies over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from connection_bench import Bench, run_bench, turns
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ConnectionLost
from tianzhou.limits import Bounds
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.loop import loop_factory
from tianzhou.remoting.outgoing import HELD_BACK_BYTES, LOW_BYTES, SLICE_BYTES, SOCKET_BYTES, PacedTransport
from tianzhou.remoting.server import RemotingServer
from tianzhou.remoting.tls import ServerTls, TlsSettings, client_context
from tianzhou.remoting.unread import SMALL_WRITES_BYTES, UnreadReplies, Written
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode
from waiting import until_async

MIB = 1 << 20


def bench(processor: Any, **most: int) -> Bench:
    return Bench(processor, bounds=Bounds(SimpleNamespace(**most)), idle_timeout_s=0)


def large(_connection: Connection, command: Command) -> Command:
    return command.reply(0, body=b"x" * (command.code * MIB))


def test_a_write_counts_whole_until_its_last_byte_is_sent() -> None:
    written = Written()
    assert written.held(0) == 0
    written.note(4 * MIB)
    written.note(3 * MIB)
    written.note(2 * MIB)
    assert written.held(9 * MIB) == written.held(5 * MIB + 1) == 9 * MIB
    assert written.held(5 * MIB) == written.held(2 * MIB + 1) == 5 * MIB
    assert written.held(1) == 2 * MIB
    assert written.held(0) == 0
    assert written.held(7) == 7, "small writes are not noted"


@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 300_000)), max_size=60))
def test_what_is_held_is_what_a_transport_of_whole_pieces_holds(steps: list[tuple[int, int]]) -> None:
    written, pieces, left = Written(), [], 0
    for size, sent in steps:
        written.note(size)
        pieces.append(size)
        left = max(left + size - sent, 0)
        held = 0
        for piece in reversed(pieces):
            if held >= left:
                break
            held += piece
        assert held <= written.held(left) < held + SMALL_WRITES_BYTES


@pytest.mark.runner.with_args(run_bench)
@pytest.mark.over_limit("maxUnreadReplyBytes")
async def test_replies_count_whole_although_the_system_took_nearly_all_of_them() -> None:
    """The system's buffers accept most of a reply of 4 MiB, so the transport does not pause."""
    made = bench(large, max_unread_reply_bytes=10 * MIB)
    group = made.group
    peers = [made.transport, *(MemoryTransport(Connection(group), ("10.1.2.3", 4600 + n)) for n in range(7))]
    for number, peer in enumerate(peers):
        peer.stall(4 * MIB - 1000)
        peer.feed(encode(Command(4)))
        if number < 4:
            assert peer.reading, "it is not slow yet"
            assert group.unread.used >= (number + 1) * 4 * MIB
        await turns(2)
    assert group.unread.used <= 20 * MIB
    assert sum(not peer.closed for peer in peers) == 4


@pytest.mark.runner.with_args(run_bench)
async def test_replies_that_were_read_without_a_pause_count_no_more() -> None:
    made = bench(large, max_unread_reply_bytes=10 * MIB)
    made.transport.stall(4 * MIB - 1000)
    made.transport.feed(encode(Command(4)))
    assert made.group.unread.used > 4 * MIB
    made.transport.unsent = 0
    made.group.sweep_unread()
    assert (made.group.unread.used, len(made.group.unread)) == (0, 0)


@pytest.mark.runner.with_args(run_bench)
@pytest.mark.over_limit("maxUnreadReplyBytes")
async def test_replies_that_handlers_hold_for_a_slow_peer_count() -> None:
    """Cold pulls read their replies before the peer has room for them, so four cold pulls hold four replies."""
    done = asyncio.Event()

    async def cold(connection: Connection, command: Command) -> Reply:
        await done.wait()
        body = b"x" * (command.code * MIB)
        await connection.drain(len(body))
        return command.reply(0, body=body)

    made = bench(lambda connection, command: cold(connection, command), max_unread_reply_bytes=5 * MIB)
    made.transport.stall()
    made.transport.feed(b"".join(encode(Command(4, opaque=n)) for n in range(2)))
    done.set()
    await turns(10)
    assert made.group.unread.used > 8 * MIB
    assert not made.transport.closed
    made.transport.catch_up()
    await turns(10)
    assert 4 * MIB < made.group.unread.used < 5 * MIB, "the second one was sent"
    made.transport.feed(b"".join(encode(Command(4, opaque=n)) for n in range(2, 4)))
    made.transport.catch_up()
    made.transport.feed(b"".join(encode(Command(4, opaque=n)) for n in range(4, 8)))
    await turns(10)
    assert made.transport.closed, "above twice the limit"
    assert made.group.unread.used == 0


@pytest.mark.runner.with_args(run_bench)
async def test_servers_that_share_a_bound_count_together() -> None:
    unread = UnreadReplies()
    made = [
        Bench(large, bounds=Bounds(SimpleNamespace(max_unread_reply_bytes=10 * MIB)), idle_timeout_s=0, unread=unread)
        for _ in range(2)
    ]
    for one in made:
        one.transport.stall()
        one.transport.feed(encode(Command(4)))
    assert 8 * MIB < unread.used < 9 * MIB


class Tls(asyncio.Transport):
    """A TLS transport like asyncio's, which does not report the bytes that the socket's transport has accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.held_back = bytearray()
        self.takes = 0
        self.paused = self.closed = False
        self.paced: PacedTransport | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high or 0) <= HELD_BACK_BYTES

    def write(self, data: Any) -> None:
        self.held_back += data
        self._move()

    def take(self, count: int) -> None:
        """Let the socket accept `count` more bytes; resume the protocol like asyncio."""
        self.takes += count
        self._move()
        if self.paused and len(self.held_back) <= LOW_BYTES:
            self.paused = False
            assert self.paced is not None
            self.paced.write_on()

    def _move(self) -> None:
        count = min(self.takes, len(self.held_back))
        self.sent += self.held_back[:count]
        del self.held_back[:count]
        self.takes -= count
        self.paused = self.paused or len(self.held_back) >= HELD_BACK_BYTES

    def get_write_buffer_size(self) -> int:
        return len(self.held_back)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


PIECES = st.lists(st.integers(0, 300_000), min_size=1, max_size=4)


@given(st.lists(st.one_of(PIECES, st.integers(1, 400_000)), max_size=30), st.booleans())
def test_all_is_written_in_its_order_and_little_is_given_to_tls(steps: list[Any], closes: bool) -> None:
    tls = Tls()
    paced = tls.paced = PacedTransport(tls)
    expected = bytearray()
    fill: Iterator[int] = iter(range(1 << 30))
    for step in steps:
        if isinstance(step, int):
            tls.take(step)
        else:
            pieces = [bytes([next(fill) % 251]) * size for size in step]
            expected += b"".join(pieces)
            if len(pieces) == 1:
                paced.write(pieces[0])
            else:
                paced.writelines(pieces)
        assert len(tls.held_back) < HELD_BACK_BYTES + SLICE_BYTES
        left = len(expected) - len(tls.sent)
        assert tls.paused or left == len(tls.held_back), "nobody would write the rest"
        held_back = left > len(tls.held_back) or left >= HELD_BACK_BYTES
        assert paced.get_write_buffer_size() == (left + SOCKET_BYTES if held_back else left)
    if closes:
        paced.close()
        assert paced.is_closing()
        assert tls.closed == (len(expected) - len(tls.sent) == len(tls.held_back))
    while len(tls.sent) < len(expected):
        tls.take(100_000)
    assert tls.sent == expected
    assert tls.closed == closes


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, loop_factory()], ids=["asyncio", "fastest"])
def test_a_peer_over_tls_that_reads_late_gets_everything_and_counts_meanwhile(factory: Any) -> None:
    body = bytes(range(256)) * (12 * MIB // 256)  # more than the system's buffers hold

    async def late_reader() -> None:
        async with RemotingServer(
            "127.0.0.1", 0, lambda _, command: command.reply(0, body=body), tls=ServerTls(TlsSettings())
        ) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context(TlsSettings()))
            writer.transport.pause_reading()
            asked = 3
            for number in range(asked):
                writer.write(encode(Command(11, opaque=number)))
                await until_async(lambda: server.group.unread.used > 12 * MIB, "a reply counts")
            writer.transport.resume_reading()
            for _ in range(asked):
                size = int.from_bytes(await reader.readexactly(4))
                assert (await reader.readexactly(size)).endswith(body)
            server.group.sweep_unread()
            await until_async(lambda: server.group.unread.used == 0 or server.group.sweep_unread(), "nothing is left")
            with suppress(ConnectionLost):
                writer.transport.abort()

    with asyncio.Runner(loop_factory=factory) as loop:
        loop.run(asyncio.wait_for(late_reader(), 60))
