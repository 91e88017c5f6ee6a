"""The total memory of a server's connections is bounded, and small connections do not suffer from large ones."""

from __future__ import annotations

import asyncio
import logging
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from connection_bench import Bench, echo, requests, run_bench, turns

from tianzhou.limits import Bounds
from tianzhou.remoting.connection import Connection, Reply
from tianzhou.remoting.group import HIGH_BYTES
from tianzhou.remoting.proxies.proxy import parse
from tianzhou.remoting.unread import MIN_HIGH_BYTES, UnreadReplies, high_mark
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode

pytestmark = pytest.mark.runner.with_args(run_bench)

MIB = 1 << 20


class Many(Bench):
    """Several connections of one group."""

    def __init__(self, processor: Any, count: int, **most: int) -> None:
        super().__init__(processor, bounds=Bounds(SimpleNamespace(**most)), idle_timeout_s=0)
        self.peers = [self.transport]
        for number in range(1, count):
            self.peers.append(MemoryTransport(Connection(self.group), ("10.1.2.3", 4567 + number)))

    @property
    def open(self) -> list[int]:
        return [number for number, peer in enumerate(self.peers) if not peer.closed]

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.group.bounds.refusals.counts)


def large(_connection: Connection, command: Command) -> Command:
    return command.reply(0, body=b"x" * (command.code * MIB))


def ask(size_mib: int, count: int = 1) -> bytes:
    return b"".join(encode(Command(size_mib, opaque=number)) for number in range(count))


@pytest.mark.over_limit("maxUnreadReplyBytes")
async def test_readers_that_never_read_are_disconnected_the_largest_first(caplog: pytest.LogCaptureFixture) -> None:
    bench = Many(large, 5, max_unread_reply_bytes=10 * MIB)
    for peer, size in zip(bench.peers, (1, 5, 4, 3, 1), strict=True):
        peer.stall()
        peer.feed(ask(size, 20))
    await turns()
    assert bench.open == [0, 1, 2, 3, 4], "above the limit, below twice as much: they have time"
    bench.clock.advance(14)
    bench.group.sweep_unread()
    assert bench.open == [0, 1, 2, 3, 4]
    bench.clock.advance(1)
    with caplog.at_level(logging.WARNING):
        bench.group.sweep_unread()
    assert bench.open == [0, 2, 3, 4]
    (line,) = caplog.messages
    assert line.startswith("closing 10.1.2.3:4568: 52")
    assert line.endswith("than maxUnreadReplyBytes=10485760")
    assert bench.refused == {"maxUnreadReplyBytes": 1}


async def test_above_twice_the_limit_nobody_is_waited_for() -> None:
    bench = Many(large, 12, max_unread_reply_bytes=10 * MIB)
    for peer in bench.peers:
        peer.stall()
        peer.feed(ask(3, 20))
        await turns(2)
    assert len(bench.open) == 6
    assert bench.group.unread.used <= 20 * MIB


async def test_a_thousand_that_ask_in_one_turn_do_not_all_get_their_reply_in_it() -> None:
    served = 0

    def serve(connection: Connection, command: Command) -> Command:
        nonlocal served
        served += 1
        return large(connection, command)

    bench = Many(serve, 40, max_unread_reply_bytes=10 * MIB)
    for peer in bench.peers[:39]:
        peer.stall()
        peer.feed(ask(3))
    assert served == 7
    friend = bench.peers[39]
    friend.feed(ask(1, 3))
    assert not friend.written, "it has to wait for a turn"
    await turns(200)
    assert served == 39 + 3
    assert len(friend.written) > 3 * MIB
    assert friend.reading
    assert bench.group.unread.used <= 20 * MIB
    assert len(bench.open) == 7


async def test_who_reads_slowly_stays_and_who_has_read_counts_no_more() -> None:
    bench = Many(large, 3, max_unread_reply_bytes=5 * MIB)
    for peer in bench.peers:
        peer.stall()
        peer.feed(ask(2))
    slow, silent, soon = bench.peers
    for _ in range(20):
        bench.clock.advance(1)
        slow.unsent -= 66_000
        bench.group.sweep_unread()
    assert bench.open == [0, 2]
    assert silent.closed
    slow.catch_up()
    soon.catch_up()
    assert len(bench.group.unread) == 0
    assert bench.group.unread.used == 0


async def test_a_connection_that_ends_takes_its_unread_replies_along() -> None:
    bench = Many(large, 2, max_unread_reply_bytes=100 * MIB)
    for peer in bench.peers:
        peer.stall()
        peer.feed(ask(2))
    assert bench.group.unread.used > 4 * MIB
    for peer in bench.peers:
        peer.lose()
    assert bench.group.unread.used == 0


async def test_replies_that_come_later_are_counted_too() -> None:
    async def later(command: Command) -> Reply:
        await asyncio.sleep(0.01)
        return command.reply(0, body=b"x" * MIB)

    bench = Many(lambda _c, command: later(command), 1, max_unread_reply_bytes=4 * MIB)
    bench.transport.stall()
    bench.transport.feed(ask(1, 12))
    await asyncio.sleep(0.1)
    assert bench.open == []


def test_with_many_connections_each_may_hold_less() -> None:
    assert high_mark(128 * MIB, 1) == high_mark(128 * MIB, 256) == HIGH_BYTES
    assert high_mark(128 * MIB, 1024) == 131_072
    assert high_mark(128 * MIB, 50_000) == MIN_HIGH_BYTES


def test_a_reader_that_was_never_noted_is_forgotten_quietly() -> None:
    UnreadReplies().forget(SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.over_limit("maxHeldRequestBytes")
async def test_requests_in_hand_are_bounded_over_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def slow(command: Command) -> Reply:
        await gate.wait()
        return command.reply(0)

    def serve(_connection: Connection, command: Command) -> Any:
        return slow(command) if command.body else command.reply(0)

    bench = Many(serve, 10, max_held_request_bytes=4 * MIB)
    data = b"".join(encode(one) for one in requests(20, body=b"h" * 100_000))
    with caplog.at_level(logging.WARNING):
        taken = [peer.feed(data) for peer in bench.peers[:9]]
    assert sum(taken) < 7 * MIB
    assert taken[0] == len(data)
    assert taken[8] < len(data) / 4
    assert bench.refused["maxHeldRequestBytes"] >= 2
    assert sum("waits: requests whose answers" in line for line in caplog.messages) == 1
    # Peers with small requests are served meanwhile.
    bench.peers[9].feed(encode(Command(10, opaque=7)))
    assert bench.peers[9].written
    # The end of a connection frees memory like replies do.
    used = bench.group.requests.used
    bench.peers[0].lose()
    assert bench.group.requests.used == used - 20 * (100_000 + 1024)
    gate.set()
    for number in range(1, 9):
        rest = data[taken[number] :]
        while rest:
            await turns()
            rest = rest[bench.peers[number].feed(rest) :]
    await turns()
    assert (bench.group.requests.used, bench.group.requests.waiting) == (0, 0)
    assert all(peer.reading for peer in bench.peers[1:])


@pytest.mark.over_limit("maxRequestsPerConnection")
async def test_a_connection_with_many_requests_in_hand_is_not_read_from_until_half_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[asyncio.Future[None]] = []

    async def slow(command: Command) -> Reply:
        answers.append(asyncio.get_running_loop().create_future())
        await answers[-1]
        return command.reply(0)

    bench = Many(lambda _connection, command: slow(command), 2, max_requests_per_connection=4)
    greedy, other = bench.peers
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            assert greedy.reading
            greedy.feed(encode(Command(10, opaque=number)))
    other.feed(encode(Command(10)))
    await turns()
    assert (greedy.reading, other.reading, len(answers)) == (False, True, 6)
    assert bench.refused == {"maxRequestsPerConnection": 1}
    assert "requests of a connection whose answers are being worked on: 5 requests, at most 4" in caplog.text
    for answer in answers[:2]:
        answer.set_result(None)
    await turns()
    assert not greedy.reading
    answers[2].set_result(None)
    await turns()
    assert greedy.reading, "two are left"


async def test_what_thousands_ask_for_in_one_moment_is_served_in_the_turns_of_others() -> None:
    served: list[float] = []

    def slow(_connection: Connection, command: Command) -> Command:
        bench.clock.advance(0.001)
        served.append(bench.clock.monotonic())
        return command.reply(0)

    bench = Many(slow, 200)
    late: list[float] = []
    bench.group.serve_late(lambda connection, command, waited: late.append(waited) or slow(connection, command), 0.1)
    friend = bench.again()
    bench.clock.advance(1)
    for peer in bench.peers:
        peer.feed(encode(Command(10)))
    at_once = len(served)
    assert at_once <= 22
    assert all(peer.reading for peer in bench.peers[:at_once])
    assert not bench.peers[-1].reading
    await turns(3)
    before = len(served)
    assert at_once < before <= at_once + 45
    friend.feed(encode(Command(10)))
    assert friend.written, "in a fresh turn it does not wait for those"
    await turns(30)
    assert len(served) == 201
    assert all(peer.written and peer.reading for peer in bench.peers)
    assert late == sorted(late)
    assert (len(late) > 90, 0.1 < late[0] < 0.11) == (True, True), "those that have waited longer may be refused"


async def test_a_changed_limit_holds_for_what_comes_next() -> None:
    bench = Many(echo, 1)
    bench.group.bounds.settings = SimpleNamespace(max_requests_per_connection=7, max_held_request_bytes=4 * MIB)
    bench.again()
    assert (bench.group.most_requests, bench.group.requests.limit) == (7, 4 * MIB)


@pytest.mark.over_limit("maxProxyValueBytes")
def test_a_load_balancers_values_are_not_kept_beyond_a_few_thousand_bytes() -> None:
    def header(*sizes: int) -> bytes:
        values = b"".join(struct.pack(">BH", kind, size) + b"v" * size for kind, size in enumerate(sizes))
        rest = b"\x0a\0\0\1\x0a\0\0\2" + struct.pack(">HH", 1, 2) + values
        return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x21, 0x11, len(rest)) + rest

    told = parse(header(1_000, 2_000, 2_000, 500))
    assert (told.source, sorted(told.values)) == ("10.0.0.1:1", [0, 1])
    assert len(parse(header(*[3] * 200)).values) < 50


async def test_ordinary_traffic_is_not_noted() -> None:
    bench = Many(echo, 1)
    bench.transport.feed(b"".join(encode(one) for one in requests(100)))
    assert (len(bench.sent()), len(bench.group.unread), bench.group.requests.used) == (100, 0, 0)
