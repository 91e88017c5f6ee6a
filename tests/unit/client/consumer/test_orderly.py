"""Orderly consumption: one handler per queue, under a lock, in virtual time."""

import asyncio
from collections import defaultdict

import pytest
from dispatch_bench import DispatchBench, message

from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.push.orderly import OrderlyDispatcher, OrderlyStep, rest_ms, step_after
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.model import ConsumeResult, MessageModel
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)

SUCCESS, SUSPEND = ConsumeResult.SUCCESS, ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
COMMIT, ROLLBACK = ConsumeResult.COMMIT, ConsumeResult.ROLLBACK


class GivenAway:
    def __init__(self, accepts=True):
        self.accepts = accepts
        self.messages = []

    async def store_again(self, message, max_times):
        self.messages.append((message.queue_offset, max_times))
        return self.accepts


class Bench(DispatchBench):
    def __init__(self, handler, *, batch_size=1, max_times=10, model=MessageModel.CLUSTERING, relock=None, away=None):
        options = {"message_model": model, "max_reconsume_times": max_times}
        super().__init__(
            OrderlyDispatcher, handler, away or GivenAway(),
            batch_size=batch_size, orderly=True, options=options, relock=relock or self.relock,
        )  # fmt: skip

    async def relock(self, pq):
        pq.locked(self.clock.monotonic(), 0)
        return True

    def queue(self, queue_id=0, *, locked=True):
        pq = super().queue(queue_id)
        if locked:
            pq.locked(self.clock.monotonic(), 0)
        return pq


@pytest.mark.parametrize(
    ("result", "raised", "auto_commit", "step"),
    [
        (None, False, True, OrderlyStep.COMMIT),
        (SUCCESS, False, True, OrderlyStep.COMMIT),
        (COMMIT, False, True, OrderlyStep.COMMIT),
        (ROLLBACK, False, True, OrderlyStep.COMMIT),
        (SUSPEND, False, True, OrderlyStep.REPEAT),
        (None, True, True, OrderlyStep.REPEAT),
        (SUCCESS, False, False, OrderlyStep.KEEP),
        (None, False, False, OrderlyStep.KEEP),
        (COMMIT, False, False, OrderlyStep.COMMIT),
        (ROLLBACK, False, False, OrderlyStep.ROLLBACK),
        (SUSPEND, False, False, OrderlyStep.REPEAT),
        (None, True, False, OrderlyStep.REPEAT),
    ],
)
def test_what_follows_from_an_answer(result, raised, auto_commit, step):
    assert step_after(result, raised=raised, auto_commit=auto_commit) is step


@pytest.mark.parametrize(
    ("wanted", "rest"), [(None, 1_000), (-1, 1_000), (0, 10), (9, 10), (500, 500), (30_000, 30_000), (10**6, 30_000)]
)
def test_how_long_a_queue_rests(wanted, rest):
    assert rest_ms(wanted, 1_000) == rest


async def test_queues_take_turns_and_each_keeps_its_order():
    seen, at_work = [], defaultdict(int)

    async def handler(message):
        at_work[message.queue_id] += 1
        assert at_work[message.queue_id] == 1
        await asyncio.sleep(0.01 * (1 + message.queue_offset % 3))
        at_work[message.queue_id] -= 1
        seen.append((message.queue_id, message.queue_offset))

    async with Bench(handler).running(workers=2) as bench:
        queues = [bench.queue(i) for i in range(3)]
        for first in (0, 10):
            for pq in queues:
                bench.put(pq, *range(first, first + 10))
            await asyncio.sleep(0.05)
        await asyncio.sleep(20)
        assert [pq.tracker.committable for pq in queues] == [20, 20, 20]
    for queue_id in range(3):
        assert [offset for q, offset in seen if q == queue_id] == list(range(20))
    # With two workers for three queues, none of them waits until another is empty.
    assert {q for q, _ in seen[:6]} == {0, 1, 2}
    assert bench.rates.consumed == 60


async def test_a_failure_repeats_after_a_rest_and_nothing_overtakes():
    tries = []

    async def handler(message, context):
        tries.append((message.queue_offset, message.reconsume_times, bench.clock.monotonic()))
        if message.queue_offset == 1 and message.reconsume_times < 2:
            context.suspend_ms = 5_000 if message.reconsume_times else None
            return SUSPEND
        return None

    async with Bench(handler).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(3))
        await asyncio.sleep(2)
        assert pq.tracker.committable == 1
        await asyncio.sleep(10)
        assert pq.tracker.committable == 3
    assert [(offset, times) for offset, times, _ in tries] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert tries[2][2] - tries[1][2] == pytest.approx(1.0)
    assert tries[3][2] - tries[2][2] == pytest.approx(5.0)
    assert bench.rates.failed == 2


async def test_what_fails_too_often_is_given_away_and_the_rest_of_its_batch_repeats():
    batches = []

    async def handler(messages):
        batches.append([(m.queue_offset, m.reconsume_times) for m in messages])
        if any(m.queue_offset == 0 for m in messages):
            raise ValueError("0 is poison")

    async with Bench(handler, batch_size=3, max_times=1).running(4) as bench:
        pq = bench.queue()
        first = message(0)
        first.reconsume_times = 1
        bench.consuming.put(pq, pq.take_in([first, message(1), message(2), message(3)], 4))
        await asyncio.sleep(10)
        assert pq.tracker.committable == 4
    assert batches == [[(0, 1), (1, 0), (2, 0)], [(1, 1), (2, 1), (3, 0)]]
    assert bench.away.messages == [(0, 1)]


async def test_what_nobody_takes_is_repeated():
    tries = []

    async def handler(message):
        tries.append(message.reconsume_times)
        if len(tries) < 4:
            raise ValueError("no")

    async with Bench(handler, max_times=1, away=GivenAway(accepts=False)).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(1))
        await asyncio.sleep(10)
        assert pq.tracker.committable == 1
    assert tries == [0, 1, 2, 3]


async def test_what_fails_too_often_in_broadcasting_is_dropped():
    async def handler(message):
        raise ValueError("no")

    async with Bench(handler, max_times=1, model=MessageModel.BROADCASTING).running(4) as bench:
        pq = bench.queue(locked=False)
        bench.put(pq, *range(2))
        await asyncio.sleep(10)
        assert pq.tracker.committable == 2
    assert bench.away.messages == []


async def test_without_a_lock_nothing_is_consumed():
    seen, answers = [], [None, True]

    async def relock(pq):
        answer = answers.pop(0)
        if answer:
            pq.locked(bench.clock.monotonic(), 0)
        return answer

    async def handler(message):
        seen.append((message.queue_offset, bench.clock.monotonic()))
        await asyncio.sleep(25)

    # the lock of 0 s still holds at 25 s; it is renewed at 50 s and again at 53 s
    async with Bench(handler, relock=relock).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(3))
        await asyncio.sleep(20)
        assert [offset for offset, _ in seen] == [0]
        await asyncio.sleep(200)
    assert answers == []
    assert [offset for offset, _ in seen] == [0, 1, 2]
    assert seen[1][1] == pytest.approx(25)
    assert seen[2][1] == pytest.approx(53)


async def test_a_queue_that_leaves_lets_its_handler_count_and_hands_out_no_more():
    seen = []

    async def handler(message):
        await asyncio.sleep(1)
        seen.append(message.queue_offset)

    async with Bench(handler).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(3))
        await asyncio.sleep(0.5)
        pq.leave()
        assert not pq.no_handler.is_set()
        await pq.no_handler.wait()
        await asyncio.sleep(5)
        assert (seen, pq.tracker.committable) == ([0], 1)


async def test_a_queue_begun_again_waits_for_its_former_handler():
    seen = []

    async def handler(message):
        began = bench.clock.monotonic()
        await asyncio.sleep(1)
        seen.append((message.queue_offset, began))

    async with Bench(handler).running(4) as bench:
        old = bench.queue()
        bench.put(old, *range(1))
        await asyncio.sleep(0.5)
        old.drop()
        new = ProcessQueue(old.queue, 0, PullLimits(), 0, None, old.no_handler)
        new.succeed(old)
        bench.put(new, *range(2))
        await asyncio.sleep(10)
        assert (old.tracker.committable, new.tracker.committable) == (0, 2)
    assert seen == [(0, 0.0), (0, 1.0), (1, 2.0)]


async def test_without_auto_commit_the_handler_decides():
    seen = []
    answers = {1: [COMMIT], 4: [ROLLBACK, COMMIT]}

    async def handler(message, context):
        context.auto_commit = False
        seen.append(message.queue_offset)
        return answers.get(message.queue_offset, [SUCCESS]).pop(0) if message.queue_offset in answers else SUCCESS

    async with Bench(handler).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(6))
        await asyncio.sleep(0.5)
        assert (pq.tracker.committable, [m.queue_offset for m in pq.waiting]) == (2, [2, 3, 4, 5])
        await asyncio.sleep(10)
        assert pq.tracker.committable == 5
        info = pq.info(0.0)
        assert (info.transaction_msg_count, info.transaction_msg_min_offset) == (1, 5)
    assert seen == [0, 1, 2, 3, 4, 2, 3, 4, 5]


async def test_an_answer_that_would_break_the_order_is_refused(caplog):
    async def handler(message):
        return ConsumeResult.RECONSUME_LATER if message.reconsume_times == 0 else None

    async with Bench(handler).running(4) as bench:
        pq = bench.queue()
        bench.put(pq, *range(1))
        await asyncio.sleep(5)
        assert pq.tracker.committable == 1
    assert "return None or one of ConsumeResult.COMMIT" in caplog.text


async def test_the_number_of_workers_changes():
    running = 0
    gate = asyncio.Event()

    async def handler(message):
        nonlocal running
        running += 1
        await gate.wait()
        running -= 1

    async with Bench(handler).running(workers=2) as bench:
        for i in range(8):
            bench.put(bench.queue(i), *range(1))
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert running == 2
        bench.consuming.resize(5)
        await asyncio.sleep(1)
        assert running == 5
        bench.consuming.resize(1)
        gate.set()
        await asyncio.sleep(1)
        assert running == 0


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError("mine")])
async def test_any_exception_of_a_handler_has_its_message_again_before_the_others(error, caplog):
    seen = []

    async def consume(found):
        seen.append(found.queue_offset)
        if seen == [0, 1]:
            raise error

    async with Bench(consume).running(1) as bench:
        pq = bench.queue()
        bench.put(pq, 0, 1, 2)
        await asyncio.sleep(60)
        assert seen == [0, 1, 1, 2]
        assert pq.tracker.committable == 3
    assert len([record for record in caplog.records if record.exc_info]) == 1
