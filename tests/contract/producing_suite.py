"""The guarantees of our producers beyond plain sends, as checks against any server; see `client_suite`.

The servers check the state of transactions after one second and every second (`TRANSACTION_SETTINGS`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest
from client_suite import CLOCK, FIRST, Checks, fresh, make_topic, read_all, send_numbers

from client_probe import ClientProbe
from tianzhou import (
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
    sync,
)
from tianzhou.admin import Admin
from tianzhou.client import SqliteIds, create_reply_message, idempotent
from tianzhou.errors import BrokerError, ClientError, ReplyError, ReplyTimeout, TianzhouError
from waiting import until_async

TRANSACTION_SETTINGS = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
CHECKS = check = Checks()


async def bodies(namesrv: str, topic: str, count: int) -> list[bytes]:
    return sorted(message.body for message in await read_all(namesrv, topic, count))


# --- transactions ----------------------------------------------------------------------------------------------------


@check
async def a_transaction_decides_whether_its_message_is_delivered(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    ids: dict[bytes, str] = {}

    async def local(message: Message, state: TransactionState) -> TransactionState:
        assert message.transaction_id
        ids[message.body] = message.transaction_id
        return state

    async with TransactionProducer(fresh("P"), namesrv, check=lambda message: None) as producer:
        kept = await producer.send_in_transaction(
            Message(topic, b"kept", tags="t", keys="k", properties={"p": "v"}), local, TransactionState.COMMIT
        )
        gone = await producer.send_in_transaction(Message(topic, b"gone"), local, TransactionState.ROLLBACK)
        later = await producer.send_in_transaction(
            Message(topic, b"delayed", delay_level=18), lambda message, arg: TransactionState.COMMIT
        )
    assert [r.state for r in (kept, gone, later)] == [
        TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.COMMIT,
    ]  # fmt: skip
    assert kept.result.status is SendStatus.SEND_OK
    assert ids == {b"kept": kept.msg_id, b"gone": gone.msg_id}
    stored = {message.body: message for message in await read_all(namesrv, topic, 2)}
    assert set(stored) == {b"kept", b"delayed"}
    found = stored[b"kept"]
    assert (found.msg_id, found.tags, found.keys, found.user_properties["p"]) == (kept.msg_id, "t", "k", "v")
    assert found.transaction_id == kept.msg_id
    assert found.sys_flag & 0xC == 0x8


@check
async def a_broker_asks_about_unknown_transactions(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    asked: dict[str, int] = {}
    threads: set[str] = set()

    def state(message) -> TransactionState | None:
        threads.add(threading.current_thread().name)
        asked[message.body.decode()] = asked.get(message.body.decode(), 0) + 1
        assert message.topic == topic
        assert message.transaction_id == message.msg_id
        if message.body == b"slowly":
            if asked["slowly"] == 1:
                return None
            if asked["slowly"] == 2:
                raise OSError("the database is away")
            return TransactionState.COMMIT
        return TransactionState.COMMIT if message.body.startswith(b"yes") else TransactionState.ROLLBACK

    def broken(message: Message, arg: object) -> TransactionState:
        raise ValueError("local work failed")

    async with TransactionProducer(fresh("P"), namesrv, check=state) as producer:
        for body in (b"yes", b"no", b"slowly", b"yes" * 3000):
            sent = await producer.send_in_transaction(Message(topic, body), lambda message, arg: None)
            assert sent.state is TransactionState.UNKNOWN
        sent = await producer.send_in_transaction(Message(topic, b"yes, after an error"), broken)
        assert sent.state is TransactionState.UNKNOWN
        wanted = {b"yes", b"yes" * 3000, b"yes, after an error", b"slowly"}
        assert await bodies_within(namesrv, topic, wanted, 60) == wanted
    assert asked["no"] >= 1
    assert asked["slowly"] >= 3
    assert all(name.startswith("transactions-") for name in threads)


async def bodies_within(namesrv: str, topic: str, wanted: set[bytes], within_s: float) -> set[bytes]:
    """Return the delivered bodies until all wanted ones are among them; a broker that checks early may commit
    one twice.
    """
    deadline = CLOCK.monotonic() + within_s
    async with PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        found: set[bytes] = set()
        while not wanted <= found:
            async with asyncio.timeout(deadline - CLOCK.monotonic()):
                found.add((await anext(consumer)).body)
    return found


@check
async def another_member_answers_for_one_that_is_gone(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("P")
    async with TransactionProducer(group, namesrv, check=lambda message: None) as first:
        await first.send_in_transaction(Message(topic, b"orphan"), lambda message, arg: None)
    async with TransactionProducer(group, namesrv, check=lambda message: TransactionState.COMMIT) as second:
        await second.queues(topic)  # the broker knows a producer once the producer knows the broker
        assert await bodies_within(namesrv, topic, {b"orphan"}, 60) == {b"orphan"}


@check
async def blocking_transactions_run_in_the_callers_thread(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)

    def work() -> None:
        seen = []

        def local(message: Message, arg: str) -> TransactionState:
            seen.append((threading.current_thread().name, arg))
            return TransactionState.COMMIT

        with sync.TransactionProducer(fresh("P"), namesrv, check=lambda message: None) as producer:
            result = producer.send_in_transaction(Message(topic, b"x"), local, "arg")
        assert result.state is TransactionState.COMMIT
        assert seen == [(threading.current_thread().name, "arg")]

    await asyncio.to_thread(work)
    assert await bodies(namesrv, topic, 1) == [b"x"]


# --- request and reply -----------------------------------------------------------------------------------------------


@check
async def a_request_gets_its_reply(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    replier = Producer(fresh("R"), namesrv)
    consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST)

    @consumer.on(topic)
    async def answer(message) -> None:
        if message.body == b"by hand":
            sent = await replier.send(create_reply_message(message, b"by hand, too", keys="k"))
            assert sent.status is SendStatus.SEND_OK
            return
        await replier.reply(message, b"re: " + message.body, tags="answer", properties={"p": "v"})

    async with replier, consumer, Producer(fresh("P"), namesrv) as producer:
        reply = await producer.request(Message(topic, b"how are you?"), 20_000)
        assert reply.body == b"re: how are you?"
        assert (reply.tags, reply.user_properties) == ("answer", {"p": "v"})
        assert reply.topic.endswith("_REPLY_TOPIC")
        assert int(reply.properties["ARRIVE_TIME"]) >= int(reply.properties["PUSH_REPLY_TIME"])
        assert ":" in reply.born_host
        assert not reply.born_host.startswith("/")
        assert (await producer.request(Message(topic, b"by hand"), 20_000)).body == b"by hand, too"
        big = b"0123456789" * 20_000
        assert (await producer.request(Message(topic, big), 20_000)).body == b"re: " + big
        many = await asyncio.gather(
            *(producer.request(Message(topic, b"%d" % i, sharding_key=str(i)), 20_000) for i in range(50))
        )
        assert [r.body for r in many] == [b"re: %d" % i for i in range(50)]
        chosen = (await producer.queues(topic))[1]
        assert (await producer.request(Message(topic, b"there"), 20_000, chosen)).body == b"re: there"
        assert len(producer.instance.replies) == 0

        def blocking() -> bytes:
            with sync.Producer(fresh("P"), namesrv) as other:
                return other.request(Message(topic, b"blocking"), 20_000).body

        assert await asyncio.to_thread(blocking) == b"re: blocking"


@check
async def a_request_nobody_answers_ends_in_time(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer:
        started = CLOCK.monotonic()
        with pytest.raises(ReplyTimeout, match=r"no reply within 500 ms to request \w{32} of topic"):
            await producer.request(Message(topic, b"hello?"), 500)
        assert 0.4 < CLOCK.monotonic() - started < 3
        assert len(producer.instance.replies) == 0
        (stored,) = await read_all(namesrv, topic, 1)
        assert stored.properties["TTL"] == "500"
        assert stored.properties["REPLY_TO_CLIENT"] == producer.instance.client_id
    # Its sender has stopped.
    async with Producer(fresh("P"), namesrv) as producer:
        with pytest.raises(BrokerError, match="not found"):
            await producer.reply(stored, b"too late")
        await producer.send(Message(topic, b"no request"))
        with pytest.raises(ReplyError, match="waits for no reply"):
            await producer.reply((await read_all(namesrv, topic, 2))[1], b"x")
        with pytest.raises(ClientError):
            await producer.request(Message(topic, b""), 500)


# --- around sends ----------------------------------------------------------------------------------------------------


@check
async def hooks_see_every_send_and_request(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    seen: list[tuple] = []
    requests: list[tuple] = []

    def around(context):
        seen.append(("before", context.messages[0].body, context.kind.name, context.result))
        return lambda after: seen.append(("after", len(after.messages), after.result is not None, after.error))

    def broken(context):
        raise RuntimeError("a hook that fails")

    def forbid(context) -> None:
        if b"secret" in context.messages[0].body:
            raise PermissionError("not this one")

    def rpc(exchange):
        code = exchange.request.code
        exchange.request.fields = {**exchange.request.fields, "extra": "field"}
        return lambda after: requests.append((code, after.reply.code))

    producer = Producer(
        fresh("P"), namesrv, send_hooks=[around, broken], check_forbidden_hooks=[forbid], rpc_hooks=[rpc]
    )
    async with producer:
        await producer.send(Message(topic, b"one"))
        await producer.send_batch([Message(topic, b"two"), Message(topic, b"three")])
        await producer.send(Message(topic, b"four", delay_level=1))
        await producer.send_oneway(Message(topic, b"five"))
        with pytest.raises(ClientError, match="not this one"):
            await producer.send(Message(topic, b"secret"))
    assert seen == [
        ("before", b"one", "NORMAL", None), ("after", 1, True, None),
        ("before", b"two", "NORMAL", None), ("after", 2, True, None),
        ("before", b"four", "DELAY", None), ("after", 1, True, None),
        ("before", b"five", "NORMAL", None), ("after", 1, False, None),
    ]  # fmt: skip
    assert {(310, 0), (320, 0), (105, 0), (34, 0), (35, 0)} <= set(requests)
    assert await bodies(namesrv, topic, 5) == sorted([b"one", b"two", b"three", b"four", b"five"])


@check
async def stamps_are_stored_with_messages(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    stamped: list[str] = []

    def stamp(message, unique_key):
        if message.body == b"wrong":
            return {"KEYS": "reserved"}
        stamped.append(unique_key)
        return {"stamp": message.body.decode(), "n": "of the hook"}

    def broken(message, unique_key):
        raise RuntimeError("a hook that fails")

    hooks = [broken, stamp, lambda message, unique_key: None]
    async with Producer(fresh("P"), namesrv, stamp_hooks=hooks) as producer:
        results = [
            await producer.send(Message(topic, b"one", keys="k", properties={"n": "1", "mine": "2"})),
            await producer.send_batch([Message(topic, b"two"), Message(topic, b"three")]),
            await producer.send(Message(topic, b"four", delay_level=1)),
        ]
        await producer.send_oneway(Message(topic, b"five"))
        with pytest.raises(ClientError, match="KEYS, which is RocketMQ's own; choose another"):
            await producer.send(Message(topic, b"wrong"))
    stored = {message.body: message for message in await read_all(namesrv, topic, 5)}
    assert {body: message.properties["stamp"] for body, message in stored.items()} == {
        body: body.decode() for body in (b"one", b"two", b"three", b"four", b"five")
    }
    assert stored[b"one"].user_properties == {"n": "of the hook", "mine": "2", "stamp": "one"}
    assert ",".join(stamped[:4]) == ",".join(result.msg_id for result in results)


@check
async def messages_travel_together_without_being_told(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 4)
    seen: list[int] = []
    async with Producer(
        fresh("P"),
        namesrv,
        auto_batch=True,
        batch_max_delay_ms=50,
        enable_backpressure_for_async_mode=True,
        back_pressure_for_async_send_num=10,
        send_hooks=[lambda context: seen.append(len(context.messages))],
    ) as producer:
        messages = [Message(topic, b"%d" % i, keys=f"k{i}", sharding_key=str(i % 3)) for i in range(90)]
        results = await asyncio.gather(*(producer.send(message) for message in messages))
        delayed = await producer.send(Message(topic, b"late", delay_level=1))
        soon = await producer.send(Message(topic, b"soon"), timeout_ms=3_000)
    assert sum(seen) == 92
    assert len(seen) < 20
    stored = {message.msg_id: message for message in await read_all(namesrv, topic, 91)}
    for message, result in zip(messages, results, strict=True):
        found = stored[result.msg_id]
        assert (found.body, found.keys) == (message.body, message.keys)
        assert (found.queue_id, found.queue_offset) == (result.queue.queue_id, result.queue_offset)
        assert found.offset_msg_id == result.offset_msg_id
    assert len({(m.properties["__SHARDINGKEY"], m.queue_id) for m in stored.values() if m.keys}) == 3
    assert {delayed.status, soon.status} == {SendStatus.SEND_OK}


@check
async def a_namespace_keeps_names_apart(namesrv: str, folder: Path) -> None:
    space = fresh("NS")
    topic = await make_topic(namesrv, 1)
    async with Producer("P" + space, namesrv, namespace=space) as producer:
        sent = await producer.send(Message(topic, b"inside"))
        assert sent.queue.topic == topic
        assert {queue.topic for queue in await producer.queues(topic)} == {topic}
        await producer.send(Message(topic, b"chosen"), (await producer.queues(topic))[0])
        await producer.send_batch([Message(topic, b"batch")])
    found = await read_all(namesrv, f"{space}%{topic}", 3)
    assert sorted(m.body for m in found) == [b"batch", b"chosen", b"inside"]
    assert {m.properties["INSTANCE_ID"] for m in found} == {space}
    assert await read_all(namesrv, topic, 0) == []


@check
async def batches_above_the_limit_are_split_in_order(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 4)
    messages = [Message(topic, b"%03d" % number + b"x" * 997, keys=f"k{number}") for number in range(40)]
    async with Producer(fresh("P"), namesrv) as producer:
        results = await producer.send_batch(messages, split=True, max_bytes=10_000)
        with pytest.raises(ClientError, match=r"max_message_size\); split it, as send_batch\(…, split=True\) does"):
            await producer.send_batch([Message(topic, b"x" * (3 << 20))] * 2)
        with pytest.raises(ClientError, match="max_bytes=5 has an effect with split=True only"):
            await producer.send_batch(messages, max_bytes=5)
        with pytest.raises(TianzhouError, match="max_bytes is 5000000; it has to be 1 to 4194304"):
            await producer.send_batch(messages, split=True, max_bytes=5_000_000)
        blocking = await asyncio.to_thread(_split_by_a_blocking_producer, namesrv, topic)
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(40))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len(blocking) == 3
    found = {message.msg_id: message for message in await read_all(namesrv, topic, 43)}
    for message, result in zip(messages, results, strict=True):
        stored = found[result.msg_id]
        assert (stored.body, stored.keys, stored.queue_offset) == (message.body, message.keys, result.queue_offset)


def _split_by_a_blocking_producer(namesrv: str, topic: str) -> list[SendResult]:
    with sync.Producer(fresh("P"), namesrv) as producer:
        return producer.send_batch([Message(topic, b"y" * 600)] * 3, split=True, max_bytes=1000)


@check
async def consumers_inside_a_namespace_see_their_own_names(namesrv: str, folder: Path) -> None:
    space, topic, group = fresh("NS"), await make_topic(namesrv, 2), fresh("G")
    seen: list[tuple[bytes, str, int]] = []
    where: set[str] = set()
    consumer = PushConsumer(group, namesrv, namespace=space, consume_from_where=FIRST)
    ordered = PushConsumer(fresh("G"), namesrv, namespace=space, consume_from_where=FIRST, orderly=True)
    in_order: list[bytes] = []

    @consumer.on(topic, "a || b")
    async def consume(message, context) -> None:
        seen.append((message.body, message.topic, message.reconsume_times))
        where.add(context.queue.topic)
        if message.body == b"again" and not message.reconsume_times:
            context.delay_level = 1
            raise ValueError("once more")

    @ordered.on(topic)
    async def consume_in_order(message) -> None:
        in_order.append(message.body)

    async with Producer(fresh("P"), namesrv, namespace=space) as producer:
        await producer.send(Message(topic, b"first", tags="a"))
        await producer.send(Message(topic, b"unwanted", tags="c"))
        async with consumer, ordered, Producer(fresh("P"), namesrv) as outside:
            await outside.send(Message(topic, b"of somebody else", tags="a"))
            await producer.send(Message(topic, b"again", tags="b"))
            await until_async(lambda: len(seen) >= 3, "all came, one twice")
            await until_async(lambda: len(in_order) >= 3, "the ordered ones came")
            assert {queue.topic for queue in consumer.assignment} <= {topic, f"%RETRY%{group}"}
            async with Admin(namesrv) as admin:
                info = await admin.groups.connections(f"{space}%{group}")
                assert info is not None
                assert set(info.subscription_table) == {f"{space}%{topic}", f"%RETRY%{space}%{group}"}
    assert sorted(seen) == [(b"again", topic, 0), (b"again", topic, 1), (b"first", topic, 0)]
    assert where <= {topic, f"%RETRY%{group}"}
    assert sorted(in_order) == [b"again", b"first", b"unwanted"]
    async with PullConsumer(group, namesrv, namespace=space) as reader:
        queues = await reader.queues(topic)
        assert {queue.topic for queue in queues} == {topic}
        assert sum([await reader.max_offset(queue) for queue in queues]) == 3
        assert sum([await reader.committed(queue) or 0 for queue in queues]) == 3
        reader.assign(queues)
        for queue in queues:
            await reader.seek_to_begin(queue)
        polled: list = []
        while len(polled) < 3:
            polled += await reader.poll(10_000)
        assert {message.topic for message in polled} == {topic}


@check
async def an_admin_inside_a_namespace_sees_its_own_names(namesrv: str, folder: Path) -> None:
    space, topic, group = fresh("NS"), fresh("T"), fresh("G")
    outside = await make_topic(namesrv, 1)
    async with Admin(namesrv, namespace=space) as admin, Producer(fresh("P"), namesrv, namespace=space) as producer:
        await admin.topics.create(topic, read_queue_nums=1, write_queue_nums=1)
        await admin.groups.create(group)
        sent = await producer.send(Message(topic, b"1", keys="k"))
        consumer = PushConsumer(group, namesrv, namespace=space, consume_from_where=FIRST)
        consumer.subscribe(topic)
        async with consumer:
            await anext(consumer)
            await until_async(lambda: any(queue.topic == topic for queue in consumer.assignment), "it has a queue")
            info = await admin.groups.running_info(group, consumer.instance.client_id)
            assert {queue.topic for queue in info.mq_table} <= {topic, f"%RETRY%{group}"}
            assert {one.topic for one in info.subscription_set} == {topic, f"%RETRY%{group}"}
            connection = await admin.groups.connections(group)
            assert connection is not None
            assert set(connection.subscription_table) == {topic, f"%RETRY%{group}"}
        await producer.send(Message(topic, b"2"))
        names = await admin.topics.names()
        assert topic in names
        assert outside not in names
        assert not [name for name in names if space in name]
        assert group in await admin.groups.names()
        assert {one.group_name for one in (await admin.groups.config(group)).values()} == {group}
        assert {one.topic_name for one in (await admin.topics.config(topic)).values()} == {topic}
        assert {queue.topic for queue in (await admin.topics.stats(topic)).offset_table} == {topic}
        # Apache's 5.3.3 counts the topic itself among its groups.
        assert group in await admin.topics.groups(topic)
        assert set(await admin.topics.groups(topic)) <= {group, topic}

        async def second_is_unread() -> bool:
            lag = await admin.groups.lag(group, topic)
            return [(one.queue.topic, one.lag) for one in lag.queues] == [(topic, 1)]

        # Apache acknowledges messages shortly before pulls can read them.
        await until_async(second_is_unread, "the second message is unread")
        (found,) = await admin.messages.by_key(topic, "k")
        viewed = await admin.messages.by_offset_id(sent.offset_msg_id)
        at = await admin.messages.by_offset(sent.queue, 0)
        assert at is not None
        assert {found.topic, viewed.topic, at.topic} == {topic}
        await admin.topics.delete(topic)
        await admin.groups.delete(group)
        assert topic not in await admin.topics.names()
    async with Admin(namesrv) as admin:
        assert f"{space}%{group}" not in await admin.groups.names()
        assert group not in await admin.groups.names()


@check
async def requests_and_transactions_work_inside_a_namespace(namesrv: str, folder: Path) -> None:
    space, topic = fresh("NS"), await make_topic(namesrv, 1)
    replier = Producer(fresh("R"), namesrv, namespace=space)
    consumer = PushConsumer(fresh("G"), namesrv, namespace=space, consume_from_where=FIRST)
    asked: list[str] = []

    def state(message) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    @consumer.on(topic)
    async def answer(message) -> None:
        if message.body == b"?":
            await replier.reply(message, b"!")
        else:
            seen.append(message.body)

    seen: list[bytes] = []
    async with replier, consumer, TransactionProducer(fresh("P"), namesrv, check=state, namespace=space) as producer:
        assert (await producer.request(Message(topic, b"?"), 20_000)).body == b"!"
        await producer.send_in_transaction(Message(topic, b"later"), lambda message, arg: None)
        await until_async(lambda: seen, "the broker has asked", within_s=60)
    assert set(asked) == {topic}


@check
async def slow_brokers_are_remembered_and_options_checked(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    async with Producer(
        fresh("P"),
        namesrv,
        send_latency_fault_enable=True,
        start_detector_enable=True,
        unit_name="unit",
        unit_mode=True,
    ) as producer:
        assert producer.instance.client_id.endswith("@unit")
        await send_numbers(producer, topic, 4)
        await ClientProbe(producer).look_for_brokers()
    assert await bodies(namesrv, topic, 4) == [b"0", b"1", b"2", b"3"]


# --- trace -----------------------------------------------------------------------------------------------------------


async def trace_records(namesrv: str, topic: str, msg_id: str, count: int) -> list[list[str]]:
    """Return the trace records of a message, found by its id like in tools, once there are `count`."""
    deadline = CLOCK.monotonic() + 30
    async with Admin(namesrv) as admin:
        while True:
            found = [
                record.split("\x01")
                for message in await admin.messages.by_key(topic, msg_id)
                for record in message.body.decode().split("\x02")
                if msg_id in record
            ]
            if len(found) >= count:
                return sorted(
                    found, key=lambda fields: ["Pub", "EndTransaction", "SubBefore", "SubAfter"].index(fields[0])
                )
            assert CLOCK.monotonic() < deadline, f"only {found}"
            await asyncio.sleep(0.1)


@check
async def a_message_is_traced_from_producer_to_consumer(namesrv: str, folder: Path) -> None:
    topic, traces = await make_topic(namesrv, 1), await make_topic(namesrv, 1)
    group, consumers = fresh("P"), fresh("G")
    calls: list[str] = []
    consumer = PushConsumer(
        consumers,
        namesrv,
        consume_from_where=FIRST,
        trace=True,
        trace_topic=traces,
        trace_msg_batch_num=1,
        consume_hooks=[lambda call: lambda after: calls.append(after.outcome.name)],
    )

    @consumer.on(topic)
    async def consume(message) -> None:
        if message.body == b"twice" and not message.reconsume_times:
            raise ValueError("not yet")

    async with Producer(group, namesrv, trace=True, trace_topic=traces, trace_msg_batch_num=3) as producer:
        sent = await producer.send(Message(topic, b"once", tags="t", keys=["k1", "k2"]))
        batch = await producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2", tags="x")])
        late = await producer.send(Message(topic, b"twice", delay_level=1))
        async with consumer:
            await until_async(lambda: len(calls) == 5, "all were consumed")
        assert sorted(calls) == ["EXCEPTION", "SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS"]
    pub, before, after = await trace_records(namesrv, traces, sent.msg_id, 3)
    assert pub[0] == "Pub"
    assert abs(int(pub[1]) - CLOCK.now_ms()) < 120_000
    assert pub[2:8] == ["DefaultRegion", group, topic, sent.msg_id, "t", "k1 k2"]
    assert ":" in pub[8]
    assert (pub[9], pub[11:]) == ("4", ["0", sent.offset_msg_id, "true"])
    assert before[0] == "SubBefore"
    assert before[2:4] + before[5:] == ["DefaultRegion", consumers, sent.msg_id, "0", "k1 k2"]
    assert after[:3] == ["SubAfter", before[4], sent.msg_id]
    assert after[4:7] == ["true", "k1 k2", "0"]
    assert after[8] == consumers
    second = batch.msg_id.split(",")[1]
    pub, *_ = await trace_records(namesrv, traces, second, 3)
    assert (pub[5], pub[6], pub[12]) == (second, "x", batch.offset_msg_id.split(",")[1])
    pub, *seen = await trace_records(namesrv, traces, late.msg_id, 5)
    assert pub[11] == "3"
    assert sorted(fields[6] for fields in seen if fields[0] == "SubBefore") == ["0", "1"]
    assert sorted(fields[4] for fields in seen if fields[0] == "SubAfter") == ["false", "true"]
    async with Admin(namesrv) as admin:
        assert await admin.messages.by_key(traces, "k1")


@check
async def iterating_and_polling_are_seen_by_hooks_and_traced(namesrv: str, folder: Path) -> None:
    topic, traces = await make_topic(namesrv, 1), await make_topic(namesrv, 1)
    seen: list[tuple[str, str, bytes]] = []

    def around(call):
        seen.append(("before", str(call.outcome), call.messages[0].body))
        return lambda after: seen.append(("after", after.outcome.name, after.messages[0].body))

    wish = {"consume_from_where": FIRST, "trace": True, "trace_topic": traces, "consume_hooks": [around]}
    group = fresh("G")
    async with Producer(fresh("P"), namesrv) as producer:
        sent = [await producer.send(Message(topic, b"%d" % i)) for i in range(3)]
    consumer = PushConsumer(group, namesrv, **wish)
    consumer.subscribe(topic)

    async def consume_one_of_two() -> None:
        async with consumer:
            for _ in range(2):
                await anext(consumer)
            raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        await consume_one_of_two()
    assert seen == [
        ("before", "None", b"0"), ("after", "SUCCESS", b"0"),
        ("before", "None", b"1"), ("after", "EXCEPTION", b"1"),
    ]  # fmt: skip
    for result, success, code in zip(sent, ("true", "false"), ("0", "2"), strict=False):
        before, after = await trace_records(namesrv, traces, result.msg_id, 2)
        assert (before[0], before[3], after[0], after[4], after[6]) == ("SubBefore", group, "SubAfter", success, code)
    seen.clear()
    async with PullConsumer(fresh("G"), namesrv, **wish) as puller:
        puller.assign([sent[2].queue])
        await puller.seek(sent[2].queue, 2)
        assert [message.body for message in await puller.poll(20_000)] == [b"2"]
        assert seen == [("before", "None", b"2"), ("after", "SUCCESS", b"2")]
    before, after = await trace_records(namesrv, traces, sent[2].msg_id, 2)
    assert (before[0], after[0], after[4]) == ("SubBefore", "SubAfter", "true")


@check
async def ends_of_transactions_are_traced(namesrv: str, folder: Path) -> None:
    topic, traces, group = await make_topic(namesrv, 1), await make_topic(namesrv, 1), fresh("P")
    async with TransactionProducer(
        group, namesrv, check=lambda message: TransactionState.COMMIT, trace=True, trace_topic=traces
    ) as producer:
        sent = await producer.send_in_transaction(Message(topic, b"x", tags="t"), lambda message, arg: None)
        assert await bodies_within(namesrv, topic, {b"x"}, 60) == {b"x"}
    pub, told, asked, *_ = await trace_records(namesrv, traces, sent.msg_id, 3)
    assert (pub[0], pub[11]) == ("Pub", "1")
    assert told[:1] + told[2:7] == ["EndTransaction", "DefaultRegion", group, topic, sent.msg_id, "t"]
    assert told[9:] == ["2", sent.result.transaction_id or "null", "UNKNOW", "false"]
    assert asked[:1] + asked[9:] == ["EndTransaction", "2", sent.msg_id, "COMMIT_MESSAGE", "true"]


@check
async def traces_that_cannot_be_sent_disturb_nothing(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv, trace=True, trace_topic="SCHEDULE_TOPIC_XXXX") as producer:
        for i in range(30):
            assert (await producer.send(Message(topic, b"%d" % i))).status is SendStatus.SEND_OK
        await until_async(lambda: ClientProbe(producer).trace.dropped >= 30, "the records are given up")
        assert ClientProbe(producer).trace.sent == 0


# --- at most once ----------------------------------------------------------------------------------------------------


@check
async def what_comes_twice_is_consumed_once(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    folder.mkdir(parents=True, exist_ok=True)
    ids = SqliteIds(folder / "ids.db", durable=False)
    runs: list[bytes] = []
    delivered: list[bytes] = []

    @idempotent(ids)
    async def once(message) -> None:
        runs.append(message.body)
        if len(runs) == 1:
            raise ValueError("the first run fails")

    async def consume(message, context) -> None:
        delivered.append(message.body)
        context.delay_level = 1
        await once(message)

    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 10)
    for members in (1, 2):  # the second group gets all again, like a group with lost offsets
        consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=consume)
        async with consumer:
            await until_async(lambda members=members: len(delivered) == 10 * members + 1, "all came")
    assert sorted(Counter(runs).values()) == [1] * 9 + [2]
    ids.close()


# --- outbox ----------------------------------------------------------------------------------------------------------


@check
async def what_waits_in_an_outbox_is_sent_in_order(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 3)
    results = []
    async with Producer(fresh("P"), "127.0.0.1:9", outbox=folder / "outbox") as producer:
        for i in range(120):
            body = b"%d" % i if i % 10 else b"%d " % i + b"y" * 6_000
            message = Message(topic, body, keys=f"k{i}", sharding_key=str(i // 40), wait_store_ok=i % 7 > 0)
            results.append(await producer.send(message))
        results.append(await producer.send(Message(topic, b"late", delay_level=1)))
    assert {result.status for result in results} == {SendStatus.KEPT_IN_OUTBOX}
    async with Producer(fresh("P"), namesrv, outbox=folder / "outbox") as producer:
        await until_async(lambda: producer.outbox.pending == 0, "all is sent")
        assert (await producer.send(Message(topic, b"direct"))).status is SendStatus.SEND_OK
    stored = {message.msg_id: message for message in await read_all(namesrv, topic, 122)}
    assert len(stored) == 122
    for key in range(3):
        mine = [stored[result.msg_id] for result in results[key * 40 : key * 40 + 40]]
        assert [int(m.body.split()[0]) for m in mine] == list(range(key * 40, key * 40 + 40))
        assert [m.queue_offset for m in mine] == sorted(m.queue_offset for m in mine)
        assert len({m.queue_id for m in mine}) == 1
