"""Shared state of connections: the sweep of idle ones, and the shutdown of all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from connection_bench import Bench, echo, run_bench, turns

from tianzhou.limits import Bounds
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.command import Command, encode

pytestmark = pytest.mark.runner.with_args(run_bench)


@pytest.mark.over_limit("serverChannelMaxIdleTimeSeconds")
async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
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
    assert bench.group.bounds.refusals.counts == {"serverChannelMaxIdleTimeSeconds": 1}


@pytest.mark.over_limit("firstRequestTimeoutMillis")
async def test_who_dribbles_a_first_request_is_closed_and_a_later_one_may_take_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(echo, bounds=Bounds(SimpleNamespace(first_request_timeout_millis=30_000)), first_request=True)
    dribbling, frame = bench.again(), encode(Command(34))
    bench.transport.feed(frame + frame[:1])
    for number in range(30):
        bench.group.sweep_silent()
        assert not dribbling.closed
        dribbling.feed(frame[number : number + 1])
        bench.transport.feed(frame[number + 1 : number + 2])
        bench.clock.advance(1)
    bench.group.sweep_silent()
    await turns()
    assert (dribbling.closed, bench.transport.closed) == (True, False)
    assert bench.group.bounds.refusals.counts == {"firstRequestTimeoutMillis": 1}
    assert "closing 10.1.2.3:4568: no whole request within 30000 ms (firstRequestTimeoutMillis)" in caplog.text


async def test_a_client_waits_for_servers_that_say_nothing() -> None:
    bench = Bench(echo, bounds=Bounds(SimpleNamespace(first_request_timeout_millis=1)))
    bench.clock.advance(60)
    bench.group.sweep_silent()
    assert not bench.transport.closed


async def test_an_idle_peer_that_does_not_even_read_is_cut_off_by_the_next_sweep() -> None:
    bench = Bench(echo)
    bench.transport.stall()
    bench.connection.send(b"x" * 1000)
    await turns(1)
    for _ in range(2):
        bench.clock.advance(130)
        bench.group.sweep_idle()
        await turns(2)
    assert not bench.group.connections


async def test_closing_waits_for_writes_only_as_long_as_its_grace() -> None:
    group = ConnectionGroup(echo)
    group.start()
    connection = Connection(group)
    transport = MemoryTransport(connection)
    transport.stall()
    connection.send(b"x" * 1000)
    before = group.loop.time()
    await group.close(grace_s=2.0)
    assert group.loop.time() - before == pytest.approx(2.0)
    assert not group.connections


async def test_the_idle_sweep_runs_by_itself() -> None:
    group = ConnectionGroup(echo)
    group.start()
    transport = MemoryTransport(Connection(group))
    await asyncio.sleep(119)
    assert not transport.closed
    await asyncio.sleep(7)
    assert transport.closed
    await group.close()
