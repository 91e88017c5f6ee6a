"""Commits of offsets to brokers that lose, refuse or change them."""

import asyncio

import pytest
from scripted import ScriptedCluster, noting, one_broker, record, within

from tianzhou import PullConsumer, PushConsumer
from tianzhou.client.consumer.pull import auto_commit as auto_commits
from tianzhou.model import MessageQueue
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))


def forgetful_at_first(broker):
    """Let the broker lose the first commits of a group, like Apache's broker while it creates the group's table."""
    table: dict[int, int] = {}
    beginning = 0

    async def commit(command):
        nonlocal table, beginning
        header = read_header(command)
        if header.topic != "T":
            return command.reply(0)
        if not table:
            beginning += 1
            mine: dict[int, int] = {}
            await asyncio.sleep(0.05)
            mine[header.queue_id] = header.commit_offset
            table = mine
        else:
            table[header.queue_id] = header.commit_offset
        return command.reply(0)

    broker.answers[15] = commit
    return lambda: (dict(table), beginning)


async def test_first_commits_do_not_race():
    async with ScriptedCluster(1, queues=4) as cluster:
        state = forgetful_at_first(cluster.brokers[0])
        async with PullConsumer("G", cluster.address) as consumer:
            await consumer.queues("T")
            queues = [MessageQueue("T", cluster.brokers[0].name, i) for i in range(4)]
            await consumer.commit_offsets(dict.fromkeys(queues, 5))
            assert state() == ({0: 5, 1: 5, 2: 5, 3: 5}, 1)


async def test_one_way_commits_begin_with_an_answered_one():
    async with one_broker(queues=4) as (cluster, broker):
        state = forgetful_at_first(broker)
        broker.max_offset = 7
        consumer, _ = noting(cluster, persist_consumer_offset_interval_ms=50)
        async with consumer:
            await until_async(lambda: state()[0] == dict.fromkeys(range(4), 7), "all are stored")
            assert state()[1] == 1
        commits = [one for one in broker.requests if one.code == 15 and read_header(one).topic == "T"]
        assert [command.is_oneway for command in commits[:4]] == [False, True, True, True]


async def test_a_share_of_queues_that_is_lost_leaves_what_is_done():
    async with (
        one_broker(offset=3) as (cluster, broker),
        PullConsumer("G", cluster.address, pull_batch_size=1) as consumer,
    ):
        consumer.subscribe("T")
        await until_async(lambda: consumer.assignment, "it has the queue")
        broker.deliver(record("T", 3))
        assert [message.queue_offset for message in await consumer.poll(5_000)] == [3]
        broker.deliver(record("T", 4))
        assert [message.queue_offset for message in await consumer.poll(5_000)] == [4]
        broker.consumer_ids.insert(0, "!")
        consumer.instance.consumer("G").wake_rebalance()
        await until_async(lambda: not consumer.assignment, "it has lost the queue")
        # The message of the last poll may still be in process, the one before is done.
        await until_async(lambda: broker.offsets["T", 0] == 4, "that is stored")


# --- queues that change owners ----------------------------------------------------------------------------------------


def take_away(broker):
    """Let a member that sorts first take the only queue, and notify ours that the group has changed."""
    broker.consumer_ids.insert(0, "!")
    broker.connections[0].invoke_oneway(Command(40, fields=write_header(40, consumer_group="G")))


def known(consumer):
    return {queue.topic for queue in consumer.running_info().mq_table}


async def test_what_is_done_is_stored_as_soon_as_the_group_changes(cluster, broker):
    """The others need not wait until we know our queues."""
    broker.offsets["T", 0] = 0
    consumer, seen = noting(cluster, persist_consumer_offset_interval_ms=60_000)
    async with consumer:
        broker.deliver(record("T", 0), record("T", 1), record("T", 2))
        await until_async(lambda: len(seen) == 3, "it consumes")
        assert broker.offsets["T", 0] == 0

        told = asyncio.Event()

        async def slowly(command):
            await told.wait()
            return broker._on_38(command)

        broker.answers[38] = slowly
        take_away(broker)
        await until_async(lambda: broker.offsets["T", 0] == 3, "it is stored")
        assert "T" in known(consumer)
        told.set()
        await until_async(lambda: "T" not in known(consumer), "the queue is given up")


async def polled_twice(broker, consumer):
    """Let a consumer own T's only queue, with stored offset 3, and poll its messages 3 and 4, one by one."""
    consumer.subscribe("T")
    await until_async(lambda: consumer.assignment, "it has the queue")
    for offset in (3, 4):
        broker.deliver(record("T", offset))
        assert [message.queue_offset for message in await consumer.poll(5_000)] == [offset]


async def test_a_polling_member_stores_what_is_done_as_soon_as_the_group_changes():
    """The others need not wait until we know our queues."""
    async with (
        one_broker(offset=3) as (cluster, broker),
        PullConsumer("G", cluster.address, pull_batch_size=1) as consumer,
    ):
        await polled_twice(broker, consumer)
        told = asyncio.Event()

        async def slowly(command):
            await told.wait()
            return broker._on_38(command)

        broker.answers[38] = slowly
        take_away(broker)
        await until_async(lambda: broker.offsets["T", 0] == 4, "what is done is stored")
        assert consumer.assignment
        told.set()
        await until_async(lambda: not consumer.assignment, "the queue is given up")


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_what_a_poll_returned_last_counts_when_the_caller_comes_back_in_a_moment(auto_commit, monkeypatch):
    monkeypatch.setattr(auto_commits, "REST_S", 10.0)
    async with (
        one_broker(offset=3) as (cluster, broker),
        PullConsumer("G", cluster.address, pull_batch_size=1, auto_commit=auto_commit) as consumer,
    ):
        await polled_twice(broker, consumer)
        take_away(broker)
        await until_async(lambda: not consumer.assignment, "the queue is given up")
        if auto_commit:
            assert await consumer.poll(1) == []
        else:
            await consumer.commit()
        await until_async(lambda: broker.offsets["T", 0] == 5, "both are stored")


async def test_who_unsubscribes_leaves_what_is_done(cluster, broker, monkeypatch):
    monkeypatch.setattr(auto_commits, "REST_S", 10.0)
    broker.offsets["T", 0] = 3
    async with PullConsumer("G", cluster.address, pull_batch_size=1) as consumer:
        await polled_twice(broker, consumer)
        consumer.unsubscribe("T")
        assert not consumer.assignment
        await until_async(lambda: broker.offsets["T", 0] == 4, "what is done is stored")
    assert broker.offsets["T", 0] == 5, "who stops has done what polls returned"


async def test_handlers_that_end_in_a_moment_are_waited_for(cluster, broker):
    broker.offsets["T", 0] = 0
    gate, seen = asyncio.Event(), []
    consumer = PushConsumer("G", cluster.address, consume_concurrency=1)

    @consumer.on("T")
    async def consume(message) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 1:
            await gate.wait()

    async with consumer:
        broker.deliver(record("T", 0), record("T", 1), record("T", 2))
        await until_async(lambda: seen == [0, 1], "one is consumed, one is at work")
        take_away(broker)
        await until_async(lambda: not consumer.assignment, "it is to be given up")
        assert "T" in known(consumer)
        gate.set()
        await until_async(lambda: not known(consumer), "it is given up")
        assert broker.offsets["T", 0] == 2
        assert not [one for one in broker.requests if one.code == 15][-1].is_oneway
    assert seen == [0, 1]  # messages that were not begun are left to the other member


def late_with_pulls(broker):
    """Let a pull's commit arrive last, as at Apache's broker, whose pulls and commits have different threads."""
    waiting: list[int] = []

    def pull(command):
        header = read_header(command)
        if header.topic == "T":
            waiting[:] = [header.commit_offset] if header.sys_flag & 1 else []
        return broker._on_11(command)

    def commit(command):
        reply = broker._on_15(command)
        while waiting and read_header(command).topic == "T":
            broker.offsets["T", 0] = waiting.pop()
        return reply

    broker.answers[11], broker.answers[15] = pull, commit


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_pull_that_is_served_late_does_not_put_the_group_back(cluster, broker, leaves):
    broker.offsets["T", 0] = 7
    late_with_pulls(broker)
    consumer, seen = noting(cluster)
    async with consumer:
        await until_async(lambda: "T" in known(consumer), "it has the queue")
        broker.deliver(record("T", 7), record("T", 8))
        await until_async(lambda: len(seen) == 2, "it consumes")
        if not leaves:
            take_away(broker)
            await until_async(lambda: not known(consumer), "the queue is given up")
            assert broker.offsets["T", 0] == 9
    assert broker.offsets["T", 0] == 9
