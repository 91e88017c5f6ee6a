"""The guarantees of our client, as checks that run against any server with RocketMQ's protocol.

`test_client_contract.py` runs them against our own server, and
`tests/interop/apache_servers/test_client_vs_apache.py` against Apache's.
Every check creates its own topics and groups, so they can share a server. The servers have one second for each of the
first delay levels, `enablePropertyFilter`, and automatic creation of topics and groups.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tianzhou import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    SendStatus,
)
from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.client.consumer.pulling import messages_of
from tianzhou.clock import SystemClock
from tianzhou.errors import BrokerError, ClientError, ConnectFailed, ProtocolError
from waiting import until_async

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
DELAY_LEVELS = "1s 1s 1s 1s 1s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m"
WITHIN_S = 30
CLOCK = SystemClock()
"""Clock of the checks: the machine's time, or the time of a virtual loop (`shared_loop`)."""

Check = Callable[[str, Path], Awaitable[None]]

_serial = itertools.count()


class Checks(list[Check]):
    """The checks of a suite; a decorator that adds one."""

    def __call__(self, function: Check) -> Check:
        self.append(function)
        return function


CHECKS = check = Checks()


def fresh(noun: str) -> str:
    return f"{noun}{os.getpid()}x{int(time.time() * 1000) % 100_000_000}x{next(_serial)}"


async def send_numbers(producer: Producer, topic: str, *numbers: int) -> None:
    """Send the numbers of `range(*numbers)` one after the other, as text."""
    for number in range(*numbers):
        await producer.send(Message(topic, b"%d" % number))


async def make_topic(namesrv: str, queues: int = 4) -> str:
    topic = fresh("T")
    async with Admin(namesrv) as admin:
        await admin.topics.create(topic, read_queue_nums=queues, write_queue_nums=queues)
    return topic


async def queues_of(consumer: PullConsumer, topic: str) -> list[MessageQueue]:
    """Return a topic's queues, once it has a route: brokers register a topic created by a send after the reply."""
    deadline = CLOCK.monotonic() + WITHIN_S
    while True:
        try:
            return await consumer.queues(topic)
        except ClientError:
            if CLOCK.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.01)


async def read_all(namesrv: str, topic: str, count: int, **how: object) -> list:
    """Return every message of a topic, by plain pulls from each queue's beginning, once it has `count`."""
    found = []
    async with PullConsumer(fresh("reader"), namesrv) as consumer:
        queues = await queues_of(consumer, topic)
        for _ in range(1000):
            # Apache acknowledges messages a little before its queues have them.
            if sum([await consumer.max_offset(queue) for queue in queues]) >= count:
                break
            await asyncio.sleep(0.01)
        for queue in queues:
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, **how)
                assert result.next_offset > offset
                offset = result.next_offset
                found += result.messages
    return found


# --- sending and pulling ---------------------------------------------------------------------------------------------


@check
async def everything_sent_is_read_back_as_it_was(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    messages = [
        Message(
            topic,
            os.urandom(1 + i % 700),
            tags=f"tag{i % 5}" if i % 3 else None,
            keys=[f"k{i}", "é"] if i % 2 else "",
            flag=i - 500,
            properties={"n": str(i), 'quote"\\': "a\x01b\u2028\U0001f600"} if i % 7 == 0 else {},
        )
        for i in range(1200)
    ]
    async with Producer(fresh("P"), namesrv) as producer:
        results = await asyncio.gather(*(producer.send(message) for message in messages))
    assert all(result.status is SendStatus.SEND_OK for result in results)
    assert len({result.msg_id for result in results}) == len(results)
    assert len({result.offset_msg_id for result in results}) == len(results)
    assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
    for queue_id in range(4):
        offsets = sorted(result.queue_offset for result in results if result.queue.queue_id == queue_id)
        assert offsets == list(range(len(offsets)))

    stored = {message.msg_id: message for message in await read_all(namesrv, topic, len(messages))}
    assert len(stored) == len(messages)
    for message, result in zip(messages, results, strict=True):
        found = stored[result.msg_id]
        assert found.body == message.body
        assert (found.topic, found.tags, found.keys, found.flag) == (
            topic,
            message.tags,
            message.key_text(),
            message.flag,
        )
        assert found.user_properties == message.properties
        assert (found.broker_name, found.queue_id, found.queue_offset) == (*result.queue[1:], result.queue_offset)
        assert found.offset_msg_id == result.offset_msg_id
        assert found.reconsume_times == 0


@check
async def offsets_tell_the_ends_and_times_of_a_queue(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer, PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 0)
        assert await consumer.earliest_store_time(queue) is None
        await send_numbers(producer, topic, 3)
        await asyncio.sleep(0.05)
        between = CLOCK.now_ms()
        await asyncio.sleep(0.05)
        await send_numbers(producer, topic, 2)
        await until_async(lambda: holds(consumer, queue, 5), "the queue holds them")
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 5)
        assert await consumer.offset_by_time(queue, between) == 3
        assert await consumer.offset_by_time(queue, between, upper=True) == 2
        assert await consumer.offset_by_time(queue, 0) == 0
        assert await consumer.offset_by_time(queue, between + 3_600_000) == 5
        earliest = await consumer.earliest_store_time(queue)
        assert earliest is not None
        assert abs(earliest - between) < 60_000


async def holds(consumer: PullConsumer, queue: MessageQueue, count: int) -> bool:
    return await consumer.max_offset(queue) >= count


@check
async def a_pull_says_what_it_found(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer, PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        empty = await consumer.pull(queue, 0)
        assert (empty.status, empty.next_offset, empty.messages) == (PullStatus.NO_NEW_MSG, 0, [])
        for i in range(40):
            await producer.send(Message(topic, b"%d" % i, tags="even" if i % 2 == 0 else "odd"))
        await until_async(lambda: holds(consumer, queue, 40), "the queue holds them")
        found = await consumer.pull(queue, 3, 5)
        assert (found.status, found.next_offset) == (PullStatus.FOUND, 8)
        assert (found.min_offset, found.max_offset) == (0, 40)
        assert [message.body for message in found.messages] == [b"3", b"4", b"5", b"6", b"7"]
        raw = await consumer.pull_raw(QueuePull(queue, 3, 5))
        assert [m.body for m in messages_of(raw.body, queue.broker_name)] == [m.body for m in found.messages]
        assert raw.next_offset == 8
        none = await consumer.pull(queue, 0, tags="absent")
        assert (none.status, none.messages) == (PullStatus.NO_MATCHED_MSG, [])
        assert none.next_offset > 0
        beyond = await consumer.pull(queue, 1000)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 40)
        end = await consumer.pull(queue, 40)
        assert (end.status, end.next_offset) == (PullStatus.NO_NEW_MSG, 40)


@check
async def a_pull_at_the_end_waits_for_the_next_message(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer, PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(consumer.pull(queue, 0, suspend_ms=15_000))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await producer.send(Message(topic, b"now"))
        result = waiting.result()
        assert [message.body for message in result.messages] == [b"now"]
        started = CLOCK.monotonic()
        nothing = await consumer.pull(queue, 1, suspend_ms=1_000)
        assert nothing.status is PullStatus.NO_NEW_MSG
        assert CLOCK.monotonic() - started > 0.9


@check
async def a_batch_is_stored_in_one_piece(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    async with Producer(fresh("P"), namesrv) as producer:
        batch = [Message(topic, b"b%d" % i, tags="t", keys=f"k{i}", properties={"n": str(i)}) for i in range(50)]
        result = await producer.send_batch(batch)
    keys, offset_ids = result.msg_id.split(","), result.offset_msg_id.split(",")
    assert (len(keys), len(offset_ids)) == (50, 50)
    stored = sorted(await read_all(namesrv, topic, 50), key=lambda m: m.queue_offset)
    assert [m.body for m in stored] == [m.body for m in batch]
    assert [m.queue_offset for m in stored] == list(range(result.queue_offset, result.queue_offset + 50))
    assert {m.queue_id for m in stored} == {result.queue.queue_id}
    assert [m.msg_id for m in stored] == keys
    assert [m.offset_msg_id for m in stored] == offset_ids
    assert [(m.tags, m.keys, m.user_properties) for m in stored] == [("t", m.keys, m.properties) for m in batch]


@check
async def large_bodies_travel_compressed(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    bodies = {kind: (kind.encode() * 9000)[:30_000] for kind in ("ZLIB", "LZ4", "ZSTD")}
    for kind, body in bodies.items():
        async with Producer(fresh("P"), namesrv, compress_type=kind) as producer:
            await producer.send(Message(topic, body))
    noise = os.urandom(3 * 1024 * 1024)
    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send(Message(topic, noise))
    stored = await read_all(namesrv, topic, 4)
    assert sorted(m.body for m in stored) == sorted([*bodies.values(), noise])
    assert sorted(m.store_size for m in stored)[:3][-1] < 2000


@check
async def limits_are_checked_before_anything_is_sent(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    async with Producer(fresh("P"), namesrv) as producer:
        with pytest.raises(ClientError, match="the limit is 4194304"):
            await producer.send(Message(topic, b"x" * (4 * 1024 * 1024 + 1)))
        with pytest.raises(ClientError, match="at least one byte"):
            await producer.send(Message(topic, b""))
        with pytest.raises(ClientError, match="the limit is 32767"):
            await producer.send(Message(topic, b"x", properties={"p": "v" * 40_000}))
        with pytest.raises(ClientError, match="they have to agree"):
            await producer.send(Message(topic, b"x"), (await producer.queues(topic))[0]._replace(topic="other"))
        big = await producer.send(Message(topic, b"x", properties={"p": "v" * 30_000}))
        assert big.status is SendStatus.SEND_OK
    assert [len(m.user_properties["p"]) for m in await read_all(namesrv, topic, 1)] == [30_000]


@check
async def a_queue_can_be_chosen(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    async with Producer(fresh("P"), namesrv) as producer:
        queues = await producer.queues(topic)
        assert (await producer.send(Message(topic, b"x"), queues[2])).queue == queues[2]
        picked = await producer.send(Message(topic, b"x"), selector=lambda qs, m, arg: qs[arg], selector_arg=1)
        assert picked.queue == queues[1]
        with pytest.raises(BrokerError) as refused:
            await producer.send(Message(topic, b"x"), queues[0]._replace(queue_id=99))
        assert refused.value.code in {1, 29}
        homes = {key: set() for key in ("a", "b", "c", "d")}
        for key in homes:
            for i in range(5):
                sent = await producer.send(Message(topic, b"%s%d" % (key.encode(), i), sharding_key=key))
                homes[key].add(sent.queue)
        assert all(len(home) == 1 for home in homes.values())
        assert {next(iter(home)).queue_id for home in homes.values()} == {(97 + i) % 4 for i in range(4)}


@check
async def one_way_messages_arrive(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    async with Producer(fresh("P"), namesrv) as producer:
        for i in range(100):
            await producer.send_oneway(Message(topic, b"%d" % i, keys=f"k{i}"))
    assert sorted(int(m.body) for m in await read_all(namesrv, topic, 100)) == list(range(100))


@check
async def an_unknown_topic_is_made_by_sending(namesrv: str, folder: Path) -> None:
    topic = fresh("auto")
    async with Producer(fresh("P"), namesrv) as producer:
        assert len(await producer.queues(topic)) == 4
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(20)))
    assert len(await read_all(namesrv, topic, 20)) == 20


@check
async def a_delayed_message_comes_late(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer, PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        sent_at = CLOCK.now_ms()
        await producer.send(Message(topic, b"late", delay_level=1))
        assert (await consumer.pull(queue, 0)).messages == []
        result = await consumer.pull(queue, 0, suspend_ms=10_000)
        (message,) = result.messages
        assert message.body == b"late"
        assert 900 < message.store_timestamp - sent_at < 2_500


# --- consuming -------------------------------------------------------------------------------------------------------


@check
async def members_share_the_messages_and_keep_their_progress(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 6), fresh("G")
    seen: Counter[bytes] = Counter()
    places: Counter[tuple[str, int, int]] = Counter()
    by_member: Counter[str] = Counter()

    def member() -> PushConsumer:
        consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)

        @consumer.on(topic)
        async def consume(message) -> None:
            seen[message.body] += 1
            places[message.broker_name, message.queue_id, message.queue_offset] += 1
            by_member[consumer.instance.client_id] += 1

        return consumer

    def owned(consumer: PushConsumer) -> set:
        return {queue for queue in consumer.assignment if queue.topic == topic}

    async with Producer(fresh("P"), namesrv) as producer:
        async with member() as first:
            await until_async(lambda: len(owned(first)) == 6, "the first member has all queues")
            await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(500)))
            await until_async(lambda: len(seen) == 500, "the first half is consumed")
            async with member() as second:
                await until_async(lambda: len(owned(first)) == len(owned(second)) == 3, "both have three", within_s=5)
                assert not owned(first) & owned(second)
                await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(500, 1000)))
                await until_async(lambda: len(seen) == 1000, "the second half is consumed")
            await until_async(lambda: len(owned(first)) == 6, "the one that stays has all again", within_s=5)
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(1000, 1100)))
        async with member():
            await until_async(lambda: len(seen) == 1100, "a later member continues")
    assert set(seen) == {b"%d" % i for i in range(1100)}
    # All hand-overs happen without messages in process, and a new member waits until the owner has stored its offset.
    # One pull that a loaded broker serves late can set a queue back by its messages; no other message is repeated. (A
    # message that is stored twice, by a repeated send, has two positions.)
    assert sum(count - 1 for count in places.values()) <= 32
    assert len(by_member) == 3
    async with Admin(namesrv) as admin:
        assert (await admin.groups.lag(group, topic)).total == 0


@check
async def what_fails_is_delivered_again(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    attempts: dict[bytes, list[tuple[str, int]]] = {}
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)

    @consumer.on(topic)
    def consume(message):
        tries = attempts.setdefault(message.body, [])
        tries.append((message.topic, message.reconsume_times))
        if len(tries) == 1 and message.body == b"raises":
            raise ValueError("not now")
        if len(tries) == 1 and message.body == b"later":
            return ConsumeResult.RECONSUME_LATER
        if len(tries) == 1 and message.body == b"nonsense":
            return 42
        return ConsumeResult.SUCCESS

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        for body in (b"fine", b"raises", b"later", b"nonsense"):
            await producer.send(Message(topic, body, keys="k"))
        await until_async(lambda: len(attempts) == 4, "all were tried")
        await until_async(lambda: sum(map(len, attempts.values())) == 6, "two were tried again")
    assert attempts.pop(b"fine") == attempts.pop(b"nonsense") == [(topic, 0)]
    assert list(attempts.values()) == [[(topic, 0), (topic, 1)]] * 2


@check
async def a_message_nobody_can_consume_ends_as_a_dead_letter(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, max_reconsume_times=1)
    tries = 0

    @consumer.on(topic)
    async def consume(message) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("poison")

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        sent = await producer.send(Message(topic, b"poison", keys="k"))
        await until_async(lambda: tries == 2, "it was tried twice")
        async with Admin(namesrv) as admin:
            await until_async(lambda: admin.topics.exists(f"%DLQ%{group}"), "there are dead letters")
        (dead,) = await read_all(namesrv, f"%DLQ%{group}", 1)
    assert (dead.body, dead.msg_id, dead.keys) == (b"poison", sent.msg_id, "k")
    assert dead.properties["RETRY_TOPIC"] == topic


@check
async def only_wanted_tags_are_delivered(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: list[bytes] = []
    consumer = PushConsumer(
        group,
        namesrv,
        consume_from_where=FIRST,
        broker_suspend_max_time_ms=1_000,
        persist_consumer_offset_interval_ms=200,
    )
    # "Aa" and "BB" have the same hash, and the broker filters by hash.
    consumer.subscribe(topic, "Aa || C", lambda message: seen.append(message.body))
    async with Producer(fresh("P"), namesrv) as producer, consumer:
        for i, tag in enumerate(["Aa", "BB", "C", None, "D"] * 20):
            await producer.send(Message(topic, b"%d" % i, tags=tag))
        await until_async(lambda: len(seen) >= 40, "the wanted ones came")
        async with Admin(namesrv) as admin:
            await until_async(lambda: lag_of(admin, group, topic), "all is passed, the unwanted too")
    assert sorted(map(int, seen)) == [i for i in range(100) if i % 5 in {0, 2}]
    assert len(await read_all(namesrv, topic, 100, tags="Aa")) == 20


async def lag_of(admin: Admin, group: str, topic: str) -> bool:
    return (await admin.groups.lag(group, topic)).total == 0


@check
async def broadcast_reaches_every_member(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: dict[str, list[bytes]] = {"one": [], "two": []}

    def member(name: str) -> PushConsumer:
        consumer = PushConsumer(
            group, namesrv, message_model=MessageModel.BROADCASTING, local_offset_dir=folder, instance_name=name
        )
        consumer.subscribe(topic, handler=lambda message: seen[name].append(message.body))
        return consumer

    async with Producer(fresh("P"), namesrv) as producer:
        async with member("one") as one, member("two") as two:
            await until_async(lambda: len(one.assignment) == len(two.assignment) == 2, "both have all queues")
            await send_numbers(producer, topic, 50)
            await until_async(lambda: len(seen["one"]) == len(seen["two"]) == 50, "both got all")
        await send_numbers(producer, topic, 50, 60)
        async with member("one"):
            await until_async(lambda: len(seen["one"]) == 60, "one continues where it stopped")
    assert sorted(seen["one"]) == sorted(b"%d" % i for i in range(60))
    assert len(seen["two"]) == 50


@check
async def a_group_begins_where_it_wants(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer:
        for i in range(3):
            await producer.send(Message(topic, b"old%d" % i))
        await asyncio.sleep(0.5)  # 4.9.7 returns the message with the nearest store time
        between = CLOCK.now_ms()
        await asyncio.sleep(0.01)
        for i in range(2):
            await producer.send(Message(topic, b"new%d" % i))
        everything = [b"old0", b"old1", b"old2", b"new0", b"new1"]
        wanted = {
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: everything,
            ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: [b"new0", b"new1"],
        }
        for where, expected in wanted.items():
            group = fresh("G")
            seen: list[bytes] = []
            consumer = PushConsumer(group, namesrv, consume_from_where=where, consume_timestamp_ms=between)
            consumer.subscribe(topic, handler=lambda message, seen=seen: seen.append(message.body))
            async with consumer:
                await until_async(lambda seen=seen, expected=expected: len(seen) >= len(expected), "it came")
            assert sorted(seen) == sorted(expected)


@check
async def iterating_consumes_what_was_passed(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")

    def member() -> PushConsumer:
        consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
        consumer.subscribe(topic)
        return consumer

    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 10)
    seen: list[bytes] = []
    async with member() as consumer:
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 4:
                break

    async def stop_at_six() -> None:
        async with member() as consumer:
            async for message in consumer:
                seen.append(message.body)
                if message.body == b"6":
                    raise RuntimeError("stop at 6")

    with pytest.raises(RuntimeError, match="stop at 6"):
        await stop_at_six()
    assert seen == [b"%d" % i for i in range(7)]
    async with member() as consumer:
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 11:
                break
    # 7, 8 and 9 follow, and 6 is repeated, with its attempt count.
    assert sorted(seen[7:]) == [b"6", b"7", b"8", b"9"]
    async with Admin(namesrv) as admin:
        assert (await admin.groups.lag(group)).total == 0


@check
async def batches_reach_a_handler_as_lists(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    sizes: list[int] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, consume_message_batch_max_size=10)

    @consumer.on(topic)
    async def consume(messages) -> None:
        sizes.append(len(messages))

    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % i) for i in range(64)])
        async with consumer:
            await until_async(lambda: sum(sizes) == 64, "all came")
    assert max(sizes) == 10


@check
async def a_topic_may_come_after_its_consumer(namesrv: str, folder: Path) -> None:
    topic, group = fresh("late"), fresh("G")
    seen: list[bytes] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
    async with consumer, Producer(fresh("P"), namesrv) as producer:
        await asyncio.sleep(0.2)
        await send_numbers(producer, topic, 20)
        await until_async(lambda: len(seen) == 20, "the new topic is consumed")


@check
async def a_slow_handler_bounds_what_is_pulled(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    gate = asyncio.Event()
    seen = 0
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, pull_threshold_for_queue=50, pull_batch_size=16)

    @consumer.on(topic)
    async def consume(message) -> None:
        nonlocal seen
        await gate.wait()
        seen += 1

    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % i) for i in range(400)])
        async with consumer:
            cached = lambda: max((i.cached_msg_count for i in consumer.running_info().mq_table.values()), default=0)  # noqa: E731
            await until_async(lambda: cached() > 50, "the limit is passed once")
            await asyncio.sleep(0.3)
            assert cached() <= 50 + 32
            gate.set()
            await until_async(lambda: seen == 400, "the rest follows")


@check
async def a_message_that_takes_too_long_is_sent_back(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    tries: list[int] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, consume_timeout_ms=200)

    @consumer.on(topic)
    async def consume(message) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            await asyncio.sleep(60)

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await producer.send(Message(topic, b"slow"))
        await until_async(lambda: tries == [0, 1], "it came again")


@check
async def a_lost_connection_is_replaced(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: set[bytes] = set()
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=lambda message: seen.add(message.body))
    async with Producer(fresh("P"), namesrv) as producer, consumer, Admin(namesrv) as admin:
        await producer.send(Message(topic, b"before"))
        await until_async(lambda: seen == {b"before"}, "it works")
        for client in (producer, consumer):
            for address in client.instance.routes.addresses():
                connection = client.instance.remoting.connected(address)
                if connection is not None:
                    connection.abort()
        await producer.send(Message(topic, b"after"))
        await until_async(lambda: seen == {b"before", b"after"}, "it works again")
        members = await admin.groups.connections(group)
        assert members is not None
        assert [c.client_id for c in members.connection_set] == [consumer.instance.client_id]


@check
async def a_dead_name_server_is_passed_over(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv)
    for order in (f"127.0.0.1:9;{namesrv}", f"{namesrv};127.0.0.1:9"):
        async with Producer(fresh("P"), order) as producer:
            assert (await producer.send(Message(topic, b"x"))).status is SendStatus.SEND_OK
    async with Producer(fresh("P"), "127.0.0.1:9") as producer:
        with pytest.raises(ConnectFailed, match=r"no name server answers: .*127\.0\.0\.1:9"):
            await producer.send(Message(topic, b"x"))


@check
async def an_instance_can_be_shared(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: list[bytes] = []
    async with ClientInstance(namesrv) as instance:
        consumer = PushConsumer(group, instance=instance, consume_from_where=FIRST)
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with Producer(group, instance=instance) as producer, consumer, Admin(instance=instance) as admin:
            await producer.send(Message(topic, b"x"))
            await until_async(lambda: seen == [b"x"], "it came")
            assert topic in await admin.topics.names()
            with pytest.raises(ClientError, match="has a producer of group"):
                await Producer(group, instance=instance).start()
            with pytest.raises(ClientError, match="has a consumer of group"):
                await PushConsumer(group, instance=instance).start()


# --- polling ---------------------------------------------------------------------------------------------------------


@check
async def polling_keeps_a_position_per_queue(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 100)
    async with PullConsumer(group, namesrv, consume_from_where=FIRST, auto_commit=False) as consumer:
        queues = await consumer.queues(topic)
        with pytest.raises(ClientError, match="subscribe or assign first"):
            await consumer.poll(0)
        consumer.assign(queues)
        seen: list[bytes] = []
        while len(seen) < 100:
            polled = await consumer.poll(10_000)
            assert polled
            seen += [message.body for message in polled]
        assert sorted(map(int, seen)) == list(range(100))
        assert await consumer.poll(100) == []
        assert [await consumer.position(queue) for queue in queues] == [50, 50]
        await consumer.seek(queues[0], 45)
        again = await consumer.poll(10_000)
        assert [m.queue_offset for m in again] == [45, 46, 47, 48, 49]
        await consumer.seek_to_begin(queues[1])
        assert (await consumer.poll(10_000))[0].queue_offset == 0
        await consumer.seek_to_end(queues[1])
        await consumer.commit()
        assert [await consumer.committed(queue) for queue in queues] == [50, 50]
        await consumer.seek(queues[0], 10)
        await consumer.commit()
    async with PullConsumer(group, namesrv) as consumer:
        consumer.assign([queues[0]])
        assert (await consumer.poll(10_000))[0].queue_offset == 10


@check
async def stopping_commits_what_polls_returned(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % i) for i in range(20)])
    async with PullConsumer(group, namesrv, consume_from_where=FIRST, pull_batch_size=8) as consumer:
        (queue,) = await consumer.queues(topic)
        consumer.assign([queue])
        first = await consumer.poll(10_000)
    async with PullConsumer(group, namesrv) as consumer:
        assert await consumer.committed(queue) == first[-1].queue_offset + 1


# --- admin -----------------------------------------------------------------------------------------------------------


@check
async def topics_are_made_changed_and_deleted(namesrv: str, folder: Path) -> None:
    topic = fresh("T")
    async with Admin(namesrv) as admin:
        assert not await admin.topics.exists(topic)
        with pytest.raises(ClientError, match="does not exist"):
            await admin.topics.route(topic)
        (address,) = await admin.topics.create(topic, read_queue_nums=3, write_queue_nums=2)
        assert address in (await admin.cluster.masters()).values()
        assert topic in await admin.topics.names()
        (cluster,) = await admin.topics.clusters(topic)
        assert topic in await admin.topics.names(cluster=cluster)
        (config,) = (await admin.topics.config(topic)).values()
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 2, 6)
        described = await admin.topics.describe(topic)
        assert sorted(queue.queue_id for queue in described.offsets) == [0, 1, 2]
        assert described.message_count == 0
        (updated,) = (await admin.topics.update(topic, write_queue_nums=3)).values()
        assert (updated.read_queue_nums, updated.write_queue_nums) == (3, 3)
        async with Producer(fresh("P"), namesrv) as producer:
            await send_numbers(producer, topic, 6)
        stats = await admin.topics.stats(topic)
        assert [(o.min_offset, o.max_offset) for o in stats.offset_table.values()] == [(0, 2)] * 3
        await admin.topics.update(topic, perm=4)
        async with Producer(fresh("P"), namesrv) as producer:
            with pytest.raises(ClientError, match="no queue that can be written"):
                await producer.send(Message(topic, b"x"))
        await admin.topics.delete(topic)
        await until_async(lambda: is_gone(admin, topic), "the topic is gone")
        await admin.topics.delete(topic)
        with pytest.raises(ClientError, match="belongs to the system"):
            await admin.topics.create("TBW102")
        with pytest.raises(ClientError, match="knows no cluster nowhere"):
            await admin.topics.create(fresh("T"), cluster="nowhere")


async def is_gone(admin: Admin, topic: str) -> bool:
    return not await admin.topics.exists(topic)


@check
async def groups_are_made_changed_and_deleted(namesrv: str, folder: Path) -> None:
    group = fresh("G")
    async with Admin(namesrv) as admin:
        await admin.groups.create(group, retry_max_times=3)
        assert group in await admin.groups.names()
        (config,) = (await admin.groups.config(group)).values()
        assert config.retry_max_times == 3
        (changed,) = (await admin.groups.update(group, consume_enable=False)).values()
        assert (changed.retry_max_times, changed.consume_enable) == (3, False)
        assert await admin.groups.connections(group) is None
        await admin.groups.delete(group)
        assert group not in await admin.groups.names()


@check
async def offsets_are_reset_with_and_without_members(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    async with Producer(fresh("P"), namesrv) as producer, Admin(namesrv) as admin:
        await send_numbers(producer, topic, 40)
        await read_all(namesrv, topic, 40)
        await admin.groups.create(group)
        with pytest.raises(ClientError, match="give one of"):
            await admin.groups.reset(group, topic)
        dry = await admin.groups.reset(group, topic, to_latest=True, dry_run=True)
        assert [change.after for change in dry] == [20, 20]
        await admin.groups.reset(group, topic, to_offset=5)
        lag = await admin.groups.lag(group, topic)
        assert ([entry.consumer_offset for entry in lag.queues], lag.total) == ([5, 5], 30)
        queue = dry[0].queue
        (one,) = await admin.groups.reset(group, topic, to_latest=True, queues=[queue])
        assert (one.before, one.after) == (5, 20)
        assert (await admin.groups.lag(group, topic)).total == 15
        changes = await admin.groups.reset(group, topic, to_earliest=True)
        assert [(c.before, c.after) for c in changes] == [(20, 0), (5, 0)]

        seen: Counter[bytes] = Counter()
        consumer = PushConsumer(group, namesrv, broker_suspend_max_time_ms=1_000)
        consumer.subscribe(topic, handler=lambda message: seen.update([message.body]))
        async with consumer:
            await until_async(lambda: len(seen) == 40, "an offline reset took effect")
            await admin.groups.reset(group, topic, to_offset=18)
            await until_async(lambda: sum(seen.values()) == 44, "a reset of connected members took effect", within_s=40)
            lag = await admin.groups.lag(group, topic, clients=True)
            assert {entry.client_id for entry in lag.queues} == {consumer.instance.client_id}
            # Each queue goes to an offset of its own, like in an undo.
            again = {dry[0].queue: 15, dry[1].queue: 17}
            await admin.groups.reset(group, topic, to_offsets=again)
            await until_async(lambda: sum(seen.values()) == 52, "connected members moved by queue", within_s=40)


@check
async def members_answer_what_brokers_ask(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, "a", lambda message: None)
    async with Admin(namesrv) as admin, consumer:
        await until_async(lambda: len(consumer.assignment) >= 2, "it has its queues")
        members = await admin.groups.connections(group)
        assert members is not None
        assert [c.language for c in members.connection_set] == ["PYTHON"]
        assert members.subscription_table[topic].sub_string == "a"
        client_id = consumer.instance.client_id
        info = await admin.groups.running_info(group, client_id, stack=True)
        assert {queue.topic for queue in info.mq_table} >= {topic}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "running_info" in (info.jstack or "")


@check
async def members_consume_single_messages_on_demand(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    direct: list[bytes] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)

    @consumer.on(topic, "a")
    async def consume(message) -> None:
        direct.append(message.body)
        if message.body == b"bad":
            raise ValueError("refused")

    async with Producer(fresh("P"), namesrv) as producer, Admin(namesrv) as admin, consumer:
        good = await producer.send(Message(topic, b"good", tags="b"))
        bad = await producer.send(Message(topic, b"bad", tags="b"))
        await until_async(lambda: len(consumer.assignment) >= 2, "it has its queues")
        client_id = consumer.instance.client_id
        result = await admin.groups.consume_directly(group, client_id, good.offset_msg_id, topic)
        assert result.consume_result == "CR_SUCCESS"
        result = await admin.groups.consume_directly(group, client_id, bad.offset_msg_id, topic)
        assert (result.consume_result, result.remark) == ("CR_THROW_EXCEPTION", "ValueError: refused")
        assert direct == [b"good", b"bad"]


@check
async def messages_are_found_by_id_key_and_position(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    async with Producer(fresh("P"), namesrv) as producer, Admin(namesrv) as admin:
        results = [await producer.send(Message(topic, b"%d" % i, keys=["all", f"k{i}"])) for i in range(20)]
        await until_async(lambda: is_indexed(admin, topic, "all", 20), "the index holds them", within_s=5)
        for i, result in enumerate(results):
            assert (await admin.messages.view(topic, result.offset_msg_id)).body == b"%d" % i
            found = await admin.messages.by_offset(result.queue, result.queue_offset)
            assert found is not None
            assert found.body == b"%d" % i
        assert (await admin.messages.view(topic, results[7].msg_id)).body == b"7"
        assert [m.body for m in await admin.messages.by_key(topic, "k3")] == [b"3"]
        assert await admin.messages.by_key(topic, "absent") == []
        assert await admin.messages.by_unique_key(topic, "absent") is None
        assert await admin.messages.by_offset(results[0].queue, 1_000) is None
        with pytest.raises(ClientError, match="no message with id nonsense"):
            await admin.messages.view(topic, "nonsense")
        with pytest.raises(ProtocolError, match="is not 32"):
            await admin.messages.by_offset_id("nonsense")
        with pytest.raises(ClientError, match="does not exist"):
            await admin.messages.by_key(fresh("none"), "k")


async def is_indexed(admin: Admin, topic: str, key: str, count: int) -> bool:
    return len(await admin.messages.by_key(topic, key)) == count


@check
async def clusters_tell_about_themselves(namesrv: str, folder: Path) -> None:
    async with Admin(namesrv) as admin:
        (cluster,) = await admin.cluster.names()
        status, *slaves = await admin.cluster.status(cluster)
        assert [one.role for one in slaves] == ["slave"] * len(slaves)
        assert (status.cluster, status.broker_id, status.error) == (cluster, 0, None)
        assert status.version.startswith("V")
        assert 0 <= status.disk_ratio <= 1
        config = await admin.cluster.broker_config(status.address)
        assert config["brokerName"] == status.broker_name
        await admin.cluster.put_kv("contract", "k", "v")
        assert await admin.cluster.get_kv("contract", "k") == "v"
        await admin.cluster.delete_kv("contract", "k")
        assert await admin.cluster.get_kv("contract", "k") is None
        assert list(await admin.cluster.namesrv_config()) == admin.cluster.name_servers
