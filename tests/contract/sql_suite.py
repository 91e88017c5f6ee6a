"""The guarantees of our consumers about SQL92 expressions, as checks against any server; see `client_suite`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from client_suite import FIRST, Checks, fresh, make_topic

from tianzhou import ConsumeResult, Message, Producer, PullConsumer, PullStatus, PushConsumer, sync
from tianzhou.client import ClientInstance
from tianzhou.client.cluster import rpc
from tianzhou.errors import BrokerError, ClientError
from tianzhou.model import MessageExt, SubscriptionData
from waiting import until_async

CHECKS = check = Checks()
QUIET_S = 0.3


async def send_numbers(namesrv: str, topic: str, numbers: range) -> None:
    """Send messages with their number as body and property; the even ones have tag a, the odd ones b."""
    async with Producer(fresh("P"), namesrv) as producer:
        for i in numbers:
            properties = {"n": str(i), "city": "São Paulo" if i % 3 else "東京"}
            await producer.send(Message(topic, b"%d" % i, tags="ab"[i % 2], properties=properties))


@check
async def sql_selects_by_properties(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: list[int] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=lambda m: seen.append(int(m.body)), sql="n BETWEEN 10 AND 20 AND TAGS = 'a'")
    async with consumer:
        await send_numbers(namesrv, topic, range(60))
        await until_async(lambda: len(seen) >= 6, "the selected ones came")
        await asyncio.sleep(QUIET_S)
    assert sorted(seen) == [10, 12, 14, 16, 18, 20]


@check
async def groups_select_different_things(namesrv: str, folder: Path) -> None:
    wishes: dict[str, Sequence[int]] = {
        "n < 5": range(5),
        "city = '東京' AND n IS NOT NULL": range(0, 30, 3),
        "city = 'São Paulo' AND NOT (n > 3)": [1, 2],
        "TAGS IN ('b', 'c') AND n >= 25": [25, 27, 29],
        "missing IS NULL AND n = 7": [7],
    }
    await _each_gets_its_own(namesrv, wishes)


@check
async def groups_select_by_parts_of_text(namesrv: str, folder: Path) -> None:
    wishes: dict[str, Sequence[int]] = {
        "city CONTAINS 'ão' AND NOT (n > 3)": [1, 2],
        "city STARTSWITH '東' AND n < 4": [0, 3],
        "city NOT ENDSWITH '京' AND n < 3": [1, 2],
    }
    await _each_gets_its_own(namesrv, wishes)


async def _each_gets_its_own(namesrv: str, wishes: Mapping[str, Sequence[int]]) -> None:
    topic = await make_topic(namesrv, 2)
    seen: dict[str, list[int]] = {sql: [] for sql in wishes}
    consumers = []
    for sql, numbers in seen.items():
        consumers.append(PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST))
        consumers[-1].subscribe(topic, handler=lambda m, numbers=numbers: numbers.append(int(m.body)), sql=sql)
    await send_numbers(namesrv, topic, range(30))
    for consumer in consumers:
        await consumer.start()
    try:
        await until_async(lambda: all(len(seen[sql]) >= len(wishes[sql]) for sql in wishes), "every group got its own")
        await asyncio.sleep(QUIET_S)
    finally:
        for consumer in consumers:
            await consumer.stop()
    assert {sql: sorted(numbers) for sql, numbers in seen.items()} == {sql: list(n) for sql, n in wishes.items()}


@check
async def selected_messages_are_retried(namesrv: str, folder: Path) -> None:
    topic, attempts = await make_topic(namesrv, 1), []

    def fail_once(message):
        attempts.append((int(message.body), message.reconsume_times))
        return None if message.reconsume_times else ConsumeResult.RECONSUME_LATER

    consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=fail_once, sql="n = 3")
    async with consumer:
        await send_numbers(namesrv, topic, range(6))
        await until_async(lambda: len(attempts) >= 2, "it came again")
    assert attempts == [(3, 0), (3, 1)]


@check
async def an_expression_can_be_replaced(namesrv: str, folder: Path) -> None:
    topic, seen = await make_topic(namesrv, 1), []

    async def note(message: MessageExt) -> None:
        # Handlers in threads may end in another order than they began.
        seen.append(int(message.body))

    consumer = PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic, handler=note, sql="n < 3")
    async with consumer:
        await send_numbers(namesrv, topic, range(10))
        await until_async(lambda: len(seen) >= 3, "the first choice came")
        await asyncio.sleep(QUIET_S)
        consumer.subscribe(topic, handler=note, sql="n > 17")
        await asyncio.sleep(QUIET_S)
        await send_numbers(namesrv, topic, range(10, 20))
        await until_async(lambda: len(seen) >= 5, "the second choice came")
        await asyncio.sleep(QUIET_S)
    assert seen == [0, 1, 2, 18, 19]


@check
async def pulls_bring_their_expression(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    await send_numbers(namesrv, topic, range(20))
    async with PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        found = await consumer.pull(queue, 0, sql="n BETWEEN 4 AND 6")
        assert (found.status, [int(m.body) for m in found.messages], found.next_offset) == (
            PullStatus.FOUND,
            [4, 5, 6],
            20,
        )
        none = await consumer.pull(queue, 0, sql="n > 100")
        assert (none.status, none.next_offset) == (PullStatus.NO_MATCHED_MSG, 20)


@check
async def polls_select(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    await send_numbers(namesrv, topic, range(30))

    async def poll(consumer: PullConsumer) -> list[int]:
        got: list[int] = []
        while len(got) < 5 and (messages := await consumer.poll(10_000)):
            got += [int(m.body) for m in messages]
        return sorted([*got, *[int(m.body) for m in await consumer.poll(QUIET_S * 1000)]])

    async with PullConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.assign(await consumer.queues(topic), sql="n >= 20 AND TAGS = 'b'")
        assert await poll(consumer) == [21, 23, 25, 27, 29]
    async with PullConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic, sql="n < 5")
        assert await poll(consumer) == [0, 1, 2, 3, 4]


@check
async def the_blocking_consumers_select(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    await send_numbers(namesrv, topic, range(10))

    def read() -> tuple[list[int], list[int]]:
        with sync.PullConsumer(fresh("G"), namesrv) as puller:
            (queue,) = puller.queues(topic)
            pulled = [int(m.body) for m in puller.pull(queue, 0, sql="n > 7").messages]
        with sync.PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as pusher:
            pusher.subscribe(topic, sql="n > 7")
            return pulled, [int(next(pusher).body) for _ in range(2)]

    assert await asyncio.to_thread(read) == ([8, 9], [8, 9])


@check
async def wrong_expressions_are_refused_before_anything_is_consumed(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    with pytest.raises(ClientError, match="ends at position 3"):
        PushConsumer(fresh("G"), namesrv).subscribe(topic, sql="n >")
    async with PullConsumer(fresh("G"), namesrv) as consumer:
        (queue,) = await consumer.queues(topic)
        with pytest.raises(ClientError, match="no closing quote"):
            await consumer.pull(queue, 0, sql="n = 'a")
    # Brokers also refuse expressions that our clients never send.
    async with ClientInstance(namesrv) as instance:
        address = await instance.any_broker_of(topic)
        assert address is not None
        for expression in ("n >", "", "n = 'a", "n IN (1)"):
            wish = SubscriptionData(topic, expression, expression_type="SQL92", sub_version=1)
            with pytest.raises(BrokerError, match="correct the filter expression"):
                await rpc.check_client_config(instance.remoting, address, "client", "G", wish)
