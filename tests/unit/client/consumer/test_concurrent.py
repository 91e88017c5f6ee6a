"""Concurrent consumption: the number of parallel handlers, and their effect on a queue's offsets."""

import asyncio

import pytest
from dispatch_bench import DispatchBench

from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.push import concurrent as module
from tianzhou.client.consumer.push.concurrent import ConcurrentDispatcher
from tianzhou.client.consumer.push.dispatcher import TURN_MESSAGES
from tianzhou.model import ConsumeResult
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)


class Taken:
    def __init__(self):
        self.given = []

    async def give(self, message, delay_level):
        self.given.append((message.queue_offset, delay_level))
        return True


class Bench(DispatchBench):
    def __init__(self, handler, *, batch_size=1, timeout_s=60.0, hooks=()):
        options = {"consume_timeout_ms": int(timeout_s * 1000)}
        super().__init__(ConcurrentDispatcher, handler, Taken(), batch_size=batch_size, hooks=hooks, options=options)


async def turns(count=50):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("hooks", [(), (lambda call: None,)])
async def test_handlers_that_wait_run_side_by_side_as_many_as_there_are_workers(batch_size, hooks):
    at_once = most = 0
    go_on = asyncio.Event()

    async def handler(_):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go_on.wait()
        at_once -= 1

    async with Bench(handler, batch_size=batch_size, hooks=hooks).running(5) as bench:
        await turns(2)
        pq = bench.queue()
        bench.put(pq, *range(12))
        await turns()
        assert at_once == 5
        assert pq.tracker.committable == 0
        go_on.set()
        await turns()
        assert (most, at_once, pq.tracker.committable, bench.rates.consumed) == (5, 0, 12, 12)


async def test_what_is_consumed_counts_while_a_later_message_waits():
    stuck = asyncio.Event()

    async def handler(found):
        if found.queue_offset == 3:
            await stuck.wait()

    async with Bench(handler).running(2) as bench:
        pq = bench.queue()
        bench.put(pq, *range(8))
        await turns()
        assert pq.tracker.committable == 3
        assert len(pq.tracker) == 1
        stuck.set()
        await turns()
        assert pq.tracker.committable == 8


async def test_others_get_their_turn_though_no_handler_ever_waits():
    seen = []

    async def handler(found):
        seen.append(found.queue_offset)

    async with Bench(handler).running(1) as bench:
        bench.put(bench.queue(), *range(5 * TURN_MESSAGES))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(seen) <= 2 * TURN_MESSAGES
        await turns()
        assert seen == list(range(5 * TURN_MESSAGES))


async def test_a_worker_that_is_sent_home_when_called_leaves_the_message_to_another():
    seen = []

    async def handler(found):
        seen.append(found.queue_offset)

    async with Bench(handler).running(3) as bench:
        await turns()
        bench.put(bench.queue(), 0)
        bench.consuming.resize(1)  # in the same loop iteration, so the called one may be one of the stopped ones
        await turns()
        assert seen == [0]
        bench.put(bench.queue(1), 0)
        await turns()
        assert seen == [0, 0]


@pytest.mark.parametrize("answer", [ConsumeResult.RECONSUME_LATER, ConsumeResult.COMMIT, ValueError("no")])
async def test_what_is_not_consumed_is_sent_back(answer):
    async def handler(found):
        if found.queue_offset == 1:
            if isinstance(answer, Exception):
                raise answer
            return answer
        return ConsumeResult.SUCCESS

    async with Bench(handler).running(2) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1, 2)
        await turns()
        assert bench.away.given == [(1, 0)]
        assert (bench.rates.consumed, bench.rates.failed, pq.tracker.committable) == (2, 1, 3)
        assert pq.at_work == 0


EXITS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("mine"), StopIteration(1)]
NO_CTRL_C = [error for error in EXITS if not isinstance(error, KeyboardInterrupt)]


def fails_once(error, *, sync=False, waits=False):
    """Return a handler that raises the error for the message at offset 1."""

    def consume(found):
        if (found[0] if isinstance(found, list) else found).queue_offset == 1:
            raise error

    async def consume_async(found):
        if waits:
            await asyncio.sleep(0)
        consume(found)

    return consume if sync else consume_async


@pytest.mark.parametrize("hooks", [(), (lambda call: None,)], ids=["plain", "hooked"])
@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "waits"])
@pytest.mark.parametrize("error", NO_CTRL_C, ids=lambda error: type(error).__name__)
async def test_any_exception_of_a_handler_is_a_failed_message_and_its_worker_goes_on(error, waits, hooks, caplog):
    async with Bench(fails_once(error, waits=waits), hooks=hooks).running(1) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1, 2)
        await turns()
        assert bench.away.given == [(1, 0)]
        assert (bench.rates.consumed, bench.rates.failed, pq.tracker.committable) == (2, 1, 3)
        assert pq.at_work == 0
    said = [record for record in caplog.records if "not consumed" in record.message]
    assert len(said) == 1
    assert "in consume_async" in said[0].exc_text
    assert type(error).__name__ in said[0].exc_text


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
def test_any_exception_of_a_handler_in_a_thread_is_a_failed_message(error, batch_size):
    async def main():
        async with Bench(fails_once(error, sync=True), batch_size=batch_size).running(1) as bench:
            pq = bench.queue()
            bench.put(pq, 1)
            bench.put(pq, 2)
            async with asyncio.timeout(20):
                while pq.tracker.committable < 3:
                    await asyncio.sleep(0.001)
            assert bench.away.given == [(1, 0)]

    asyncio.run(main())


async def test_a_hook_sees_the_exit_of_a_handler_and_may_exit_itself():
    calls = []

    def look(call):
        calls.append(call)
        raise SystemExit(5)

    async with Bench(fails_once(SystemExit(3)), hooks=[look]).running(1) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1, 2)
        await turns()
        assert pq.tracker.committable == 3
    assert [call.outcome.name for call in calls] == ["SUCCESS", "EXCEPTION", "SUCCESS"]
    assert calls[1].error.__cause__.code == 3


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "waits"])
def test_ctrl_c_in_the_main_thread_ends_the_program_in_order(waits):
    left = []

    async def main():
        try:
            async with Bench(fails_once(KeyboardInterrupt(), waits=waits)).running(1) as bench:
                bench.put(bench.queue(), 0, 1, 2)
                await asyncio.sleep(10)
        finally:
            left.append(bench.away.given)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert left == [[]]


async def test_a_worker_that_is_cancelled_while_a_handler_runs_ends():
    began = asyncio.Event()

    async def handler(_):
        began.set()
        await asyncio.Event().wait()

    async with Bench(handler).running(1) as bench:
        bench.put(bench.queue(), 0)
        await began.wait()
        [worker] = [slot.task for slot in bench.consuming._workers.slots]
        worker.cancel()
        await asyncio.wait([worker])
        assert worker.cancelled()
        assert bench.away.given == []


async def test_a_handler_that_takes_too_long_is_cut_short_and_its_worker_goes_on():
    ended = []

    async def handler(found):
        if found.queue_offset == 0:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cut short")
        ended.append(found.queue_offset)

    async with Bench(handler, timeout_s=10.0).running(1) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1)
        await asyncio.sleep(9)
        assert ended == []
        await asyncio.sleep(3)
        assert ended == ["cut short", 1]
        assert bench.away.given == [(0, module.EXPIRED_DELAY_LEVEL)]


async def test_a_queue_that_is_given_up_has_nothing_handed_out_and_its_last_handler_is_waited_for():
    go_on = asyncio.Event()
    seen = []

    async def handler(found):
        seen.append(found.queue_offset)
        await go_on.wait()

    async with Bench(handler).running(1) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1, 2)
        await turns()
        pq.leave()
        rested = [bench.spawn(pq.rested()) for _ in range(2)]
        await turns()
        assert not any(task.done() for task in rested)
        go_on.set()
        await turns()
        assert all(task.done() for task in rested)
        assert (seen, pq.tracker.committable) == ([0], 1)


async def test_pulling_goes_on_when_handlers_make_room():
    go_on = asyncio.Event()

    async def handler(_):
        await go_on.wait()

    async with Bench(handler).running(2) as bench:
        pq = bench.queue(limits=PullLimits(messages=3))
        bench.put(pq, *range(4))
        assert not pq.room.is_set()
        await turns()
        assert not pq.room.is_set()
        go_on.set()
        await turns()
        assert pq.room.is_set()


async def test_only_the_time_handlers_take_counts_and_each_message_says_when_its_own_began():
    began_ms = []

    async def handler(found):
        began_ms.append(int(found.properties["CONSUME_START_TIME"]) - start_ms)
        await asyncio.sleep(1.5)

    bench = Bench(handler, timeout_s=4.0)
    start_ms, pq = bench.clock.now_ms(), bench.queue()
    await asyncio.sleep(100)
    bench.put(pq, 0, 1)
    async with bench.running(1):  # waiting messages are as new to them as arriving ones
        await asyncio.sleep(10)
        bench.put(pq, 2, 3)
        await asyncio.sleep(10)
        assert began_ms == [100_000, 101_500, 110_000, 111_500]
        rates = bench.rates.of("T")
        assert (rates.calls, round(rates.call_ms), bench.rates.consumed, bench.away.given) == (4, 6000, 4, [])
