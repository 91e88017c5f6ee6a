"""Start positions of new groups, as checks that run against any server with RocketMQ's protocol.

`client_suite.py` lists the servers. Brokers before 5.0 ignore the flag that requests committed offsets only. So each
check also proves with them that a group begins at the configured position, and that the client does not treat a
committed offset 0 as missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from client_suite import CLOCK, Checks, fresh, make_topic, queues_of, send_numbers

from tianzhou import ConsumeFromWhere, Message, MessageModel, MessageQueue, Producer, PullConsumer, PushConsumer, sync
from tianzhou.admin import Admin
from tianzhou.model import MessageExt
from waiting import until_async

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
AT_TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

CHECKS = check = Checks()


async def _make_group(namesrv: str, group: str | None = None) -> str:
    """Create a group at the broker, so that clients can commit its offsets, and return its name."""
    made = group or fresh("G")
    async with Admin(namesrv) as admin:
        await admin.groups.create(made)
    return made


async def _until_readable(reader: PullConsumer, queue: MessageQueue) -> None:
    """Wait until a queue has a message. Brokers before 5.0 answer a send before they write the queue's unit."""

    async def holds() -> bool:
        return await reader.max_offset(queue) > 0

    await until_async(holds, f"{queue} holds a message")


async def _pushed(
    group: str, namesrv: str, topic: str, then: Callable[[], Awaitable[None]], last: bytes, **options: Any
) -> list[bytes]:
    """Return the bodies that a push consumer gets until `last`; `then` runs once the consumer has its queues."""
    seen: list[bytes] = []

    async def note(message: MessageExt) -> None:
        # Handlers in threads may end in another order than they began.
        seen.append(message.body)

    consumer = PushConsumer(group, namesrv, **options)
    consumer.subscribe(topic, handler=note)
    async with consumer:
        await until_async(lambda: any(queue.topic == topic for queue in consumer.assignment), "it has its queue")
        await then()
        await until_async(lambda: last in seen, "the last message came")
    return seen


async def _polled(
    group: str,
    namesrv: str,
    topic: str,
    then: Callable[[], Awaitable[None]],
    last: bytes,
    *,
    assigned: bool,
    **options: Any,
) -> list[bytes]:
    """Return the bodies that a pull consumer polls until `last`; `then` runs once the consumer has its queues."""
    seen: list[bytes] = []
    async with PullConsumer(group, namesrv, **options) as consumer:
        if assigned:
            consumer.assign(await consumer.queues(topic))
        else:
            consumer.subscribe(topic)
        seen += [message.body for message in await consumer.poll(2_000)]
        await then()
        while last not in seen:
            seen += [message.body for message in await consumer.poll(2_000)]
    return seen


async def _all_ways(
    namesrv: str, folder: Path, topic: str, then: Callable[[], Awaitable[None]], last: bytes, **options: Any
) -> dict[str, list[bytes]]:
    """Return the bodies that a new group of each kind gets until `last`."""
    broadcast = {"message_model": MessageModel.BROADCASTING, "local_offset_dir": folder}
    return {
        "push": await _pushed(fresh("G"), namesrv, topic, then, last, **options),
        "orderly": await _pushed(fresh("G"), namesrv, topic, then, last, orderly=True, **options),
        "broadcast": await _pushed(fresh("G"), namesrv, topic, then, last, **broadcast, **options),
        "poll": await _polled(fresh("G"), namesrv, topic, then, last, assigned=False, **options),
        "assigned": await _polled(fresh("G"), namesrv, topic, then, last, assigned=True, **options),
    }


@check
async def a_new_group_on_a_young_topic_begins_at_the_end_when_told_so(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 5)

        async def send_later() -> None:
            await producer.send(Message(topic, b"later"))

        found = await _all_ways(namesrv, folder, topic, send_later, b"later", consume_from_where=LAST)
    assert found == {key: [b"later"] for key in found}


@check
async def a_new_group_on_a_young_topic_begins_at_a_time_when_told_so(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 3)
        await asyncio.sleep(0.5)  # 4.9.7 returns the message with the nearest store time
        between_ms = CLOCK.now_ms()
        await asyncio.sleep(0.01)  # store times are whole milliseconds
        await send_numbers(producer, topic, 3, 6)

    async def do_nothing() -> None:
        pass

    at = {"consume_from_where": AT_TIME, "consume_timestamp_ms": between_ms}
    found = await _all_ways(namesrv, folder, topic, do_nothing, b"5", **at)
    assert found == {key: [b"3", b"4", b"5"] for key in found}
    history = await _all_ways(namesrv, folder, topic, do_nothing, b"5", consume_from_where=AT_TIME)
    assert history == {key: [b"%d" % number for number in range(6)] for key in history}


@check
async def a_new_group_without_a_wish_begins_where_the_broker_says(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    everything = [b"%d" % number for number in range(5)]

    async def do_nothing() -> None:
        pass

    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 5)
    assert await _pushed(fresh("G"), namesrv, topic, do_nothing, b"4") == everything
    assert await _polled(fresh("G"), namesrv, topic, do_nothing, b"4", assigned=False) == everything
    assert await _pushed(fresh("G"), namesrv, topic, do_nothing, b"4", consume_from_where=FIRST) == everything


@check
async def a_committed_offset_0_counts_more_than_a_wish(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), await _make_group(namesrv)
    async with PullConsumer(group, namesrv, consume_from_where=LAST) as reader:
        first, second = sorted(await reader.queues(topic))
        assert [await reader.committed(first), await reader.committed(second)] in ([None, None], [0, 0])
        async with Producer(fresh("P"), namesrv) as producer:
            for queue in (first, second):
                await producer.send(Message(topic, b"%d" % queue.queue_id), queue=queue)
                await _until_readable(reader, queue)
        assert [await reader.committed(first), await reader.committed(second)] == [None, None]
        await reader.commit_offsets({first: 0})
        assert [await reader.committed(first), await reader.committed(second)] == [0, None]
        reader.assign([first, second])
        assert [message.body for message in await reader.poll(5_000)] == [b"0"]


@check
async def a_wish_is_honoured_inside_a_namespace(namesrv: str, folder: Path) -> None:
    space, topic, group = fresh("N"), fresh("T"), fresh("G")
    await _make_group(namesrv, f"{space}%{group}")
    async with Producer(fresh("P"), namesrv, namespace=space) as producer:
        queue = (await producer.send(Message(topic, b"old"))).queue
        async with PullConsumer(group, namesrv, namespace=space, consume_from_where=LAST) as reader:
            # The send has created the topic, and Apache's broker registers the topic after its reply.
            assert queue in await queues_of(reader, topic)
            await _until_readable(reader, queue)
            assert await reader.committed(queue) is None
            await reader.commit_offsets({queue: 0})
            assert await reader.committed(queue) == 0


@check
async def a_blocking_consumer_honours_the_wish(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 5)

    def consume() -> list[bytes]:
        with sync.PullConsumer(fresh("G"), namesrv, consume_from_where=LAST) as reader:
            reader.assign(reader.queues(topic))
            found = list(reader.poll(1_000))
            with sync.Producer(fresh("P"), namesrv) as producer:
                producer.send(Message(topic, b"later"))
            while not found:
                found += reader.poll(2_000)
        return [message.body for message in found]

    assert await asyncio.to_thread(consume) == [b"later"]
