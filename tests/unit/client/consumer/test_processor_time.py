"""Handler times: a handler's computing and waiting are measured, and the plan derived from them holds.

Handlers of the event loop run in virtual time: a computing handler advances the clock, which blocks all others, like on
one core.
"""

import asyncio
import time

import pytest
from dispatch_bench import DispatchBench

from tianzhou.bench.consumer_capacity import ConsumerLoad, MemberWorkers, way
from tianzhou.client.consumer.push.concurrent import ConcurrentDispatcher
from tianzhou.client.consumer.push.consume_rates import MEASURED_FIRST
from tianzhou.client.consumer.push.orderly import OrderlyDispatcher
from tianzhou.model import ConsumeResult
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.bodies.handler_times import RunsIn

CPU_S, IO_S = 0.002, 0.018


class Away:
    async def give(self, message, delay_level):
        return True


async def relock(pq):
    return True


def bench_of(handler, clock, *, orderly=False, **more):
    parts = {"relock": relock, "orderly": True} if orderly else {}
    dispatcher = OrderlyDispatcher if orderly else ConcurrentDispatcher
    return DispatchBench(dispatcher, handler, Away(), cpu_s=clock.monotonic, **parts, **more)


async def consume(bench, count, workers, queues=1):
    """Consume messages; return the duration in seconds."""
    pqs = [bench.queue(number) for number in range(queues)]
    began_s = bench.clock.monotonic()
    async with bench.running(workers):
        for pq in pqs:
            pq.locked(1e9, 0)
            bench.put(pq, *range(count // queues))
        while any(len(pq.tracker) for pq in pqs):
            await asyncio.sleep(CPU_S / 10)
    return bench.clock.monotonic() - began_s


def times_of(bench):
    return bench.rates.times(bench.handlers.runs_in)["T"]


@pytest.mark.parametrize(
    "ways",
    [{}, {"hooks": (lambda call: None,)}, {"batch_size": 2}, {"orderly": True}],
    ids=["plain", "hooks", "batches", "orderly"],
)
def test_a_handler_in_the_loop_is_planned_as_it_runs(ways):
    clock = VirtualClock()

    async def handler(found):
        messages = found if isinstance(found, list) else [found]
        for _ in messages:
            clock.advance(CPU_S / 2)
            await asyncio.sleep(IO_S / 2)
            clock.advance(CPU_S / 2)
            await asyncio.sleep(IO_S / 2)

    async def main():
        first = bench_of(handler, clock, **ways)
        await consume(first, 20, 1)
        alone = times_of(first)
        assert (alone.messages, alone.runs_in) == (20, RunsIn.loop)
        assert alone.cpu_ms == pytest.approx(2, rel=0.01)
        assert alone.wall_ms == pytest.approx(20, rel=0.01)

        load = ConsumerLoad(peak=1, cpu_ms=alone.cpu_ms, io_ms=alone.io_ms, cores=1)
        planned = way(load, MemberWorkers.threads)
        assert planned.concurrency == 10
        loaded = bench_of(handler, clock, **ways)
        took_s = await consume(loaded, 1000, planned.concurrency, queues=10)
        assert 1000 / took_s == pytest.approx(planned.rate, rel=0.15)
        assert times_of(loaded).cpu_ms == pytest.approx(2, rel=0.01)

        more = bench_of(handler, clock, **ways)
        took_s = await consume(more, 1000, 4 * planned.concurrency, queues=40)
        assert 1000 / took_s == pytest.approx(planned.rate, rel=0.15), "more handlers than planned take no more"

    run(main(), clock)


@pytest.mark.parametrize("hooks", [(), (lambda call: None,)])
def test_a_handler_that_never_waits_has_no_waiting_time(hooks):
    clock = VirtualClock()

    async def handler(_):
        clock.advance(CPU_S)

    async def main():
        bench = bench_of(handler, clock, hooks=hooks)
        await consume(bench, 100, 2)
        found = times_of(bench)
        assert MEASURED_FIRST <= found.messages < 100, "after the first ones not each call is measured"
        assert (found.cpu_ms, found.io_ms) == (pytest.approx(2), pytest.approx(0, abs=1e-6))

    run(main(), clock)


@pytest.mark.parametrize("hooks", [(), (lambda call: None,)])
def test_handlers_that_fail_are_measured_too(hooks):
    clock = VirtualClock()

    async def handler(message):
        clock.advance(CPU_S)
        if message.queue_offset % 3 == 0:
            raise ValueError("no")
        await asyncio.sleep(IO_S)
        clock.advance(CPU_S)
        if message.queue_offset % 3 == 1:
            return ConsumeResult.RECONSUME_LATER
        raise ValueError("not now")

    async def main():
        bench = bench_of(handler, clock, hooks=hooks)
        await consume(bench, 30, 1)
        found = times_of(bench)
        assert (found.messages, found.cpu_ms) == (30, pytest.approx((2 + 4 + 4) / 3))

    run(main(), clock)


def test_a_handler_in_a_thread_is_measured_by_the_time_of_its_thread():
    def handler(_):
        began_s = time.thread_time()
        while time.thread_time() - began_s < CPU_S:
            pass
        time.sleep(IO_S)

    async def main():
        bench = DispatchBench(ConcurrentDispatcher, handler, Away(), threads=4)
        await consume(bench, 40, 4)
        return times_of(bench)

    found = asyncio.run(main())
    assert found.messages >= MEASURED_FIRST
    assert found.runs_in is RunsIn.threads
    assert found.cpu_ms == pytest.approx(2, rel=0.15)
    assert found.wall_ms >= 20


def test_a_plain_function_that_returns_an_awaitable_counts_both_parts():
    clock = VirtualClock()

    async def rest():
        clock.advance(CPU_S)
        await asyncio.sleep(IO_S)

    async def main():
        bench = bench_of(lambda _: rest(), clock)
        await consume(bench, 5, 1)
        assert times_of(bench).cpu_ms == pytest.approx(2, abs=0.5)

    run(main(), clock)


def test_what_hooks_are_told_is_the_time_of_the_call():
    clock, seen = VirtualClock(), []

    async def handler(_):
        clock.advance(CPU_S)

    async def main():
        bench = bench_of(handler, clock, hooks=(lambda call: lambda after: seen.append(after.cpu_s),))
        await consume(bench, 3, 1)

    run(main(), clock)
    assert seen == [pytest.approx(CPU_S)] * 3
