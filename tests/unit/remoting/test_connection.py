"""How a connection serves its peer, over a transport of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tianzhou.errors import BrokerError, ConnectionLost, FilterSyntaxError, RequestTimeout, TooManyRequests
from tianzhou.remoting.connection import FLUSH_BYTES, WRITE_HIGH_BYTES, Connection, Reply
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.later import Later
from tianzhou.remoting.session import Session
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.codes import FLAG_ONEWAY, ResponseCode
from tianzhou.wire.command import Command, encode

Processor = Callable[[Connection, Command], Any]


class Bench:
    """A connection, what it writes, and its clock."""

    def __init__(self, processor: Processor, **limits: Any) -> None:
        self.clock = VirtualClock()
        self.group = ConnectionGroup(processor, clock=self.clock, **limits)
        self.group.start()
        self.connection = Connection(self.group)
        self.transport = MemoryTransport(self.connection, ("10.1.2.3", 4567))

    def feed(self, *commands: Command) -> int:
        return self.transport.feed(b"".join(encode(c) for c in commands))

    def sent(self) -> list[Command]:
        data, self.transport.written = bytes(self.transport.written), bytearray()
        return Session().receive(data) if data else []


def echo(_connection: Connection, command: Command) -> Command:
    return command.reply(0, remark=str(command.opaque))


def requests(count: int, **changes: Any) -> list[Command]:
    return [Command(10, opaque=i, **changes) for i in range(count)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_all_replies_of_one_read_go_out_in_one_write_and_in_order() -> None:
    async def main() -> None:
        bench = Bench(echo)
        bench.feed(*requests(20))
        assert bench.transport.writes == 1
        assert [c.opaque for c in bench.sent()] == list(range(20))
        await bench.group.close()

    run(main())


def test_the_peer_is_known() -> None:
    async def main() -> None:
        connection = Bench(echo).connection
        assert (connection.remote_ip, connection.remote_port) == ("10.1.2.3", 4567)
        assert connection.remote_address == "10.1.2.3:4567"
        assert connection.remote_host_bytes == b"\x0a\x01\x02\x03"
        mapped = Connection(connection._group)
        MemoryTransport(mapped, ("::ffff:10.1.2.3", 1))
        assert mapped.remote_host_bytes == b"\x0a\x01\x02\x03"
        six = Connection(connection._group)
        MemoryTransport(six, ("2001:db8::1", 1))
        assert len(six.remote_host_bytes) == 16
        await connection._group.close()

    run(main())


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
def test_the_two_pieces_of_a_frame_stay_together(size: int) -> None:
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

    async def main() -> None:
        bench = Bench(processor)
        bench.feed(*requests(6), Command(10, opaque=7, flag=2))
        assert [(c.opaque, len(c.body)) for c in bench.sent()] == [(n, size) for n in (0, 1, 3, 4)]
        await asyncio.sleep(2)
        assert [(c.opaque, len(c.body)) for c in bench.sent()] == [(2, size), (5, size)]
        await bench.group.close()

    run(main())


def test_errors_become_codes() -> None:
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

    async def main() -> None:
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
        await bench.group.close()

    run(main())


def test_one_way_requests_are_served_and_never_answered() -> None:
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

    async def main() -> None:
        bench = Bench(processor)
        bench.feed(*requests(3, flag=2))
        await turns()
        assert served == [0, 1]
        assert bench.sent() == []
        await bench.group.close()

    run(main())


def test_a_processor_less_group_answers_that_it_serves_nothing() -> None:
    async def main() -> None:
        bench = Bench(None)  # type: ignore[arg-type]
        bench.feed(Command(40, opaque=9))
        (reply,) = bench.sent()
        assert (reply.code, reply.remark) == (3, " request type 40 not supported")
        await bench.group.close()

    run(main())


def test_garbage_closes_after_what_stood_in_front_was_answered() -> None:
    async def main() -> None:
        bench = Bench(echo)
        bench.transport.feed(encode(Command(10, opaque=4)) + b"\0\0\0\x04\0\0\0\0")
        assert [c.opaque for c in bench.sent()] == [4]
        assert bench.transport.closed
        await turns()
        assert not bench.group.connections
        await bench.group.close()

    run(main())


def test_handlers_end_with_their_connection() -> None:
    ended = []

    async def park(command: Command) -> Reply:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(command.opaque)
        return None

    async def main() -> None:
        bench = Bench(lambda _c, command: park(command))
        bench.feed(*requests(3))
        await turns()
        bench.feed(Command(10, opaque=3))  # its task has not even started
        bench.transport.lose()
        await turns()
        assert sorted(ended) == [0, 1, 2]
        await bench.group.close()
        assert len(asyncio.all_tasks()) == 1

    run(main())


class Promise(Later):
    """A reply that the test gives; knows whether it was given up."""

    def __init__(self) -> None:
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def promising(*promises: Promise) -> Callable[[Connection, Command], Reply]:
    return lambda _connection, command: promises[command.opaque]


def test_promised_replies_go_out_when_they_are_given_and_once() -> None:
    async def main() -> None:
        promises = [Promise() for _ in range(5)]
        bench = Bench(promising(*promises))
        commands = requests(5)
        commands[4].flag = FLAG_ONEWAY
        bench.feed(*commands)
        await turns()
        assert bench.sent() == []
        frame = encode(commands[1].reply(7))
        promises[1].answer((frame[:9], frame[9:]))
        promises[0].answer(commands[0].reply(0, "here"))
        promises[0].answer(commands[0].reply(0, "again"))
        promises[2].answer(BrokerError(17, "no such topic"))
        promises[3].answer(ZeroDivisionError("nobody thought of that"))
        promises[4].answer(commands[4].reply(0))
        await turns()
        assert [(c.opaque, c.code, c.remark) for c in bench.sent()] == [
            (1, 7, None),
            (0, 0, "here"),
            (2, 17, "no such topic"),
            (3, ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: nobody thought of that"),
        ]
        await bench.group.close()
        assert not any(promise.cancelled for promise in promises)

    run(main())


def test_a_task_may_end_with_a_promise() -> None:
    async def main() -> None:
        promise = Promise()

        async def look(_command: Command) -> Reply:
            await asyncio.sleep(0)
            return promise

        bench = Bench(lambda _c, command: look(command))
        (command,) = requests(1)
        bench.feed(command)
        await turns()
        assert bench.sent() == []
        promise.answer(command.reply(5))
        await turns()
        assert [c.code for c in bench.sent()] == [5]
        await bench.group.close()

    run(main())


def test_promises_end_with_their_connection() -> None:
    async def main() -> None:
        promises = [Promise() for _ in range(3)]
        bench = Bench(promising(*promises))
        commands = requests(3)
        bench.feed(*commands)
        promises[1].answer(commands[1].reply(0))
        bench.transport.lose()
        assert [promise.cancelled for promise in promises] == [1, 0, 1]
        promises[0].answer(commands[0].reply(0))
        await bench.group.close()
        assert [promise.cancelled for promise in promises] == [1, 0, 1]

    run(main())


def test_requests_with_promised_replies_are_bounded() -> None:
    async def main() -> None:
        promises = [Promise() for _ in range(100)]
        bench = Bench(promising(*promises), held_bytes=300_000)
        commands = requests(100, body=b"h" * 20_000)
        data = b"".join(map(encode, commands))
        taken = bench.transport.feed(data)
        assert taken < 600_000
        assert not bench.transport.reading
        for number in range(10):
            promises[number].answer(commands[number].reply(0))
        assert bench.transport.reading
        await bench.group.close()

    run(main())


def test_close_callbacks_run_once_each_and_one_that_fails_stops_no_other() -> None:
    async def main() -> None:
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
        await bench.group.close()

    run(main())


def test_a_peer_that_does_not_read_is_not_read_from_and_costs_bounded_memory() -> None:
    body = b"r" * 20_000

    async def main() -> None:
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
        assert bench.transport.unsent <= WRITE_HIGH_BYTES + FLUSH_BYTES + len(body) + 1000
        assert served * len(body) < 2_000_000
        while taken < len(data):
            bench.transport.catch_up()
            taken += bench.transport.feed(data[taken:])
        for _ in range(1000):
            bench.transport.catch_up()
        assert [c.opaque for c in bench.sent()] == list(range(2000))
        await bench.group.close()

    run(main())


def test_requests_held_by_slow_handlers_are_bounded() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def slow(command: Command) -> Reply:
            await gate.wait()
            return command.reply(0)

        bench = Bench(lambda _c, command: slow(command), held_bytes=300_000)
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
        await bench.group.close()

    run(main())


def test_drain_waits_for_a_slow_peer_and_gives_up_with_the_connection() -> None:
    async def main() -> None:
        bench = Bench(echo)
        connection = bench.connection
        await connection.drain()
        bench.transport.stall()
        connection.send(b"x" * (WRITE_HIGH_BYTES + 1))
        waiting = [asyncio.ensure_future(connection.drain()) for _ in range(2)]
        await turns()
        assert not any(task.done() for task in waiting)
        bench.transport.catch_up()
        await asyncio.gather(*waiting)
        connection.send(b"x" * (WRITE_HIGH_BYTES + 1))
        last = asyncio.ensure_future(connection.drain())
        await turns()
        bench.transport.lose()
        with pytest.raises(ConnectionLost):
            await last
        await bench.group.close()

    run(main())


def test_everything_sent_in_one_turn_shares_a_write() -> None:
    async def main() -> None:
        bench = Bench(echo)
        for i in range(10):
            bench.connection.send(Command(40, opaque=i))
        assert bench.transport.writes == 0
        await turns(1)
        assert bench.transport.writes == 1
        assert [c.opaque for c in bench.sent()] == list(range(10))
        await bench.group.close()

    run(main())


def test_what_was_sent_before_a_close_goes_out() -> None:
    async def main() -> None:
        bench = Bench(echo)
        bench.connection.send(Command(40, opaque=1))
        bench.connection.close()
        assert [c.opaque for c in bench.sent()] == [1]
        await bench.group.close()

    run(main())


def test_requests_to_the_peer_are_told_from_its_requests_by_the_flag_not_the_opaque() -> None:
    async def main() -> None:
        bench = Bench(echo)
        asked = asyncio.ensure_future(bench.connection.invoke(Command(307), 10_000))
        await turns(2)
        (request,) = bench.sent()
        bench.feed(Command(34, opaque=request.opaque))  # the peer's own request with the same number
        assert [c.opaque for c in bench.sent()] == [request.opaque]
        assert not asked.done()
        bench.feed(Command(0, opaque=request.opaque, flag=1, body=b"info"))
        assert bytes((await asked).body) == b"info"
        bench.feed(Command(0, opaque=request.opaque, flag=1))  # late duplicate: dropped
        await bench.group.close()

    run(main())


def test_requests_time_out_to_the_tenth_of_a_second_and_leave_nothing() -> None:
    async def main() -> None:
        bench = Bench(echo)
        start = bench.clock.monotonic()
        # The virtual loop runs on a clock of its own; the group is swept by hand.
        asked = [asyncio.ensure_future(bench.connection.invoke(Command(307), ms)) for ms in (500, 1000)]
        await turns(1)
        bench.clock.advance(0.499)
        bench.group.sweep_deadlines()
        assert not asked[0].done()
        bench.clock.advance(0.001)
        bench.group.sweep_deadlines()
        with pytest.raises(RequestTimeout, match=r"10\.1\.2\.3:4567 within 500 ms"):
            await asked[0]
        assert bench.clock.monotonic() - start == pytest.approx(0.5)
        assert not asked[1].done()
        bench.transport.lose(OSError("reset by peer"))
        with pytest.raises(ConnectionLost, match="reset by peer"):
            await asked[1]
        assert bench.group.in_flight == 0
        with pytest.raises(ConnectionLost):
            await bench.connection.invoke(Command(307))
        with pytest.raises(ConnectionLost):
            bench.connection.invoke_oneway(Command(40))
        await bench.group.close()

    run(main())


def test_requests_count_as_long_as_their_replies_are_awaited() -> None:
    async def main() -> None:
        bench = Bench(echo, max_in_flight=3)
        opaques = [bench.group.opaques.next() for _ in range(4)]

        def ask(number: int, ms: float = 1000) -> asyncio.Future[Command]:
            opaque = opaques[number]
            return bench.connection.ask(opaque, encode(Command(307, opaque=opaque)), ms)

        answered, late, forgotten = ask(0), ask(1, 500), ask(2)
        with pytest.raises(TooManyRequests):
            ask(3)
        await turns(1)
        bench.feed(Command(0, opaque=opaques[0], flag=1))
        assert (await answered).opaque == opaques[0]
        assert bench.group.in_flight == 2
        bench.connection.forget(opaques[2])
        bench.connection.forget(opaques[2])
        assert bench.group.in_flight == 1
        bench.feed(Command(0, opaque=opaques[2], flag=1))
        assert not forgotten.done()
        bench.clock.advance(0.5)
        bench.group.sweep_deadlines()
        assert isinstance(late.exception(), RequestTimeout)
        assert bench.group.in_flight == 0
        lost = ask(3)
        bench.transport.lose(None)
        assert isinstance(lost.exception(), ConnectionLost)
        bench.connection.forget(opaques[3])
        assert bench.group.in_flight == 0
        await bench.group.close()

    run(main())


def test_a_cancelled_request_is_forgotten() -> None:
    async def main() -> None:
        bench = Bench(echo)
        asked = asyncio.ensure_future(bench.connection.invoke(Command(307)))
        await turns(2)
        asked.cancel()
        await turns(2)
        assert bench.group.in_flight == 0
        (request,) = bench.sent()
        bench.feed(Command(0, opaque=request.opaque, flag=1))
        await bench.group.close()

    run(main())


def test_too_many_requests_are_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        bench = Bench(echo, max_in_flight=2)
        asked = [asyncio.ensure_future(bench.connection.invoke(Command(307))) for _ in range(2)]
        await turns(2)
        bench.sent()
        with pytest.raises(TooManyRequests, match="2 requests"):
            await bench.connection.invoke(Command(307))
        await turns(2)
        assert bench.sent() == []
        bench.transport.lose()
        for one in asked:
            with pytest.raises(ConnectionLost):
                await one
        await bench.group.close()

    run(main())


def test_a_one_way_request_leaves_the_command_as_it_was() -> None:
    async def main() -> None:
        bench = Bench(echo)
        command = Command(40)
        bench.connection.invoke_oneway(command)
        await turns(1)
        (request,) = bench.sent()
        assert request.is_oneway
        assert command.flag == 0
        await bench.group.close()

    run(main())


def test_a_peer_that_was_silent_through_a_whole_long_timeout_is_given_up() -> None:
    async def main() -> None:
        for speaks in (False, True):
            bench = Bench(echo)
            asked = asyncio.ensure_future(bench.connection.invoke(Command(307), 5000))
            await turns(2)
            bench.clock.advance(2)
            if speaks:
                bench.feed(Command(34))
            bench.clock.advance(3)
            bench.group.sweep_deadlines()
            with pytest.raises(RequestTimeout):
                await asked
            assert bench.transport.closed is not speaks
            await bench.group.close()

    run(main())


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def main() -> None:
        bench = Bench(echo)
        busy = Connection(bench.group)
        transport = MemoryTransport(busy)
        bench.clock.advance(119)
        bench.group.sweep_idle()
        assert not bench.transport.closed
        transport.feed(encode(Command(34)))
        bench.clock.advance(1)
        bench.group.sweep_idle()
        assert bench.transport.closed
        assert not transport.closed
        await bench.group.close()

    run(main())


def test_an_idle_peer_that_does_not_even_read_is_cut_off_by_the_next_sweep() -> None:
    async def main() -> None:
        bench = Bench(echo)
        bench.transport.stall()
        bench.connection.send(b"x" * 1000)
        await turns(1)
        for _ in range(2):
            bench.clock.advance(130)
            bench.group.sweep_idle()
            await turns(2)
        assert not bench.group.connections
        await bench.group.close()

    run(main())


def test_closing_waits_for_writes_only_as_long_as_its_grace() -> None:
    async def main(clock: VirtualClock) -> None:
        group = ConnectionGroup(echo, clock=clock)
        group.start()
        connection = Connection(group)
        transport = MemoryTransport(connection)
        transport.stall()
        connection.send(b"x" * 1000)
        before = clock.monotonic()
        await group.close(grace_s=2.0)
        assert clock.monotonic() - before == pytest.approx(2.0)
        assert not group.connections

    clock = VirtualClock()
    run(main(clock), clock)


def test_the_idle_sweep_runs_by_itself() -> None:
    async def main(clock: VirtualClock) -> None:
        group = ConnectionGroup(echo, clock=clock)
        group.start()
        transport = MemoryTransport(Connection(group))
        await asyncio.sleep(119)
        assert not transport.closed
        await asyncio.sleep(7)
        assert transport.closed
        await group.close()

    clock = VirtualClock()
    run(main(clock), clock)


def test_deadlines_are_watched_by_one_timer() -> None:
    async def main(clock: VirtualClock) -> None:
        group = ConnectionGroup(echo, clock=clock, idle_timeout_s=0)
        group.start()
        connection = Connection(group)
        MemoryTransport(connection)
        start = clock.monotonic()

        async def ask(timeout_ms: int) -> float:
            with pytest.raises(RequestTimeout):
                await connection.invoke(Command(307), timeout_ms)
            return clock.monotonic() - start

        took = await asyncio.gather(*(ask(ms) for ms in (200, 730, 2000)))
        assert took == [pytest.approx(0.2, abs=0.06), pytest.approx(0.73, abs=0.06), pytest.approx(2.0, abs=0.06)]
        await group.close()

    clock = VirtualClock()
    run(main(clock), clock)
