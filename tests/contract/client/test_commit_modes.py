"""`commit="sync"`: the next batch of a queue begins after the broker has confirmed the offset of the last one."""

import asyncio

import pytest
from scripted import noting, one_broker, record, refusing, within

from tianzhou import PushConsumer, sync
from tianzhou.errors import ConfigError
from tianzhou.model import ConsumeResult
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES
from tianzhou.wire.codes import COMMIT_OFFSET
from tianzhou.wire.fields import read_header
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(100))


class Commits:
    """Commits of topic T, whose replies the test sends."""

    def __init__(self, broker):
        self.open = asyncio.Event()
        self.offsets: list[int] = []
        self._broker = broker
        broker.answers[15] = self._answer

    async def _answer(self, command):
        header = read_header(command)
        if header.topic == "T":
            assert not command.is_oneway, "a commit that waits for no answer confirms nothing"
            self.offsets.append(header.commit_offset)
            await self.open.wait()
        return self._broker._on_15(command)


def with_locks(broker):
    broker.answers[41] = lambda command: command.reply(
        0, body=LOCKED_QUEUES.dumps(LOCK_REQUEST.loads(command.body).queues)
    )
    broker.answers[42] = lambda command: command.reply(0)


def batch(first, count=3):
    return [record("T", offset) for offset in range(first, first + count)]


async def test_the_next_pull_waits_for_the_confirmed_offset():
    async with one_broker(offset=7) as (cluster, broker):
        commits, gate, seen = Commits(broker), asyncio.Event(), []
        consumer = PushConsumer("G", cluster.address, commit="sync")

        @consumer.on("T")
        async def consume(message):
            await gate.wait()
            seen.append(message.queue_offset)

        async with consumer:
            broker.deliver(*batch(7))
            await until_async(lambda: consumer.running_info().mq_table, "it has the queue")
            await asyncio.sleep(5)
            assert len(broker.pulls()) == 1, "handlers have not ended"
            gate.set()
            await until_async(lambda: commits.offsets == [10], "the offset is on its way")
            await asyncio.sleep(2)
            assert len(broker.pulls()) == 1, "the offset is not confirmed"
            commits.open.set()
            await until_async(lambda: len(broker.pulls()) == 2, "it pulls on")
            assert (broker.offsets["T", 0], sorted(seen)) == (10, [7, 8, 9])
            assert not any(header.sys_flag & COMMIT_OFFSET for header in broker.pulls())


async def test_async_commits_pull_on_at_once():
    async with one_broker(offset=7) as (cluster, broker):
        gate = asyncio.Event()
        consumer = PushConsumer("G", cluster.address)

        @consumer.on("T")
        async def consume(_):
            await gate.wait()

        async with consumer:
            broker.deliver(*batch(7))
            await until_async(lambda: len(broker.pulls()) == 2, "it pulls on while handlers run")
            gate.set()


async def test_an_offset_that_is_refused_is_sent_again_before_the_next_batch():
    async with one_broker(offset=7) as (cluster, broker):
        consumer, seen = noting(cluster, commit="sync")
        broker.answers[15] = refusing(1)
        async with consumer:
            broker.deliver(*batch(7))
            await until_async(lambda: len(broker.asked(15)) >= 3, "it tries again and again")
            assert len(broker.pulls()) == 1
            del broker.answers[15]
            await until_async(lambda: broker.offsets["T", 0] == 10, "it is stored")
            await until_async(lambda: len(broker.pulls()) == 2, "it pulls on")
            assert sorted(seen) == [7, 8, 9]


async def test_a_message_that_is_sent_back_does_not_stop_the_queue():
    async with one_broker(offset=7) as (cluster, broker):
        consumer = PushConsumer("G", cluster.address, commit="sync")
        broker.answers[36] = lambda command: command.reply(0)

        @consumer.on("T")
        async def consume(message):
            return ConsumeResult.RECONSUME_LATER if message.queue_offset == 8 else None

        async with consumer:
            broker.deliver(*batch(7))
            await until_async(lambda: broker.offsets["T", 0] == 10, "the batch is done")


async def test_the_next_call_of_an_orderly_handler_waits_for_the_confirmed_offset():
    async with one_broker(offset=7) as (cluster, broker):
        with_locks(broker)
        commits, seen = Commits(broker), []
        consumer = PushConsumer("G", cluster.address, commit="sync", orderly=True)
        consumer.on("T")(lambda message: seen.append(message.queue_offset))
        async with consumer:
            broker.deliver(*batch(7))
            await until_async(lambda: commits.offsets == [8], "the first message is committed")
            await asyncio.sleep(2)
            assert seen == [7], "its offset is not confirmed"
            commits.open.set()
            await until_async(lambda: broker.offsets["T", 0] == 10, "the others follow")
            assert (seen, commits.offsets) == ([7, 8, 9], [8, 9, 10])


async def test_iteration_commits_a_batch_before_the_next():
    async with one_broker(offset=7) as (cluster, broker):
        consumer = PushConsumer("G", cluster.address, commit="sync")
        consumer.subscribe("T")
        async with consumer:
            broker.deliver(*batch(7, 2))
            assert [(await anext(consumer)).queue_offset for _ in range(2)] == [7, 8]
            waiting = asyncio.ensure_future(anext(consumer))  # the request for the next one ends the batch
            await until_async(lambda: broker.offsets["T", 0] == 9, "the batch is confirmed")
            broker.deliver(*batch(9, 1))
            assert (await waiting).queue_offset == 9


async def test_a_broadcasting_member_writes_its_file_before_the_next_batch(tmp_path):
    from tianzhou.model import ConsumeFromWhere, MessageModel

    async with one_broker() as (cluster, broker):
        consumer, _ = noting(
            cluster, commit="sync", message_model=MessageModel.BROADCASTING, local_offset_dir=tmp_path,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        async with consumer:
            broker.deliver(*batch(0))
            await until_async(lambda: len(broker.pulls()) == 2, "it pulls on")
            (file,) = tmp_path.rglob("offsets.json")
            assert ":3" in file.read_text().replace(" ", "")


@pytest.mark.parametrize("kind", [PushConsumer, sync.PushConsumer])
def test_another_word_is_refused(kind):
    with pytest.raises(ConfigError, match="commit is 'later'; use one of async, sync"):
        kind("G", "127.0.0.1:1", commit="later")
