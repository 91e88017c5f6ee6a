"""How a connection serves its peer, over a transport of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from connection_bench import Bench, echo, requests, run_bench, turns

from broker_probe import ConnectionProbe
from tianzhou.errors import BrokerError, ConnectionLost, FilterSyntaxError
from tianzhou.remoting.connection import FLUSH_BYTES, Connection, Reply
from tianzhou.remoting.session import MAX_FRAME
from tianzhou.remoting.unread import HIGH_BYTES
from tianzhou.testing.clock import run
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode, split

pytestmark = pytest.mark.runner.with_args(run_bench)


async def test_all_replies_of_one_read_go_out_in_one_write_and_in_order() -> None:
    bench = Bench(echo)
    bench.feed(*requests(20))
    assert bench.transport.writes == 1
    assert [c.opaque for c in bench.sent()] == list(range(20))


async def test_a_read_takes_the_fast_path_of_its_first_request() -> None:
    """The processor gets the requests that the path leaves, and reads that begin with another request."""
    bench = Bench(echo)

    def two_at_most(_: Connection, buffer: bytearray, start: int, end: int) -> tuple[int, list[bytes]]:
        replies = []
        while start < end and len(replies) < 2:
            size = 4 + int.from_bytes(buffer[start : start + 4], "big")
            command = split(buffer, start, start + size, MAX_FRAME)[0][0]
            replies.append(encode(command.reply(0, remark="fast")))
            start += size
        return start, replies

    bench.group.fast_paths[10] = two_at_most
    bench.feed(*requests(3))
    assert [c.remark for c in bench.sent()] == ["fast", "fast", "2"]
    bench.feed(*requests(1))
    assert [c.remark for c in bench.sent()] == ["fast"]
    bench.feed(Command(101, opaque=7), *requests(1))
    assert [c.remark for c in bench.sent()] == ["7", "0"]


async def test_no_empty_piece_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on asyncio never finishes to write one, and its loop spins."""
    bench, written = Bench(echo), []
    monkeypatch.setattr(bench.transport, "writelines", written.extend)
    for data in (b"", b"x" * FLUSH_BYTES, b""):
        bench.connection.send(data)
    await asyncio.sleep(0.01)
    assert b"".join(written) == b"x" * FLUSH_BYTES
    assert all(written)


@pytest.mark.parametrize("flag", [4, 8, 128, 256, 1 << 30, -4])
async def test_bits_of_the_flag_that_mean_nothing_do_not_keep_a_request_from_its_reply(flag: int) -> None:
    bench = Bench(echo)
    bench.feed(Command(10, opaque=7, flag=flag), Command(10, opaque=8, flag=flag | 2))
    assert [(c.opaque, c.flag) for c in bench.sent()] == [(7, 1)]


async def test_the_peer_is_known() -> None:
    connection = Bench(echo).connection
    assert (connection.remote_ip, connection.remote_port) == ("10.1.2.3", 4567)
    assert connection.remote_address == "10.1.2.3:4567"
    assert connection.remote_host_bytes == b"\x0a\x01\x02\x03"
    mapped = Connection(ConnectionProbe(connection).group)
    MemoryTransport(mapped, ("::ffff:10.1.2.3", 1))
    assert mapped.remote_host_bytes == b"\x0a\x01\x02\x03"
    six = Connection(ConnectionProbe(connection).group)
    MemoryTransport(six, ("2001:db8::1", 1))
    assert len(six.remote_host_bytes) == 16
    await ConnectionProbe(connection).group.close()


def test_a_processor_may_answer_with_a_frame_a_command_nothing_or_later() -> None:
    async def later(command: Command) -> Reply:
        await asyncio.sleep(1)
        return command.reply(3)

    def processor(_connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        answers: list[Any] = [encode(command.reply(1)), command.reply(2), None, later(command)]
        return answers[command.opaque]

    async def main() -> None:
        bench = Bench(processor)
        bench.feed(*requests(3))
        assert [(c.opaque, c.code) for c in bench.sent()] == [(0, 1), (1, 2)]
        bench.feed(Command(10, opaque=3))
        assert bench.sent() == []
        await asyncio.sleep(2)
        assert [(c.opaque, c.code) for c in bench.sent()] == [(3, 3)]
        await bench.group.close()

    # The answers that are not picked would warn about never having been awaited.
    with pytest.warns(RuntimeWarning):
        run(main())


@pytest.mark.parametrize("size", [0, 10, 50_000])
async def test_the_two_pieces_of_a_frame_stay_together(size: int) -> None:
    async def later(pieces: Reply) -> Reply:
        await asyncio.sleep(1)
        return pieces

    def processor(_connection: Connection, command: Command) -> Reply | Awaitable[Reply]:
        frame = encode(command.reply(0, body=b"x" * size))
        head = len(frame) - size
        pieces = frame[:head], frame[head:]
        if command.opaque % 3 == 2:
            return later(pieces)
        return pieces if command.opaque % 3 else frame

    bench = Bench(processor)
    bench.feed(*requests(6), Command(10, opaque=7, flag=2))
    assert [(c.opaque, len(c.body)) for c in bench.sent()] == [(n, size) for n in (0, 1, 3, 4)]
    await asyncio.sleep(2)
    assert [(c.opaque, len(c.body)) for c in bench.sent()] == [(2, size), (5, size)]


async def test_errors_become_codes() -> None:
    async def late(error: Exception) -> Reply:
        await asyncio.sleep(0)
        raise error

    errors = [
        BrokerError(17, "no such topic"),
        FilterSyntaxError("expected a word", 4),
        ZeroDivisionError("by zero"),
    ]

    def processor(_connection: Connection, command: Command) -> Any:
        if command.code == 11:
            return late(errors[command.opaque])
        raise errors[command.opaque]

    wanted = [
        (17, "no such topic"),
        (23, "expected a word at position 4"),
        (1, "ZeroDivisionError: by zero"),
    ]
    bench = Bench(processor)
    bench.feed(*requests(3))
    assert [(c.code, c.remark) for c in bench.sent()] == wanted
    bench.feed(*[Command(11, opaque=i) for i in range(3)])
    await turns()
    assert [(c.code, c.remark) for c in bench.sent()] == wanted


async def test_one_way_requests_are_served_and_never_answered() -> None:
    served = []

    async def late(command: Command) -> Reply:
        served.append(command.opaque)
        return command.reply(0)

    def processor(_connection: Connection, command: Command) -> Any:
        if command.opaque == 1:
            return late(command)
        if command.opaque == 2:
            raise ValueError("nobody hears this")
        served.append(command.opaque)
        return command.reply(0)

    bench = Bench(processor)
    bench.feed(*requests(3, flag=2))
    await turns()
    assert served == [0, 1]
    assert bench.sent() == []


async def test_a_processor_less_group_answers_that_it_serves_nothing() -> None:
    bench = Bench(None)  # type: ignore[arg-type]
    bench.feed(Command(40, opaque=9))
    (reply,) = bench.sent()
    assert (reply.code, reply.remark) == (3, " request type 40 not supported")


async def test_garbage_closes_after_what_stood_in_front_was_answered() -> None:
    bench = Bench(echo)
    bench.transport.feed(encode(Command(10, opaque=4)) + b"\0\0\0\x04\0\0\0\0")
    assert [c.opaque for c in bench.sent()] == [4]
    assert bench.transport.closed
    await turns()
    assert not bench.group.connections


async def test_handlers_end_with_their_connection() -> None:
    ended = []

    async def park(command: Command) -> Reply:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(command.opaque)
        return None

    bench = Bench(lambda _c, command: park(command))
    bench.feed(*requests(3))
    await turns()
    bench.feed(Command(10, opaque=3))  # its task has not even started
    bench.transport.lose()
    await turns()
    assert sorted(ended) == [0, 1, 2]
    await bench.group.close()
    assert len(asyncio.all_tasks()) == 1


async def test_close_callbacks_run_once_each_and_one_that_fails_stops_no_other() -> None:
    bench = Bench(echo)
    seen: list[str] = []
    bench.connection.on_close(lambda _c: seen.append("first"))
    bench.connection.on_close(lambda _c: 1 / 0)  # type: ignore[arg-type, return-value]
    bench.connection.on_close(lambda _c: seen.append("third"))
    bench.transport.lose(OSError("reset"))
    assert seen == ["first", "third"]
    bench.connection.on_close(lambda _c: seen.append("late"))
    assert seen == ["first", "third", "late"]
    bench.connection.send(Command(40))  # harmless


async def test_a_peer_that_does_not_read_is_not_read_from_and_costs_bounded_memory() -> None:
    body = b"r" * 20_000

    served = 0

    def processor(_connection: Connection, command: Command) -> Command:
        nonlocal served
        served += 1
        return command.reply(0, body=body)

    bench = Bench(processor)
    bench.transport.stall()
    data = b"".join(encode(c) for c in requests(2000))
    taken = bench.transport.feed(data)
    assert taken < len(data)
    assert not bench.transport.reading
    assert bench.transport.unsent <= HIGH_BYTES + FLUSH_BYTES + len(body) + 1000
    assert served * len(body) < 2_000_000
    while taken < len(data):
        bench.transport.catch_up()
        taken += bench.transport.feed(data[taken:])
    for _ in range(1000):
        bench.transport.catch_up()
    assert [c.opaque for c in bench.sent()] == list(range(2000))


async def test_requests_held_by_slow_handlers_are_bounded() -> None:
    gate = asyncio.Event()

    async def slow(command: Command) -> Reply:
        await gate.wait()
        return command.reply(0)

    bench = Bench(lambda _c, command: slow(command))
    bench.group.held_bytes = 300_000
    data = b"".join(encode(c) for c in requests(100, body=b"h" * 20_000))
    taken = bench.transport.feed(data)
    assert taken < 600_000
    assert not bench.transport.reading
    gate.set()
    await turns()
    assert bench.transport.reading
    while taken < len(data):
        taken += bench.transport.feed(data[taken:])
        await turns()
    assert len(bench.sent()) == 100


async def test_drain_waits_for_a_slow_peer_and_gives_up_with_the_connection() -> None:
    bench = Bench(echo)
    connection = bench.connection
    await connection.drain()
    bench.transport.stall()
    connection.send(b"x" * (HIGH_BYTES + 1))
    waiting = [asyncio.ensure_future(connection.drain()) for _ in range(2)]
    await turns()
    assert not any(task.done() for task in waiting)
    bench.transport.catch_up()
    await asyncio.gather(*waiting)
    connection.send(b"x" * (HIGH_BYTES + 1))
    last = asyncio.ensure_future(connection.drain())
    await turns()
    bench.transport.lose()
    with pytest.raises(ConnectionLost):
        await last


async def test_everything_sent_in_one_turn_shares_a_write() -> None:
    bench = Bench(echo)
    for i in range(10):
        bench.connection.send(Command(40, opaque=i))
    assert bench.transport.writes == 0
    await turns(1)
    assert bench.transport.writes == 1
    assert [c.opaque for c in bench.sent()] == list(range(10))


async def test_what_was_sent_before_a_close_goes_out() -> None:
    bench = Bench(echo)
    bench.connection.send(Command(40, opaque=1))
    bench.connection.close()
    assert [c.opaque for c in bench.sent()] == [1]
