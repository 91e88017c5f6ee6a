"""Messages that travel together (client.md §6.4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tianzhou.client.producer.batching import Accumulator, members
from tianzhou.client.producer.options import ProducerOptions
from tianzhou.errors import BrokerError, ClientError, ConfigError
from tianzhou.model import Message, MessageQueue, SendResult, SendStatus
from tianzhou.testing.clock import run

pytestmark = pytest.mark.runner.with_args(run)

Q = MessageQueue("T", "b", 0)


class Broker:
    """A fake broker that accepts batches and records them."""

    def __init__(self, fails: bool = False) -> None:
        self.batches: list[list[bytes]] = []
        self.queues: list[MessageQueue | None] = []
        self.fails = fails
        self.offset = 0

    async def send(self, messages: list[Message], queue: MessageQueue | None) -> SendResult:
        self.batches.append([message.body for message in messages])
        self.queues.append(queue)
        await asyncio.sleep(0.005)
        if self.fails:
            raise BrokerError(2, "busy")
        n, offset = len(messages), self.offset
        self.offset += n
        ids = ",".join(f"K{offset + i}" for i in range(n))
        return SendResult(SendStatus.SEND_OK, ids, ids.replace("K", "O"), Q, offset)


@asynccontextmanager
async def accumulating(fails: bool = False, **options) -> AsyncIterator[tuple[Accumulator, Broker]]:
    broker = Broker(fails)
    accumulator = Accumulator(ProducerOptions(auto_batch=True, **options), broker.send)
    yield accumulator, broker
    await accumulator.close()
    assert accumulator.held_bytes == 0


async def test_what_comes_within_the_delay_travels_together() -> None:
    async with accumulating() as (accumulator, broker):
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await asyncio.gather(*(accumulator.add(Message("T", b"%d" % i), None) for i in range(5)))
        assert 0.014 < loop.time() - began < 0.1
        assert broker.batches == [[b"0", b"1", b"2", b"3", b"4"]]
        assert [(r.msg_id, r.offset_msg_id, r.queue_offset) for r in results] == [
            (f"K{i}", f"O{i}", i) for i in range(5)
        ]
        await accumulator.add(Message("T", b"alone"), None)
        assert broker.batches[1:] == [[b"alone"]]


async def test_a_full_batch_does_not_wait() -> None:
    async with accumulating(batch_max_delay_ms=30_000, batch_max_bytes=1_000) as (accumulator, broker):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(accumulator.add(Message("T", b"x" * 400), None) for _ in range(3)))
        assert loop.time() - began < 1
        assert [len(batch) for batch in broker.batches] == [3]


async def test_topic_queue_wait_and_tag_are_kept_apart() -> None:
    async with accumulating() as (accumulator, broker):
        kinds = [
            (Message("T", b"1"), None), (Message("U", b"2"), None), (Message("T", b"3", tags="a"), None),
            (Message("T", b"4"), Q), (Message("T", b"5", wait_store_ok=False), None), (Message("T", b"6"), None),
        ]  # fmt: skip
        await asyncio.gather(*(accumulator.add(message, queue) for message, queue in kinds))
        assert sorted(broker.batches) == [[b"1", b"6"], [b"2"], [b"3"], [b"4"], [b"5"]]
        assert broker.queues.count(Q) == 1


async def test_what_cannot_travel_with_others_is_not_taken() -> None:
    async with accumulating(total_batch_max_bytes=1_000) as (accumulator, _):
        assert accumulator.takes(Message("T", b"x", properties={"p": "v"}))
        assert not accumulator.takes(Message("T", b"x", delay_level=1))
        assert not accumulator.takes(Message("%RETRY%G", b"x"))
        assert not accumulator.takes(Message("T", b"x", properties={"TIMER_DELAY_MS": "5"}))
        assert not accumulator.takes(Message("T", b"x", properties={"PGROUP": "P"}))
        assert not accumulator.takes(Message("T", b"x" * 5_000_000))
        adding = asyncio.create_task(accumulator.add(Message("T", b"x" * 900), None))
        await asyncio.sleep(0)
        assert not accumulator.takes(Message("T", b"x" * 200))  # no room to wait
        await adding
        assert accumulator.takes(Message("T", b"x" * 200))


async def test_a_bad_message_concerns_only_its_sender() -> None:
    async with accumulating() as (accumulator, broker):
        good, bad, large = await asyncio.gather(
            accumulator.add(Message("T", b"x"), None),
            accumulator.add(Message("T", b"x", properties={"UNIQ_KEY": "mine"}), None),
            accumulator.add(Message("T", b"x", properties={"p": "v" * 40_000}), None),
            return_exceptions=True,
        )
        assert good.status is SendStatus.SEND_OK
        assert isinstance(bad, ClientError)
        assert "32767" in str(large)
        assert broker.batches == [[b"x"]]


async def test_a_failed_batch_fails_everyone_in_it() -> None:
    async with accumulating(fails=True) as (accumulator, _):
        results = await asyncio.gather(
            *(accumulator.add(Message("T", b"x"), None) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [BrokerError] * 3


async def test_closing_sends_what_waits() -> None:
    async with accumulating(batch_max_delay_ms=30_000) as (accumulator, _):
        adding = asyncio.create_task(accumulator.add(Message("T", b"x"), None))
        await asyncio.sleep(0)
        await accumulator.close()
        assert (await adding).msg_id == "K0"


def test_a_batch_kept_as_one_record_has_one_place() -> None:
    whole = SendResult(SendStatus.SEND_OK, "A,B", "O", Q, 7)
    assert [(r.msg_id, r.offset_msg_id, r.queue_offset) for r in members(whole, 2)] == [("A", "O", 7), ("B", "O", 8)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_max_delay_ms", 0), ("batch_max_delay_ms", 30_001), ("batch_max_bytes", 0), ("batch_max_bytes", 3_000_000),
     ("total_batch_max_bytes", 0)],
)  # fmt: skip
def test_options_have_ranges(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}; it has to be"):
        ProducerOptions(auto_batch=True, **{name: value})
