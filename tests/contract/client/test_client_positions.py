"""Start positions of our consumers, and brokers that correct or reset their offsets."""

import asyncio

import pytest
from scripted import ScriptedCluster, noting, pulled, record, refusing, within

from tianzhou import ConsumeFromWhere, PullConsumer, PushConsumer
from tianzhou.errors import ClientError
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.clients import RUNNING_INFO
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.offsets import CONSUMER_OFFSETS, OFFSET_TABLE, ConsumerOffsets
from tianzhou.wire.codes import V5_0_0, RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header, write_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))


async def test_pulls_carry_the_committed_offset(cluster, broker):
    broker.offsets["T", 0] = 3
    consumer = PushConsumer("G", cluster.address)
    gate = asyncio.Event()

    @consumer.on("T")
    async def consume(message) -> None:
        if message.queue_offset == 4:
            await gate.wait()

    async with consumer:
        broker.deliver(record("T", 3), record("T", 4), record("T", 5))
        await until_async(lambda: len(broker.pulls()) == 2, "it pulls again")
        first, second = broker.pulls()
        assert (first.queue_offset, first.sys_flag, first.commit_offset) == (3, 3, 3)
        assert (second.queue_offset, second.sys_flag) == (6, 3)
        assert second.commit_offset in {3, 4}
        assert (first.max_msg_nums, first.suspend_timeout_millis) == (32, 15_000)
        assert first.sub_version > 0
        gate.set()
    assert broker.offsets["T", 0] == 6


@pytest.mark.parametrize(
    ("where", "stored", "start"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, None, 9),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, None, 0),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, None, 77),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 4, 4),
    ],
)
async def test_a_new_group_begins_where_it_wants(cluster, broker, where, stored, start):
    broker.max_offset = 9
    if stored is not None:
        broker.offsets["T", 0] = stored
    consumer, _ = noting(cluster, consume_from_where=where, consume_timestamp_ms=77)
    async with consumer:
        await until_async(lambda: broker.pulls(), "it pulls")
    assert broker.pulls()[0].queue_offset == start
    assert broker.offsets["T", 0] == start


async def test_an_offset_query_that_fails_does_not_make_up_an_offset(cluster, broker):
    broker.max_offset = 9
    broker.offsets["T", 0] = 4
    broker.answers[14] = refusing(1, "not now")
    consumer, _ = noting(cluster)
    async with consumer:
        await until_async(lambda: len(broker.asked(14)) >= 2, "it asks")
        assert not broker.asked(11)
        del broker.answers[14]
        await until_async(lambda: broker.pulls(), "it pulls once it knows")
    assert broker.pulls()[0].queue_offset == 4


async def test_an_offset_the_broker_corrects_is_stored_and_followed(cluster, broker):
    broker.offsets["T", 0] = 500
    consumer, seen = noting(cluster)
    moved = False

    def correct(command):
        nonlocal moved
        if moved or "%RETRY%" in command.fields.get("topic", command.header.topic if command.header else ""):
            return broker._on_11(command)
        moved = True
        return command.reply(21, "OFFSET_TOO_BADLY", pulled(20, 20, 30))

    broker.answers[11] = correct
    async with consumer:
        await until_async(lambda: [h for h in broker.asked(11) if h.queue_offset == 20], "it pulls there")
        assert broker.offsets["T", 0] == 20
        broker.deliver(record("T", 20))
        await until_async(lambda: seen == [20], "it consumes from there")
    assert broker.offsets["T", 0] == 21


async def test_what_is_in_hand_comes_again_when_the_master_does_not_show_all_that_a_slave_did(cluster, broker):
    broker.offsets["T", 0] = 10
    consumer = PushConsumer("G", cluster.address)
    gate, seen = asyncio.Event(), []

    @consumer.on("T")
    async def consume(message) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 11:
            await gate.wait()

    def shorter(command):
        header = read_header(command)
        if header.queue_offset == 13:
            return command.reply(21, "OFFSET_OVERFLOW_BADLY", pulled(12, 0, 12))
        return broker._on_11(command)

    broker.answers[11] = shorter
    async with consumer:
        broker.deliver(record("T", 10), record("T", 11), record("T", 12))
        await until_async(lambda: 11 in seen, "it consumes")
        await until_async(lambda: [h for h in broker.asked(11) if h.queue_offset == 11], "it pulls there again")
        assert broker.offsets["T", 0] == 11
        gate.set()
        broker.deliver(record("T", 11))
        await until_async(lambda: seen.count(11) == 2, "it consumes it again")
    assert broker.offsets["T", 0] == 12


@pytest.mark.parametrize(("deleted", "start"), [(True, 0), (False, 10)], ids=["deleted", "away for a moment"])
async def test_a_member_begins_anew_only_when_the_offsets_went_with_the_topic(cluster, broker, deleted, start):
    broker.offsets["T", 0] = 10
    consumer, seen = noting(cluster)
    missing = 1

    def without_topic(command):
        nonlocal missing
        if read_header(command).topic != "T" or not missing:
            return broker._on_11(command)
        missing -= 1
        if deleted:
            del broker.offsets["T", 0]
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist")

    broker.answers[11] = without_topic
    async with consumer:
        await until_async(lambda: len([h for h in broker.pulls() if h.topic == "T"]) == 2, "it pulls again")
        broker.deliver(record("T", start))
        await until_async(lambda: seen == [start], "it consumes from there")
    assert broker.offsets["T", 0] == start + 1


async def test_a_pushed_reset_moves_the_consumer_and_drops_what_is_in_hand(cluster, broker):
    broker.offsets["T", 0] = 10
    consumer = PushConsumer("G", cluster.address)
    gate, seen = asyncio.Event(), []

    @consumer.on("T")
    async def consume(message) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 10:
            await gate.wait()

    async with consumer:
        broker.deliver(record("T", 10), record("T", 11))
        await until_async(lambda: seen == [10, 11], "it consumes")
        queue = MessageQueue("T", broker.name, 0)
        reset = Command(
            220,
            fields=write_header(220, topic="T", group="G", timestamp=0, is_force=True),
            body=OFFSET_TABLE.dumps({queue: 2}),
        )
        broker.connections[0].invoke_oneway(reset)
        await until_async(lambda: broker.offsets["T", 0] == 2, "the new offset is stored")
        gate.set()
        await until_async(lambda: [h for h in broker.asked(11) if h.queue_offset == 2], "it pulls there")
        broker.deliver(record("T", 2))
        await until_async(lambda: seen[2:] == [2], "it continues there")
        status = Command(221, fields=write_header(221, topic="T", group="G"))
        reply = await broker.connections[0].invoke(status)
        assert b'"messageQueueTable"' in bytes(reply.body)
    assert broker.offsets["T", 0] == 3


async def test_poll_follows_corrections_and_survives_refusals(cluster, broker):
    queue = MessageQueue("T", broker.name, 0)
    answers = iter([(21, pulled(20, 20, 30)), (215, None)])

    def odd(command):
        code, fields = next(answers, (None, None))
        return broker._on_11(command) if code is None else command.reply(code, "x", fields)

    broker.answers[11] = odd
    async with PullConsumer("G", cluster.address) as consumer:
        consumer.assign([queue])
        broker.max_offset = 500
        await consumer.seek(queue, 500)
        broker.deliver(record("T", 20))
        (message,) = await consumer.poll(10_000)
        assert message.queue_offset == 20
        assert [header.queue_offset for header in broker.asked(RequestCode.PULL_MESSAGE)[:3]] == [500, 20, 20]
    assert broker.offsets["T", 0] == 21


async def test_a_polling_member_answers_and_is_moved_too():
    async with ScriptedCluster(1) as cluster, PullConsumer("G", cluster.address) as consumer:
        broker = cluster.brokers[0]
        queue = MessageQueue("T", broker.name, 0)
        consumer.assign([queue], tags="A")
        broker.max_offset = 5
        await consumer.seek(queue, 5)
        broker.deliver(record("T", 5, properties="TAGS\x01A\x02"))
        await consumer.poll(10_000)
        await until_async(lambda: broker.asked(34), "it is announced")
        (data,) = HEARTBEAT.loads(broker.bodies_of(34)[-1]).consumers
        assert (data.consume_type.value, data.subscription_data_set[0].sub_string) == ("CONSUME_ACTIVELY", "A")
        connection = broker.connections[0]
        ask = Command(307, fields=write_header(307, consumer_group="G", client_id="x"))
        info = RUNNING_INFO.loads((await connection.invoke(ask)).body)
        assert info.mq_table[queue].commit_offset == 6
        fields = write_header(220, topic="T", group="G", timestamp=0, is_force=True)
        connection.invoke_oneway(Command(220, fields=fields, body=OFFSET_TABLE.dumps({queue: 2})))
        await until_async(lambda: consumer.instance.consumer("G").consume_offsets("T") == {queue: 2}, "it is moved")
        polling = asyncio.create_task(consumer.poll(10_000))
        await until_async(lambda: [h for h in broker.asked(11) if h.queue_offset == 2], "it pulls there")
        broker.deliver(record("T", 2, properties="TAGS\x01A\x02"))
        assert [m.queue_offset for m in await polling] == [2]
        await consumer.seek_to_end(queue)
        consumer.pause([queue])
        assert await consumer.poll(20) == []
        consumer.resume([queue])
        with pytest.raises(ClientError, match="is not assigned"):
            await consumer.seek(queue._replace(queue_id=7), 0)
        for outside in (-1, 6):
            with pytest.raises(ClientError, match=f"offset {outside} is outside of .*, which holds 0 to 5"):
                await consumer.seek(queue, outside)
    with pytest.raises(ClientError, match="is stopped"):
        await consumer.poll()


def _answer_0_as_before_5_0(broker, committed: dict[str, dict[int, int]], *, shown: bool = True) -> None:
    """Answer as RocketMQ 4.9: 0 for a queue without a committed offset, and the whole table on request."""

    def query(command):
        reply = command.reply(0, fields=write_reply(14, offset=0))
        reply.version = V5_0_0 - 1
        return reply

    broker.answers[14] = query
    broker.answers[43] = lambda command: (
        command.reply(0, body=CONSUMER_OFFSETS.dumps(ConsumerOffsets(committed)))
        if shown
        else command.reply(16, "no permission")
    )


@pytest.mark.parametrize(
    ("committed", "shown", "held", "start"),
    [
        ({}, True, 9, 9),
        ({"T@G": {1: 0}, "T@other": {0: 0}}, True, 9, 9),
        ({"T@G": {0: 0}}, True, 9, 0),
        ({}, False, 9, 0),  # in doubt no message is skipped
        ({}, True, 0, 0),
    ],
)
async def test_a_0_of_a_broker_before_5_0_is_looked_into(cluster, broker, caplog, committed, shown, held, start):
    broker.max_offset = held
    _answer_0_as_before_5_0(broker, committed, shown=shown)
    consumer, _ = noting(cluster, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    async with consumer:
        await until_async(lambda: broker.pulls(), "it pulls")
    assert broker.pulls()[0].queue_offset == start
    asked = {header.topic: header.set_zero_if_not_found for header in broker.asked(14)}
    assert asked == {"T": False, "%RETRY%G": None}
    assert len(broker.asked(43)) == (held > 0)
    warned = [one.message for one in caplog.records if "older than 5.0 and does not show" in one.message]
    assert bool(warned) == (not shown)


async def test_what_the_user_did_not_write_is_left_to_the_broker(cluster, broker):
    broker.max_offset = 9
    _answer_0_as_before_5_0(broker, {})
    consumer, _ = noting(cluster)
    async with consumer:
        await until_async(lambda: broker.pulls(), "it pulls")
    assert broker.pulls()[0].queue_offset == 0
    assert [header.set_zero_if_not_found for header in broker.asked(14) if header.topic == "T"] == [None]
    (data,) = HEARTBEAT.loads(broker.bodies_of(34)[-1]).consumers
    assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
