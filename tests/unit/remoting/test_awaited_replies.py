"""Requests to the peer: how replies are matched, awaited, abandoned and counted."""

from __future__ import annotations

import asyncio

import pytest
from connection_bench import Bench, echo, run_bench, turns

from tianzhou.errors import ConnectionLost, RequestTimeout, TooManyRequests
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.requester import MAX_REFUSAL_LISTENERS
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode

pytestmark = pytest.mark.runner.with_args(run_bench)


async def test_requests_to_the_peer_are_distinguished_from_its_requests_by_the_flag_not_the_opaque() -> None:
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


async def test_requests_time_out_to_the_tenth_of_a_second_and_leave_nothing() -> None:
    bench = Bench(echo)
    start = bench.clock.monotonic()
    # The virtual loop has its own clock, so the test sweeps the group itself.
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


async def test_requests_count_as_long_as_their_replies_are_awaited() -> None:
    bench = Bench(echo)
    bench.group.max_in_flight = 3
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


async def test_a_cancelled_request_is_forgotten() -> None:
    bench = Bench(echo)
    asked = asyncio.ensure_future(bench.connection.invoke(Command(307)))
    await turns(2)
    asked.cancel()
    await turns(2)
    assert bench.group.in_flight == 0
    (request,) = bench.sent()
    bench.feed(Command(0, opaque=request.opaque, flag=1))


async def test_too_many_requests_are_refused_before_anything_is_sent() -> None:
    bench = Bench(echo)
    bench.group.max_in_flight = 2
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


async def test_a_one_way_request_leaves_the_command_as_it_was() -> None:
    bench = Bench(echo)
    command = Command(40)
    bench.connection.invoke_oneway(command)
    await turns(1)
    (request,) = bench.sent()
    assert request.is_oneway
    assert command.flag == 0


async def test_the_answer_to_a_one_way_request_goes_to_its_listener_once() -> None:
    bench, answers = Bench(echo), []
    bench.connection.invoke_oneway(Command(37), answers.append)
    bench.connection.invoke_oneway(Command(37))
    await turns(2)
    heard, unheard = bench.sent()
    for request in (unheard, heard, heard):
        bench.feed(Command(16, opaque=request.opaque, flag=1, remark="refused"))
    assert [(answer.opaque, answer.remark) for answer in answers] == [(heard.opaque, "refused")]
    assert bench.group.in_flight == 0


async def test_listeners_of_one_way_requests_are_bounded() -> None:
    bench, answers = Bench(echo), []
    for _ in range(MAX_REFUSAL_LISTENERS + 1):
        bench.connection.invoke_oneway(Command(37), answers.append)
    await turns(2)
    requests = bench.sent()
    for request in (requests[0], requests[1], requests[-1]):
        bench.feed(Command(16, opaque=request.opaque, flag=1))
    assert [answer.opaque for answer in answers] == [requests[1].opaque, requests[-1].opaque]


async def test_a_peer_that_was_silent_through_a_whole_long_timeout_is_given_up() -> None:
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


async def test_deadlines_are_watched_by_one_timer() -> None:
    group = ConnectionGroup(echo, idle_timeout_s=0)
    group.start()
    connection = Connection(group)
    MemoryTransport(connection)
    start = group.loop.time()

    async def ask(timeout_ms: int) -> float:
        with pytest.raises(RequestTimeout):
            await connection.invoke(Command(307), timeout_ms)
        return group.loop.time() - start

    took = await asyncio.gather(*(ask(ms) for ms in (200, 730, 2000)))
    assert took == [pytest.approx(0.2, abs=0.06), pytest.approx(0.73, abs=0.06), pytest.approx(2.0, abs=0.06)]
    await group.close()


async def test_a_request_that_comes_alone_as_those_before_it_leaves_at_once() -> None:
    bench = Bench(echo)

    def ask() -> int:
        opaque = bench.group.opaques.next()
        bench.connection.ask(opaque, encode(Command(307, opaque=opaque)), 1000)
        return opaque

    first = ask()
    assert bench.sent() == []  # more may come in this iteration
    await turns(1)
    assert [command.opaque for command in bench.sent()] == [first]
    bench.feed(Command(0, opaque=first, flag=1))
    second = ask()
    assert [command.opaque for command in bench.sent()] == [second]
    third = ask()
    assert bench.sent() == []  # no longer one after the other
    fourth = ask()
    await turns(1)
    assert [command.opaque for command in bench.sent()] == [third, fourth]
    for opaque in (second, third, fourth):
        bench.feed(Command(0, opaque=opaque, flag=1))
    fifth = ask()
    assert bench.sent() == []
    await turns(1)
    assert [command.opaque for command in bench.sent()] == [fifth]
