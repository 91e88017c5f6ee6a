"""Offsets on their way to brokers that lose, refuse or move them."""

import asyncio

from scripted import ScriptedCluster, record, until

from tianzhou import PullConsumer, PushConsumer
from tianzhou.model import MessageQueue
from tianzhou.wire.fields import read_header


def run(main):
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


def forgetful_at_first(broker):
    """As Apache's broker: commits that come while the table of a group is begun can be lost."""
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


def test_first_commits_do_not_race():
    async def main() -> None:
        async with ScriptedCluster(1, queues=4) as cluster:
            state = forgetful_at_first(cluster.brokers[0])
            async with PullConsumer("G", cluster.address) as consumer:
                await consumer.queues("T")
                queues = [MessageQueue("T", cluster.brokers[0].name, i) for i in range(4)]
                await consumer.commit_offsets(dict.fromkeys(queues, 5))
                assert state() == ({0: 5, 1: 5, 2: 5, 3: 5}, 1)

    run(main)


def test_one_way_commits_begin_with_an_answered_one():
    async def main() -> None:
        async with ScriptedCluster(1, queues=4) as cluster:
            broker = cluster.brokers[0]
            state = forgetful_at_first(broker)
            broker.max_offset = 7
            consumer = PushConsumer("G", cluster.address, persist_consumer_offset_interval_ms=50)
            consumer.subscribe("T", handler=lambda message: None)
            async with consumer:
                await until(lambda: state()[0] == dict.fromkeys(range(4), 7), "all are stored")
                assert state()[1] == 1
            commits = [one for one in broker.requests if one.code == 15 and read_header(one).topic == "T"]
            assert [command.is_oneway for command in commits[:4]] == [False, True, True, True]

    run(main)


def test_a_share_of_queues_that_is_lost_leaves_what_is_done():
    async def main() -> None:
        async with ScriptedCluster(1) as cluster:
            broker = cluster.brokers[0]
            broker.offsets["T", 0] = 3
            async with PullConsumer("G", cluster.address, pull_batch_size=1) as consumer:
                consumer.subscribe("T")
                await until(lambda: consumer.assignment, "it has the queue")
                broker.deliver(record("T", 3))
                assert [message.queue_offset for message in await consumer.poll(5_000)] == [3]
                broker.deliver(record("T", 4))
                assert [message.queue_offset for message in await consumer.poll(5_000)] == [4]
                broker.consumer_ids.insert(0, "!")
                consumer.instance.consumer("G").wake_rebalance()
                await until(lambda: not consumer.assignment, "it has lost the queue")
                # The message of the last poll may still be worked on, the one before is done.
                await until(lambda: broker.offsets["T", 0] == 4, "that is stored")

    run(main)
