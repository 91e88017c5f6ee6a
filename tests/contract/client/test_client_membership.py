"""A consumer of ours in its group: it joins, reacts to changes of members, leaves, and answers its broker."""

import asyncio

import pytest
from scripted import noting, one_broker, record, within

from tianzhou import PushConsumer
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))


async def test_a_consumer_announces_itself_before_it_pulls_and_takes_its_leave(cluster, broker):
    broker.max_offset = 5
    consumer = PushConsumer("G", cluster.address)
    seen = []
    consumer.subscribe("T", "A || B", lambda message: seen.append(message.queue_offset))
    async with consumer:
        await until_async(lambda: broker.asked(11), "it pulls")
        broker.deliver(record("T", 5, properties="TAGS\x01A\x02"), record("T", 6, properties="TAGS\x01C\x02"))
        await until_async(lambda: seen == [5], "it consumes")
    codes = broker.codes()
    assert codes.index(34) < codes.index(38) < codes.index(14) < codes.index(11)
    (data,) = HEARTBEAT.loads(broker.bodies_of(34)[0]).consumers
    assert (data.group_name, [s.topic for s in data.subscription_data_set]) == ("G", ["%RETRY%G", "T"])
    assert data.subscription_data_set[1].tags_set == {"A", "B"}
    # The offsets are stored and confirmed before other members may take the queues.
    assert broker.offsets["T", 0] == 7
    assert codes[-1] == 35
    last_commit = [c for c in broker.requests if c.code == 15][-1]
    assert not last_commit.is_oneway
    assert broker.asked(35)[-1].consumer_group == "G"


async def test_a_change_of_members_is_met_at_once():
    async with one_broker(queues=4) as (cluster, broker):
        consumer, _ = noting(cluster)

        def own():
            return [queue for queue in consumer.assignment if queue.topic == "T"]

        def notify() -> None:
            command = Command(40, fields=write_header(40, consumer_group="G"))
            broker.connections[0].invoke_oneway(command)

        async with consumer:
            await until_async(lambda: len(own()) == 4, "it has all queues")
            broker.consumer_ids.append("zzz")
            notify()
            await until_async(lambda: len(own()) == 2, "it has half of them")
            broker.consumer_ids.remove("zzz")
            notify()
            await until_async(lambda: len(own()) == 4, "it has all again")
            broker.consumer_ids.clear()
            notify()
            await until_async(lambda: len(broker.asked(34)) >= 2, "it makes itself known again")
            assert len(own()) == 4


async def test_a_broker_that_forgot_the_subscription_gets_a_heartbeat(cluster, broker):
    consumer = PushConsumer("G", cluster.address)
    seen = []
    consumer.subscribe("T", handler=lambda message: seen.append(1))
    answers = iter([24, 25])

    def forgetful(command):
        code = next(answers, None)
        if code is None:
            del broker.answers[11]
            return broker._on_11(command)
        return command.reply(code, "who are you?")

    broker.answers[11] = forgetful
    async with consumer:
        await until_async(lambda: len(broker.asked(34)) >= 3, "it sends heartbeats")
        broker.deliver(record("T", 0))
        await until_async(lambda: seen, "it consumes")


async def test_requests_nobody_serves_are_answered(cluster, broker):
    consumer, _ = noting(cluster)
    async with consumer:
        await until_async(lambda: broker.connections, "it is connected")
        connection = broker.connections[0]
        assert (await connection.invoke(Command(99_999))).code == 3
        stranger = Command(307, fields=write_header(307, consumer_group="other", client_id="x"))
        reply = await connection.invoke(stranger)
        assert (reply.code, "not exist" in (reply.remark or "")) == (1, True)


async def test_a_result_does_not_count_once_the_queue_is_lost(cluster, broker):
    broker.offsets["T", 0] = 0
    consumer = PushConsumer("G", cluster.address)
    gate, started, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @consumer.on("T")
    async def consume(message) -> None:
        started.set()
        await gate.wait()
        done.set()

    async with consumer:
        broker.deliver(record("T", 0))
        await started.wait()
        # Let a member that sorts first take the only queue.
        broker.consumer_ids.insert(0, "!")
        broker.connections[0].invoke_oneway(Command(40, fields=write_header(40, consumer_group="G")))
        queue = MessageQueue("T", broker.name, 0)
        # Handlers that end soon still count; this one does not.
        await until_async(lambda: queue not in consumer.running_info().mq_table, "it is lost")
        await until_async(lambda: broker.asked(15), "its offset is stored")
        gate.set()
        await done.wait()
    assert broker.offsets["T", 0] == 0


async def test_running_handlers_are_let_finish(cluster, broker):
    broker.offsets["T", 0] = 0
    consumer = PushConsumer("G", cluster.address)
    started, finished = asyncio.Event(), []

    @consumer.on("T")
    async def consume(message) -> None:
        started.set()
        await asyncio.sleep(0.2)
        finished.append(message.queue_offset)

    async with consumer:
        broker.deliver(record("T", 0))
        await started.wait()
    assert finished == [0]
    assert broker.offsets["T", 0] == 1
