"""Handlers with typed values: their calls, and the result of invalid bodies, in ordered and concurrent consumption."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest
from dispatch_bench import DispatchBench, message

from tianzhou.client import MemoryIds, RetryPolicy, idempotent
from tianzhou.client.consumer.push.concurrent import ConcurrentDispatcher
from tianzhou.client.consumer.push.handlers import ConsumeContext, HandlerOptions, Handlers
from tianzhou.client.consumer.push.orderly import OrderlyDispatcher
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import ConsumeResult, MessageModel, MessageQueue
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)

CONTEXT = ConsumeContext(MessageQueue("T", "b", 0))
BROADCAST = {"message_model": MessageModel.BROADCASTING}


@dataclass
class Order:
    id: int


class Taken:
    """Records messages sent back, with their options."""

    def __init__(self):
        self.given = []

    async def give(self, message, delay_level, max_times=None):
        self.given.append((message.queue_offset, delay_level, max_times))
        return True

    async def store_again(self, message, max_times):
        self.given.append((message.queue_offset, "dead letter", message.reconsume_times > max_times - 1))
        return True


class Bench(DispatchBench):
    def __init__(self, handler, *, orderly=False, batch_size=1, options=None, **own):
        parts = {"relock": self.relock} if orderly else {}
        super().__init__(
            OrderlyDispatcher if orderly else ConcurrentDispatcher, handler, Taken(),
            batch_size=batch_size, orderly=orderly, options=options, own=HandlerOptions(**own), **parts,
        )  # fmt: skip

    async def relock(self, pq):
        pq.locked(self.clock.monotonic(), 0)
        return True

    def bring(self, *bodies, times=0):
        """Return a queue with messages of these bodies, from offset 0 on."""
        pq = self.queue()
        pq.locked(self.clock.monotonic(), 0)
        messages = [message(offset) for offset in range(len(bodies))]
        for one, body in zip(messages, bodies, strict=True):
            one.body, one.reconsume_times = body, times
        self.consuming.put(pq, pq.take_in(messages, len(bodies)))
        return pq


# --- how they are called -------------------------------------------------------------------------------------


async def body_alone(order):
    return (order,)


async def with_message(order, message):
    return (order, message.queue_offset)


def with_both(order, context, message):
    return (order, message.queue_offset, context)


def by_name(order, *, message=None, **rest):
    return (order, message.queue_offset, *rest)


def positional_only(order, /, other=3):
    return (order, other)


class Service:
    async def __call__(self, order, context):
        return (order, context)


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (body_alone, (Order(1),)),
        (with_message, (Order(1), 5)),
        (with_both, (Order(1), 5, CONTEXT)),
        (by_name, (Order(1), 5)),
        (positional_only, (Order(1), 3)),
        (Service(), (Order(1), CONTEXT)),
    ],
)
def test_a_handler_gets_the_value_and_what_it_names(handler, expected, monkeypatch):
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
    monkeypatch.setattr(handlers, "answer", lambda _topic, outcome: outcome)
    handlers.add("T", handler, HandlerOptions(Order))
    found = message(5)
    found.body = b'{"id": 1}'
    assert asyncio.run(handlers.call("T", [found], CONTEXT)) == expected
    assert "T" not in handlers.plain
    handlers.close()


def test_lists_are_of_values(monkeypatch):
    handlers = Handlers("G", orderly=False, batch_size=3, threads=1)
    seen = []
    handlers.add(
        "T", lambda values, messages: seen.append((values, [m.queue_offset for m in messages])), HandlerOptions(int)
    )
    asyncio.run(handlers.call("T", [message(4), message(5)], CONTEXT))
    assert seen == [([4, 5], [4, 5])]
    handlers.close()


@pytest.mark.parametrize(
    ("handler", "options", "error", "text"),
    [
        (lambda: 0, {"body": Order}, ClientError, "takes nothing; it gets the body's value first"),
        (
            lambda order, where: 0,
            {"body": Order},
            ClientError,
            "wants where; with body it gets the value first, and message",
        ),
        (lambda order, messages: 0, {"body": Order}, ClientError, "wants messages"),
        ("no", {"body": Order}, ClientError, "it has to be a function"),
        (
            lambda order: 0,
            {"body": Order, "undecodable": "drop"},
            ConfigError,
            "use one of 'dead_letter', 'retry', 'skip'",
        ),
        (lambda order: 0, {"undecodable": "skip"}, ConfigError, "needs body=, else nothing is decoded"),
        (lambda order: 0, {"body": object}, ConfigError, "how to make a object"),
        (lambda order: 0, {"retry": RetryPolicy(delays_s=15)}, ConfigError, "delay levels only"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_message(handler, options, error, text):
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
    with pytest.raises(error, match=text):
        handlers.add("T", handler, HandlerOptions(**options))
    assert not handlers


@pytest.mark.parametrize("undecodable", ["dead_letter", "retry"])
def test_a_broadcast_message_has_nowhere_to_go(undecodable):
    handlers = Handlers("G", orderly=False, batch_size=1, threads=1, is_broadcast=True)
    with pytest.raises(ConfigError, match=r"a broadcast message is not delivered again .* use 'skip'"):
        handlers.add("T", lambda order: 0, HandlerOptions(Order, undecodable))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("names_message", [False, True])
async def test_an_id_is_consumed_once_though_the_handler_gets_values(is_async, names_message):
    seen = []

    def plain(value):
        seen.append((value, None))

    def with_message(value, message):
        seen.append((value, message.msg_id))

    async def waiting(value):
        plain(value)

    async def waiting_with_message(value, message):
        with_message(value, message)

    kinds = {False: (plain, waiting), True: (with_message, waiting_with_message)}
    handler = idempotent(MemoryIds(), window_s=60)(kinds[names_message][is_async])
    async with Bench(handler, body=list[int]).running(1) as bench:
        pq = bench.bring(b"[1]", BAD, b"[3]", b"[1]")
        await asyncio.sleep(1)
        assert pq.tracker.committable == 4
        again = bench.bring(b"[1]", b"[2]")
        await asyncio.sleep(1)
        assert again.tracker.committable == 2
    ids = ["id0", "id2", "id3", "id1"] if names_message else [None] * 4
    assert seen == list(zip([[1], [3], [1], [2]], ids, strict=True))


@pytest.mark.parametrize("names_messages", [False, True])
async def test_lists_of_values_lack_those_that_are_done(names_messages):
    seen = []

    def plain(values):
        seen.append((values, None))

    def with_messages(values, messages, context):
        context.ack_index = 0
        seen.append((values, [message.msg_id for message in messages]))

    handler = idempotent(MemoryIds(), window_s=60)(with_messages if names_messages else plain)
    async with Bench(handler, body=int, batch_size=5).running(1) as bench:
        bench.bring(b"1")
        await asyncio.sleep(1)
        bench.bring(b"1", b"2", b"3")
        await asyncio.sleep(1)
        assert bench.away.given == ([(2, 0, None)] if names_messages else [])
    assert seen == ([([1], ["id0"]), ([2, 3], ["id1", "id2"])] if names_messages else [([1], None), ([2, 3], None)])


# --- results -------------------------------------------------------------------------------------------------


GOOD, BAD = b"7", b"no number"


@pytest.mark.parametrize(
    ("undecodable", "given"),
    [(None, [(1, -1, 0)]), ("dead_letter", [(1, -1, 0)]), ("skip", []), ("retry", [(1, 0, None)])],
)
@pytest.mark.parametrize("batch_size", [1, 4])
async def test_without_order(undecodable, given, batch_size, caplog):
    seen = []
    async with Bench(seen.append, batch_size=batch_size, body=int, undecodable=undecodable).running(2) as bench:
        pq = bench.bring(GOOD, BAD, GOOD)
        await asyncio.sleep(3)
        assert bench.away.given == given
        assert pq.tracker.committable == 3
        assert (bench.rates.consumed, bench.rates.failed) == (2, 1)
    assert [n for one in seen for n in (one if batch_size > 1 else [one])] == [7, 7]
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith("T queue 0 queue_offset 1 msg_id id1: its body does not decode, group G ")
    assert "JSON is malformed" in line


@pytest.mark.parametrize(("undecodable", "given"), [(None, [(1, "dead letter", True)]), ("skip", [])])
@pytest.mark.parametrize("batch_size", [1, 2, 4])
async def test_in_order(undecodable, given, batch_size):
    seen = []
    bench = Bench(seen.append, orderly=True, batch_size=batch_size, body=int, undecodable=undecodable)
    async with bench.running(2) as bench:
        pq = bench.bring(b"0", BAD, b"2", b"3")
        await asyncio.sleep(0.5)
        assert bench.away.given == given
        assert pq.tracker.committable == 4
    assert [n for one in seen for n in (one if batch_size > 1 else [one])] == [0, 2, 3]


@pytest.mark.parametrize("batch_size", [1, 4])
async def test_in_order_what_is_tried_again_lets_through_what_is_before_it_and_nothing_behind(batch_size):
    seen = []
    policy = RetryPolicy(max_attempts=3, delays_s=[1, 5], dead_letter=False)
    bench = Bench(seen.append, orderly=True, batch_size=batch_size, body=int, undecodable="retry", retry=policy)
    async with bench.running(2) as bench:
        pq = bench.bring(b"0", BAD, b"2")
        await asyncio.sleep(5.9)
        assert pq.tracker.committable == 1
        await asyncio.sleep(0.2)
        assert pq.tracker.committable == 3
    assert [n for one in seen for n in (one if batch_size > 1 else [one])] == [0, 2]


async def test_broadcast_it_is_skipped_and_said(caplog):
    seen = []
    async with Bench(seen.append, options=BROADCAST, body=int).running(1) as bench:
        pq = bench.bring(BAD, GOOD)
        await asyncio.sleep(1)
        assert pq.tracker.committable == 2
    assert seen == [7]
    assert any("queue_offset 0 msg_id id0: its body does not decode" in r.getMessage() for r in caplog.records)


# --- retry policies ------------------------------------------------------------------------------------------


async def fails(_message):
    raise ValueError("no")


@pytest.mark.parametrize(
    ("policy", "times", "given"),
    [
        (RetryPolicy(max_attempts=3, delays_s=[1, 60]), 0, [(0, 1, 2)]),
        (RetryPolicy(max_attempts=3, delays_s=[1, 60]), 1, [(0, 5, 2)]),
        (RetryPolicy(max_attempts=3, delays_s=[1, 60]), 2, [(0, -1, 0)]),
        (RetryPolicy(max_attempts=3, dead_letter=False), 2, []),
        (RetryPolicy(), 3, [(0, 0, 16)]),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 2])
async def test_a_policy_without_order(policy, times, given, batch_size):
    async with Bench(fails, retry=policy, batch_size=batch_size).running(1) as bench:
        pq = bench.bring(b"x", times=times)
        await asyncio.sleep(1)
        assert bench.away.given == given
        assert pq.tracker.committable == 1


async def test_a_handler_has_the_last_word_about_this_time():
    async def handler(_message, context):
        context.delay_level = 7
        return ConsumeResult.RECONSUME_LATER

    async with Bench(handler, retry=RetryPolicy(max_attempts=9, delays_s=1)).running(1) as bench:
        bench.bring(b"x")
        await asyncio.sleep(1)
        assert bench.away.given == [(0, 7, 8)]


async def test_what_takes_too_long_goes_the_same_way():
    async def handler(_message):
        await asyncio.Event().wait()

    policy = RetryPolicy(max_attempts=2, delays_s=30)
    async with Bench(handler, retry=policy, options={"consume_timeout_ms": 1_000}).running(1) as bench:
        bench.bring(b"x")
        await asyncio.sleep(3)
        assert bench.away.given == [(0, 4, 1)]


@pytest.mark.parametrize("dead_letter", [True, False])
async def test_a_policy_in_order(dead_letter, caplog):
    tries = []

    async def handler(found):
        tries.append((found.queue_offset, round(bench.clock.monotonic(), 2)))
        if found.queue_offset == 0:
            raise ValueError("no")

    policy = RetryPolicy(max_attempts=4, delays_s=[0.5, 10], dead_letter=dead_letter)
    async with Bench(handler, orderly=True, retry=policy).running(2) as bench:
        began_s = bench.clock.monotonic()
        pq = bench.bring(b"x", b"y")
        await asyncio.sleep(60)
        assert bench.away.given == ([(0, "dead letter", True)] if dead_letter else [])
        assert pq.tracker.committable == 2
    assert [(offset, at_s - began_s) for offset, at_s in tries] == [(0, 0), (0, 0.5), (0, 10.5), (0, 20.5), (1, 20.5)]
    dropped = [r.getMessage() for r in caplog.records if "drops it" in r.getMessage()]
    assert dropped == (
        [] if dead_letter else ["T queue 0 queue_offset 0 msg_id id0: group G drops it after 4 attempts"]
    )


async def test_a_policy_in_order_when_broadcasting():
    policy = RetryPolicy(max_attempts=2, delays_s=1, dead_letter=False)
    async with Bench(fails, orderly=True, retry=policy, options=BROADCAST).running(1) as bench:
        pq = bench.bring(b"x")
        await asyncio.sleep(0.5)
        assert pq.tracker.committable == 0
        await asyncio.sleep(1)
        assert pq.tracker.committable == 1
        assert bench.away.given == []


def exits(body):
    raise SystemExit(3)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_decoder_that_exits_makes_a_dead_letter_as_one_that_raises(orderly):
    async with Bench(lambda value: None, body=exits, orderly=orderly).running(1) as bench:
        pq = bench.bring(b"1")
        await asyncio.sleep(1)
        assert pq.tracker.committable == 1
        assert len(bench.away.given) == 1
