"""Messages of a pull: both twins build the same ones from records, and call handlers equally."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tianzhou._hot import deliveries, sources
from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.push import concurrent
from tianzhou.client.consumer.push.concurrent import ConcurrentDispatcher
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.handlers import Handlers
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.client.consumer.push.processor_time import Spent, measured
from tianzhou.model import ConsumeResult, MessageExt, MessageQueue
from tianzhou.records.codec import Record, encode_record
from tianzhou.testing.clock import VirtualClock, run
from tianzhou.wire.delivered import DeliveredMessage
from tianzhou.wire.pulled import decode_messages

compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
pytestmark = pytest.mark.skipif(
    sources.digest() != compiled.SOURCE, reason="the compiled twin was built from other sources"
)

READERS = [module.MessageReader(DeliveredMessage) for module in (deliveries, compiled)]
SLOTS = ("topic", "body", "head", "raw_properties", "more_properties", "broker_name", "queue_offset", "sys_flag")


def record(offset: int, **more: Any) -> Record:
    ours = {"topic": "T", "queue_id": 0, "flag": 0, "sys_flag": 0, "body": b"%d" % offset, "properties": b"a\x01b\x02"}
    host = {"born_host": b"\x7f\0\0\1", "born_port": 1, "store_host": b"\x7f\0\0\1", "store_port": 2}
    rest = {"born_timestamp": 5, "store_timestamp": 6, "reconsume_times": 0, "prepared_transaction_offset": 0}
    return Record(queue_offset=offset, physical_offset=100 * offset, **{**ours, **host, **rest, **more})


RECORDS = st.builds(
    record,
    st.integers(0, 2**55),
    topic=st.sampled_from(["T", "T", "topic", "süd", "t" * 127, "t" * 128]),
    body=st.binary(max_size=40),
    properties=st.sampled_from([b"", b"a\x01b", b"UNIQ_KEY\x01k\x02", b"x" * 300]),
    sys_flag=st.sampled_from([0, 0, 0, 8, 4, 1, 0x10, 0x20, 0x400]),
    born_host=st.sampled_from([b"\x7f\0\0\1", b"\x7f\0\0\1", bytes(16)]),
)


def read(reader: Any, data: bytes, at: int = 0) -> tuple[int, list[tuple[Any, ...]]]:
    messages: list[Any] = []
    after = reader.read(data, at, "broker-a", b"\x02more\x01x\x02", messages)
    assert all(type(message) is DeliveredMessage for message in messages)
    return after, [tuple((type(getattr(m, name)), getattr(m, name)) for name in SLOTS) for m in messages]


@given(st.lists(RECORDS, max_size=5), st.data())
@example([], None)
def test_the_same_messages_are_read_and_the_same_records_left(
    records: list[Record], data: st.DataObject | None
) -> None:
    joined = bytearray(b"".join(map(encode_record, records)))
    if data is not None and joined:
        for _ in range(data.draw(st.integers(0, 3))):
            joined[data.draw(st.integers(0, len(joined) - 1))] = data.draw(st.integers(0, 255))
        joined = joined[: data.draw(st.integers(max(0, len(joined) - 60), len(joined)))]
    found = [read(reader, bytes(joined)) for reader in READERS]
    assert found[0] == found[1]


def test_lengths_that_do_not_fit_are_left() -> None:
    whole = encode_record(record(1, body=b"x" * 40_000))
    for at, value in ((88 + 40_000, 0x80), (0, 0xFF), (84, 0xFF), (84, 0x7F)):
        damaged = bytearray(whole)
        damaged[at] = value
        found = [read(reader, bytes(damaged)) for reader in READERS]
        assert found[0] == found[1]
    assert [len(read(reader, whole)[1]) for reader in READERS] == [1, 1]


def test_what_is_made_later_is_what_the_record_says() -> None:
    (message,) = decode_messages(encode_record(record(7, flag=3, reconsume_times=2)), "broker-a")
    assert (message.flag, message.reconsume_times, message.queue_offset, message.properties) == (3, 2, 7, {"a": "b"})
    assert all(getattr(message, field.name) is not None for field in fields(MessageExt))


# Handlers


class Away:
    """Receives the messages that were not consumed."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    async def give(self, message: MessageExt, delay_level: int, max_times: int | None = None) -> bool:
        self.seen.append(("back", message.queue_offset, delay_level))
        return True


class Gone(BaseException):
    """An exception that is no `Exception`."""


STEPS = st.sampled_from(
    ["none", "none", "none", "none", "later", "success", "text", "raise", "sleep", "turn", "nap-raise", "caught",
     "exit", "nap-exit", "own-cancel", "generator-exit", "gone"]
)  # fmt: skip


EXITS: dict[str, type[BaseException]] = {
    "exit": SystemExit,
    "nap-exit": SystemExit,
    "own-cancel": asyncio.CancelledError,
    "generator-exit": GeneratorExit,
    "gone": Gone,
}


async def behave(step: str) -> Any:
    if step == "later":
        return ConsumeResult.RECONSUME_LATER
    if step == "success":
        return ConsumeResult.SUCCESS
    if step == "text":
        return "no answer"
    if step == "raise":
        raise ValueError("no")
    if step in EXITS:
        if step == "nap-exit":
            await asyncio.sleep(0.001)
        raise EXITS[step]
    if step == "sleep":
        await asyncio.sleep(0.01)
    if step == "turn":
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    if step == "nap-raise":
        await asyncio.sleep(0.001)
        raise KeyError("later")
    if step == "caught":
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(1)
        except TimeoutError:
            return None
    return None


def consumed(module: Any, steps: list[str], workers: int, pulls: int, turn: int = 100) -> list[Any]:
    """Return the observed events when handlers with these behaviours get messages."""
    seen: list[Any] = []

    async def consume(message: MessageExt) -> Any:
        stamp = message.properties["CONSUME_START_TIME"]
        seen.append(("begin", message.queue_offset, stamp, pq.at_work))
        try:
            return await behave(steps[message.queue_offset % len(steps)])
        finally:
            seen.append(("end", message.queue_offset))

    pq = ProcessQueue(MessageQueue("T", "b", 0), 0, PullLimits(), 0)
    tasks: set[asyncio.Task[Any]] = set()

    async def main() -> None:
        clock = VirtualClock()
        loop = asyncio.get_running_loop()
        handlers = Handlers("G", orderly=False, batch_size=1, threads=1)
        handlers.add("T", consume)
        rates = ConsumeRates(0.0)

        def spawn(work: Any) -> asyncio.Task[Any]:
            task = loop.create_task(work)
            tasks.add(task)
            return task

        consuming = ConcurrentDispatcher("G", PushOptions(), handlers, Away(seen), rates, clock, spawn)  # type: ignore[arg-type]
        consuming.start_workers(workers)
        size = max(1, len(steps) // pulls)
        for at in range(0, len(steps), size):
            body = b"".join(encode_record(record(n)) for n in range(at, min(at + size, len(steps))))
            consuming.put(pq, pq.take_in(decode_messages(body, "b"), min(at + size, len(steps))))
            seen.append(("committable", pq.tracker.committable))
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not len(pq.tracker):
                break
        counts = rates.of("T")
        seen.append((pq.tracker.committable, len(pq.tracker), pq.at_work, counts.calls, counts.consumed, counts.failed))
        await consuming.drain(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concurrent, "HandlerCalls", module.HandlerCalls)
        patch.setattr(concurrent, "TURN_MESSAGES", turn)
        patch.setattr(concurrent, "ALONE_AFTER_WAIT", 2)
        run(main())
    return seen


@given(st.lists(STEPS, min_size=1, max_size=12), st.integers(1, 3),
       st.integers(1, 3), st.sampled_from([2, 100]))  # fmt: skip
@example(["none"] * 8, 2, 2, 100)
@example(["sleep", "none", "none", "raise"], 2, 1, 100)
@example(["none", *EXITS, "none"], 1, 1, 100)
def test_handlers_are_called_alike(steps: list[str], workers: int, pulls: int, turn: int) -> None:
    mine, others = (consumed(module, steps, workers, pulls, turn) for module in (compiled, deliveries))
    assert mine[-1] == others[-1]
    one_by_one = workers == 1
    # With several workers the order may differ, but the result of each message does not.
    assert (mine if one_by_one else sorted(map(str, mine))) == (others if one_by_one else sorted(map(str, others)))


class Line:
    """The arguments of one call of `run`."""

    def __init__(self, messages: list[Any]) -> None:
        self.finished: list[list[int]] = []
        self.at_work = self.last_consume_ms = 0
        self.dropped = self.leaving = self.retiring = False
        self.rest: Any = None
        self.calls = self.consumed = 0
        self.call_ms = 0.0
        self.lot = type("Lot", (), {"rest": messages[::-1], "pq": self})()
        self.line = deque([self.lot])

    def finish_run(self, offsets: list[int]) -> None:
        self.finished.append(offsets)

    def run(self, calls: Any, handler: Any, most: int = 100) -> Any:
        return calls.run(self.line, self.lot, handler, self, self, most)


def made(count: int) -> list[Any]:
    return decode_messages(b"".join(encode_record(record(n)) for n in range(count)), "b")


def calls() -> Any:
    clock = VirtualClock()
    return compiled.HandlerCalls(DeliveredMessage, clock.monotonic, clock.now_ms, lambda ms: b"\x02T\x01%d\x02" % ms)


def test_calls_end_where_there_is_something_to_do() -> None:
    async def none(message: Any) -> None:
        assert line.at_work == 1
        line.dropped = message.queue_offset == drop_at
        line.leaving = message.queue_offset == leave_at

    drop_at = leave_at = -1
    line = Line(made(5))
    assert line.run(calls(), none, 3) == (3, None)
    assert line.finished == [[0, 1, 2]]
    assert (line.at_work, line.calls, line.consumed, len(line.line)) == (0, 3, 3, 1)
    assert line.run(calls(), none) == (2, None)
    assert (line.consumed, len(line.line), line.last_consume_ms > 0) == (5, 0, True)
    drop_at = 1
    line = Line(made(5))
    assert line.run(calls(), none) == (2, None)
    assert (line.finished, line.calls, line.consumed) == ([[0]], 2, 1)
    drop_at, leave_at = -1, 2
    line = Line(made(5))
    assert line.run(calls(), none) == (3, None)
    assert (line.finished, line.consumed) == ([[0, 1, 2]], 3)


def test_other_messages_are_left() -> None:
    async def none(message: Any) -> None:
        pass

    messages = made(3)
    assert messages[1].properties  # parsed already
    line = Line(messages)
    assert line.run(calls(), none) == (1, None)
    assert line.run(calls(), none) == (0, None)
    other = made(2)
    other[1].topic = "other"
    line = Line(other)
    assert line.run(calls(), none) == (1, None)
    assert [message.topic for message in line.lot.rest] == ["other"]


def test_any_exception_of_a_handler_is_handed_to_the_caller() -> None:
    async def gone(message: Any) -> None:
        raise Gone

    line = Line(made(2))
    count, unfinished = line.run(calls(), gone)
    assert count == 1
    assert type(unfinished.failure) is Gone
    assert (line.at_work, line.calls, line.finished) == (0, 0, [])


async def test_a_handler_that_waits_is_gone_on_with() -> None:
    @asynccontextmanager
    async def around() -> Any:
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    async def waits(message: Any) -> str:
        async with around():
            try:
                await asyncio.sleep(30 if message.queue_offset else 0)
            except asyncio.CancelledError:
                seen.append("cancelled")
                await asyncio.sleep(0)
                raise
        return "done"

    seen: list[str] = []
    line = Line(made(2))
    _, unfinished = line.run(calls(), waits)
    spent = Spent()
    assert await measured(unfinished.waiting, spent, time.thread_time, unfinished.wanted) == "done"
    assert spent.cpu_s > 0
    _, unfinished = line.run(calls(), waits)

    async def on() -> Any:
        return await measured(unfinished.waiting, Spent(), time.thread_time, unfinished.wanted)

    # From now on, the calls begun here wait in a separate task.
    unfinished.wanted.cancel()
    task = asyncio.get_running_loop().create_task(on())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["in", "out", "in", "cancelled", "out"]
