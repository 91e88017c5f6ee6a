"""Our client with brokers that refuse, are silent, forget and interrupt."""

import asyncio

import pytest
from scripted import ScriptedCluster, noting, one_broker, pulled, record, sent, within

from tianzhou import ConsumeFromWhere, ConsumeResult, Message, Producer, PullConsumer, PushConsumer, SendStatus
from tianzhou.client.consumer.push import concurrent
from tianzhou.errors import BrokerError, ClientError, ConnectionLost, RequestTimeout
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.clients import RUNNING_INFO
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.offsets import OFFSET_TABLE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from tianzhou.wire.properties import decode_properties
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))

MESSAGE = Message("T", b"x")


def refusing(code, remark="no"):
    return lambda command: command.reply(code, remark)


async def silent(command):
    await asyncio.sleep(60)


# --- sending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_another_broker_gets_what_one_refuses(code):
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address) as producer:
        bad, good = cluster.brokers
        bad.answers[310] = refusing(code)
        results = [await producer.send(MESSAGE) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {good.name}
        assert len(good.asked(310)) == 4
        assert bad.asked(310)


async def test_what_every_broker_would_refuse_is_raised_at_once_with_a_hint():
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address) as producer:
        for broker in cluster.brokers:
            broker.answers[310] = refusing(13, "the body is too long")
        with pytest.raises(BrokerError, match=r"code 13 from 127.*too long \(a size, property or delay") as error:
            await producer.send(MESSAGE)
        assert error.value.code == 13
        assert sum(len(broker.asked(310)) for broker in cluster.brokers) == 1


async def test_the_last_refusal_is_raised_when_all_attempts_fail():
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        cluster.brokers[0].answers[310] = refusing(2, "[OVERLOAD] try later")
        with pytest.raises(BrokerError, match="send less, or try again later"):
            await producer.send(MESSAGE)
        assert len(cluster.brokers[0].asked(310)) == 3


async def test_a_chosen_queue_is_tried_once():
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address) as producer:
        cluster.brokers[0].answers[310] = refusing(2)
        queue = MessageQueue("T", cluster.brokers[0].name, 0)
        with pytest.raises(BrokerError, match="code 2"):
            await producer.send(MESSAGE, queue)
        with pytest.raises(BrokerError, match="code 2"):
            await producer.send(MESSAGE, selector=lambda queues, message, arg: queue)
        assert len(cluster.brokers[0].asked(310)) == 2
        assert not cluster.brokers[1].asked(310)


async def test_a_silent_broker_costs_the_time_of_one_attempt():
    async with (
        ScriptedCluster(2) as cluster,
        Producer("P", cluster.address, send_msg_max_timeout_per_request_ms=150) as producer,
    ):
        cluster.brokers[0].answers[310] = silent
        results = [await producer.send(MESSAGE) for _ in range(2)]
        assert {result.queue.broker_name for result in results} == {cluster.brokers[1].name}


async def test_the_time_limit_holds_for_all_attempts_together():
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        cluster.brokers[0].answers[310] = silent
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(RequestTimeout):
            await producer.send(MESSAGE, timeout_ms=300)
        assert loop.time() - started < 1


async def test_slow_and_failed_brokers_are_avoided_for_a_while():
    async with (
        ScriptedCluster(2) as cluster,
        Producer("P", cluster.address, send_latency_fault_enable=True) as producer,
    ):
        bad, good = cluster.brokers
        bad.answers[310] = refusing(2)
        for _ in range(10):
            await producer.send(MESSAGE)
        assert len(bad.asked(310)) == 1
        assert len(good.asked(310)) == 10


@pytest.mark.parametrize(
    ("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
async def test_stored_but_not_confirmed_is_a_result(code, status):
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        cluster.brokers[0].answers[310] = lambda command: command.reply(code, fields=sent(0, 7))
        result = await producer.send(MESSAGE)
        assert (result.status, result.queue_offset) == (SendStatus[status], 7)
        assert len(cluster.brokers[0].asked(310)) == 1


async def test_not_confirmed_can_be_tried_elsewhere_and_stays_a_result():
    async with (
        ScriptedCluster(2) as cluster,
        Producer("P", cluster.address, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        unsure, good = cluster.brokers
        unsure.answers[310] = lambda command: command.reply(10, fields=sent(0, 7))
        results = [await producer.send(MESSAGE) for _ in range(2)]
        assert {result.queue.broker_name for result in results} == {good.name}
        good.answers[310] = unsure.answers[310]
        assert (await producer.send(MESSAGE)).status is SendStatus.FLUSH_DISK_TIMEOUT


async def test_a_lost_connection_is_no_reason_to_fail():
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        broker = cluster.brokers[0]
        await producer.send(MESSAGE)

        def hang_up(command):
            del broker.answers[310]
            for connection in broker.connections:
                connection.abort()

        broker.answers[310] = hang_up
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK
        broker.answers[310] = hang_up
        with pytest.raises(ConnectionLost):
            await producer.send(MESSAGE, MessageQueue("T", broker.name, 0))


async def test_a_topic_nobody_makes_is_refused_with_the_fix():
    async with ScriptedCluster(1, topics=("T",)) as cluster, Producer("P", cluster.address) as producer:
        with pytest.raises(ClientError, match=r"topic X does not exist.*autoCreateTopicEnable"):
            await producer.send(Message("X", b"x"))
        cluster.topics.add("X")
        assert (await producer.send(Message("X", b"x"))).status is SendStatus.SEND_OK


async def test_many_senders_share_one_route_query():
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        await asyncio.gather(*(producer.send(MESSAGE) for _ in range(50)))
        assert cluster.asked == ["T"]


async def test_a_producer_that_is_not_running_says_so():
    async with ScriptedCluster(1) as cluster:
        producer = Producer("P", cluster.address)
        with pytest.raises(ClientError, match="start it with 'async with'"):
            await producer.send(MESSAGE)
        await producer.stop()


# --- joining and leaving ---------------------------------------------------------------------------------------------


async def test_a_consumer_announces_itself_before_it_pulls_and_takes_its_leave():
    async with one_broker() as (cluster, broker):
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
        # The offsets are stored, and confirmed, before the others may take the queues.
        assert broker.offsets["T", 0] == 7
        assert codes[-1] == 35
        last_commit = [c for c in broker.requests if c.code == 15][-1]
        assert not last_commit.is_oneway
        assert broker.asked(35)[-1].consumer_group == "G"


async def test_pulls_carry_the_committed_offset():
    async with one_broker(offset=3) as (cluster, broker):
        consumer = PushConsumer("G", cluster.address)
        gate = asyncio.Event()

        @consumer.on("T")
        async def consume(message) -> None:
            if message.queue_offset == 4:
                await gate.wait()

        async with consumer:
            broker.deliver(record("T", 3), record("T", 4), record("T", 5))
            await until_async(lambda: len([h for h in broker.asked(11) if h.topic == "T"]) == 2, "it pulls again")
            first, second = [header for header in broker.asked(11) if header.topic == "T"]
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
async def test_a_new_group_begins_where_it_wants(where, stored, start):
    async with one_broker() as (cluster, broker):
        broker.max_offset = 9
        if stored is not None:
            broker.offsets["T", 0] = stored
        consumer, _ = noting(cluster, consume_from_where=where, consume_timestamp_ms=77)
        async with consumer:
            await until_async(lambda: [h for h in broker.asked(11) if h.topic == "T"], "it pulls")
        assert next(h.queue_offset for h in broker.asked(11) if h.topic == "T") == start
        assert broker.offsets["T", 0] == start


async def test_an_offset_query_that_fails_does_not_make_up_an_offset():
    async with one_broker() as (cluster, broker):
        broker.max_offset = 9
        broker.offsets["T", 0] = 4
        broker.answers[14] = refusing(1, "not now")
        consumer, _ = noting(cluster)
        async with consumer:
            await until_async(lambda: len(broker.asked(14)) >= 2, "it asks")
            assert not broker.asked(11)
            del broker.answers[14]
            await until_async(lambda: [h for h in broker.asked(11) if h.topic == "T"], "it pulls once it knows")
        assert next(h.queue_offset for h in broker.asked(11) if h.topic == "T") == 4


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


async def test_a_broker_that_forgot_the_subscription_gets_a_heartbeat():
    async with one_broker() as (cluster, broker):
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


async def test_an_offset_the_broker_corrects_is_stored_and_followed():
    async with one_broker(offset=500) as (cluster, broker):
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


async def test_a_pushed_reset_moves_the_consumer_and_drops_what_is_in_hand():
    async with one_broker(offset=10) as (cluster, broker):
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


async def test_requests_nobody_serves_are_answered():
    async with one_broker() as (cluster, broker):
        consumer, _ = noting(cluster)
        async with consumer:
            await until_async(lambda: broker.connections, "it is connected")
            connection = broker.connections[0]
            assert (await connection.invoke(Command(99_999))).code == 3
            stranger = Command(307, fields=write_header(307, consumer_group="other", client_id="x"))
            reply = await connection.invoke(stranger)
            assert (reply.code, "not exist" in (reply.remark or "")) == (1, True)


# --- handing back ----------------------------------------------------------------------------------------------------


def failing_consumer(cluster, attempts, **options):
    consumer = PushConsumer("G", cluster.address, **options)

    @consumer.on("T")
    async def consume(message):
        attempts.append((message.queue_offset, message.reconsume_times))
        return ConsumeResult.RECONSUME_LATER

    return consumer


async def test_what_is_not_consumed_goes_back_to_its_broker():
    async with one_broker(offset=0) as (cluster, broker):
        attempts = []
        async with failing_consumer(cluster, attempts, max_reconsume_times=5):
            broker.deliver(record("T", 0, properties="UNIQ_KEY\x01ID7\x02"))
            await until_async(lambda: broker.asked(36), "it is handed back")
        (back,) = broker.asked(36)
        assert (back.group, back.origin_topic, back.origin_msg_id, back.offset) == ("G", "T", "ID7", 0)
        assert (back.delay_level, back.max_reconsume_times) == (0, 5)
        assert broker.offsets["T", 0] == 1


async def test_what_no_broker_takes_back_is_sent_to_the_retry_topic():
    async with one_broker(offset=0) as (cluster, broker):
        broker.answers[36] = refusing(1, "not found")
        attempts = []
        async with failing_consumer(cluster, attempts):
            broker.deliver(
                record("T", 0, b"body", "UNIQ_KEY\x01ID7\x02a\x01b\x02TRAN_MSG\x01true\x02", reconsume_times=2)
            )
            await until_async(lambda: broker.asked(310), "it is sent")
        (sent_again,) = broker.asked(310)
        assert (sent_again.topic, sent_again.producer_group) == ("%RETRY%G", "CLIENT_INNER_PRODUCER")
        assert (sent_again.reconsume_times, sent_again.max_reconsume_times) == (3, 16)
        assert decode_properties(sent_again.properties.encode()) == {
            "UNIQ_KEY": "ID7",
            "a": "b",
            "ORIGIN_MESSAGE_ID": "ID7",
            "RETRY_TOPIC": "T",
            "DELAY": "5",
        }
        assert broker.bodies_of(310) == [b"body"]
        assert broker.offsets["T", 0] == 1


async def test_what_cannot_be_handed_back_at_all_is_consumed_again_here(monkeypatch):
    monkeypatch.setattr(concurrent, "SEND_BACK_RETRY_MS", 20)
    async with one_broker(offset=0) as (cluster, broker):
        broker.answers[36] = refusing(1)
        broker.answers[310] = refusing(13)
        attempts = []
        async with failing_consumer(cluster, attempts):
            broker.deliver(record("T", 0))
            await until_async(lambda: len(attempts) >= 3, "it is tried again")
        assert attempts[:3] == [(0, 0), (0, 1), (0, 2)]
        assert broker.offsets["T", 0] == 0


async def test_a_result_does_not_count_once_the_queue_is_lost():
    async with one_broker(offset=0) as (cluster, broker):
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
            # A member that sorts first takes the only queue.
            broker.consumer_ids.insert(0, "!")
            broker.connections[0].invoke_oneway(Command(40, fields=write_header(40, consumer_group="G")))
            queue = MessageQueue("T", broker.name, 0)
            # Handlers that end in a moment still count; this one does not.
            await until_async(lambda: queue not in consumer.running_info().mq_table, "it is lost")
            await until_async(lambda: broker.asked(15), "its offset is stored")
            gate.set()
            await done.wait()
        assert broker.offsets["T", 0] == 0


async def test_running_handlers_are_let_finish():
    async with one_broker(offset=0) as (cluster, broker):
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


async def test_poll_follows_corrections_and_survives_refusals():
    async with one_broker() as (cluster, broker):
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
