"""The guarantees of our consumers beyond `client_suite`: order, batches, changes at run time, shared polling.

The checks run in the same way and against the same servers; both suites together are the whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from client_suite import CLOCK, FIRST, Checks, fresh, lag_of, make_topic, read_all, send_numbers

from tianzhou import ConsumeResult, Message, MessageModel, Producer, PullConsumer, PushConsumer
from tianzhou.admin import Admin
from tianzhou.client import ByCircle, ConsistentHash, ConsumeContext, PullSchedule
from tianzhou.errors import BrokerError, ClientError, ConfigError
from tianzhou.wire.codes import ResponseCode
from waiting import until_async

CHECKS = check = Checks()
SUSPEND = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT


async def send_in_order(producer: Producer, topic: str, first: int, count: int, queues: int = 4) -> None:
    """Send numbered messages, `count` to each queue; its body is `queue:number`."""
    all_queues = [queue for queue in await producer.queues(topic) if queue.queue_id < queues]
    await asyncio.gather(*(_send_to(producer, queue, first, count) for queue in all_queues))


async def _send_to(producer: Producer, queue, first: int, count: int) -> None:
    for number in range(first, first + count):
        await _send_patiently(producer, Message(queue.topic, b"%d:%d" % (queue.queue_id, number)), queue)


async def _send_patiently(producer: Producer, message: Message, queue) -> None:
    for _ in range(50):
        try:
            await producer.send(message, queue)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_BUSY:
                raise
            await asyncio.sleep(0.2)  # Apache's broker refuses sends that waited for 200 ms, as on a loaded machine
        else:
            return
    raise AssertionError(f"{queue} stays busy")


class Notes:
    """The calls of orderly handlers, and whether two ever ran on one queue."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.at_work: Counter[int] = Counter()
        self.overlaps: list[int] = []

    def begin(self, message) -> int:
        queue_id = message.queue_id
        if self.at_work[queue_id]:
            self.overlaps.append(queue_id)
        self.at_work[queue_id] += 1
        return queue_id

    def end(self, message) -> None:
        self.at_work[message.queue_id] -= 1
        self.seen[message.queue_id].append(int(message.body.split(b":")[1]))

    @property
    def total(self) -> int:
        return sum(map(len, self.seen.values()))

    @property
    def distinct(self) -> int:
        return sum(len(set(numbers)) for numbers in self.seen.values())

    def check_in_order(self, queues: int, count: int, repeats: int) -> None:
        """Check that no message was overtaken; a few may be repeated at a change of owners."""
        assert self.overlaps == []
        for queue, numbers in self.seen.items():
            latest = -1
            for number in numbers:
                assert number <= latest + 1, f"queue {queue}: {number} overtakes {latest + 1}"
                latest = max(latest, number)
            assert latest == count - 1
        assert len(self.seen) == queues
        assert self.total - self.distinct <= repeats, f"{self.total - self.distinct} repeated"

    def check_each_once_in_order(self, queues: int, count: int) -> None:
        assert self.overlaps == []
        assert {queue: numbers for queue, numbers in self.seen.items() if numbers != list(range(count))} == {}
        assert len(self.seen) == queues


def orderly(group: str, namesrv: str, topic: str, notes: Notes, pause_s: float = 0.0, **options) -> PushConsumer:
    consumer = PushConsumer(group, namesrv, orderly=True, consume_from_where=FIRST, **options)

    @consumer.on(topic)
    async def consume(message) -> None:
        notes.begin(message)
        if pause_s:
            await asyncio.sleep(pause_s)
        notes.end(message)

    return consumer


def done_with(consumer: PushConsumer, topic: str) -> int:
    """Return the number of messages of a topic that are consumed or skipped, from the beginning of its queues."""
    table = consumer.running_info().mq_table
    return sum(entry.commit_offset for queue, entry in table.items() if queue.topic == topic)


def owned(consumer: PushConsumer, topic: str) -> list:
    return [queue for queue in consumer.assignment if queue.topic == topic]


# --- in order --------------------------------------------------------------------------------------------------------


@check
async def orderly_queues_are_consumed_one_message_after_the_other(namesrv: str, folder: Path) -> None:
    topic, group, notes = await make_topic(namesrv), fresh("G"), Notes()
    async with Producer(fresh("P"), namesrv) as producer, orderly(group, namesrv, topic, notes, 0.001) as consumer:
        await send_in_order(producer, topic, 0, 60)
        await until_async(lambda: notes.total == 240, "all are consumed")
        info = consumer.running_info()
        assert info.properties["PROP_CONSUMEORDERLY"] == "true"
        of_topic = [entry for queue, entry in info.mq_table.items() if queue.topic == topic]
        assert [entry.locked for entry in of_topic] == [True] * 4
        assert all(abs(CLOCK.now_ms() - entry.last_lock_timestamp) < 60_000 for entry in of_topic)
    notes.check_each_once_in_order(4, 60)
    async with Admin(namesrv) as admin:
        assert await lag_of(admin, group, topic)


@check
async def an_orderly_failure_holds_its_queue_and_no_other(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: dict[int, list[tuple[bytes, int]]] = {0: [], 1: []}
    times: list[float] = []
    consumer = PushConsumer(group, namesrv, orderly=True, consume_from_where=FIRST, suspend_current_queue_time_ms=200)

    @consumer.on(topic)
    def consume(message, context: ConsumeContext):
        assert context.queue.queue_id == message.queue_id
        seen[message.queue_id].append((message.body, message.reconsume_times))
        if message.body == b"0:1" and message.reconsume_times < 3:
            times.append(CLOCK.monotonic())
            if message.reconsume_times == 0:
                raise ValueError("not now")
            context.suspend_ms = 50
            return SUSPEND
        return None

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await send_in_order(producer, topic, 0, 5, 2)
        await until_async(lambda: len(seen[0]) == 8 and len(seen[1]) == 5, "all are consumed")
    assert seen[0] == [(b"0:0", 0), *[(b"0:1", i) for i in range(4)], (b"0:2", 0), (b"0:3", 0), (b"0:4", 0)]
    assert seen[1] == [(b"1:%d" % i, 0) for i in range(5)]
    assert times[1] - times[0] >= 0.19
    assert 0.045 <= times[2] - times[1] < 0.19


@check
async def what_fails_too_often_in_order_becomes_a_dead_letter(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    seen: list[bytes] = []
    consumer = PushConsumer(
        group,
        namesrv,
        orderly=True,
        consume_from_where=FIRST,
        max_reconsume_times=2,
        suspend_current_queue_time_ms=10,
    )

    @consumer.on(topic)
    async def consume(message):
        seen.append(message.body)
        return SUSPEND if message.body == b"poison" else None

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        for body in (b"one", b"poison", b"two"):
            sent = await producer.send(Message(topic, body))
            if body == b"poison":
                poison = sent
        await until_async(lambda: b"two" in seen, "what follows is consumed")
        async with Admin(namesrv) as admin:
            await until_async(lambda: admin.topics.exists(f"%DLQ%{group}"), "there are dead letters")
            await until_async(lambda: lag_of(admin, group, topic), "nothing is left")
        (dead,) = await read_all(namesrv, f"%DLQ%{group}", 1)
    assert seen == [b"one", *[b"poison"] * 3, b"two"]
    assert (dead.body, dead.msg_id) == (b"poison", poison.msg_id)
    assert dead.properties["RETRY_TOPIC"] == topic


@check
async def an_orderly_handler_may_commit_by_itself(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    seen: list[tuple[int, int]] = []
    rolled_back = False
    consumer = PushConsumer(group, namesrv, orderly=True, consume_from_where=FIRST)

    @consumer.on(topic)
    async def consume(message, context):
        nonlocal rolled_back
        context.auto_commit = False
        context.suspend_ms = 10
        number = int(message.body)
        seen.append((number, message.reconsume_times))
        if number == 2:
            return ConsumeResult.COMMIT
        if number == 5 and not rolled_back:
            rolled_back = True
            return ConsumeResult.ROLLBACK
        return ConsumeResult.SUCCESS

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await send_numbers(producer, topic, 7)
        await until_async(lambda: len(seen) == 10, "all were seen")
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    async with PullConsumer(group, namesrv) as reader:
        (queue,) = await reader.queues(topic)
        assert await reader.committed(queue) == 3


@check
async def batches_keep_their_order(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: dict[int, list[bytes]] = defaultdict(list)
    sizes: set[int] = set()
    failed = False
    consumer = PushConsumer(
        group, namesrv, orderly=True, consume_from_where=FIRST, consume_message_batch_max_size=8,
        suspend_current_queue_time_ms=10,
    )  # fmt: skip

    @consumer.on(topic)
    async def consume(messages) -> None:
        nonlocal failed
        assert len({message.queue_id for message in messages}) == 1
        if len(messages) > 1 and not failed:
            failed = True
            raise RuntimeError("the whole batch comes again")
        sizes.add(len(messages))
        seen[messages[0].queue_id] += [message.body for message in messages]

    async with Producer(fresh("P"), namesrv) as producer:
        await send_in_order(producer, topic, 0, 50, 2)
        async with consumer:
            await until_async(lambda: sum(map(len, seen.values())) == 100, "all are consumed")
    assert dict(seen) == {q: [b"%d:%d" % (q, i) for i in range(50)] for q in range(2)}
    assert max(sizes) == 8


@check
async def nothing_is_overtaken_when_orderly_members_come_and_go(namesrv: str, folder: Path) -> None:
    topic, group, notes = await make_topic(namesrv, 6), fresh("G"), Notes()

    def member() -> PushConsumer:
        return orderly(group, namesrv, topic, notes, 0.005, persist_consumer_offset_interval_ms=500)

    async with Producer(fresh("P"), namesrv) as producer:
        sending = asyncio.create_task(send_in_order(producer, topic, 0, 300, 6))
        async with member() as first:
            await until_async(lambda: len(owned(first, topic)) == 6, "the first has all queues")
            async with member() as second:
                await until_async(
                    lambda: len(owned(first, topic)) == len(owned(second, topic)) == 3, "both have three", within_s=10
                )
                async with member() as third:
                    await until_async(
                        lambda: [len(owned(m, topic)) for m in (first, second, third)] == [2, 2, 2],
                        "each has two",
                        within_s=10,
                    )
                    await asyncio.sleep(0.3)
                started = CLOCK.monotonic()
                await until_async(
                    lambda: len(owned(first, topic)) == len(owned(second, topic)) == 3, "two share again", within_s=10
                )
                assert CLOCK.monotonic() - started < 5
            started = CLOCK.monotonic()
            await until_async(lambda: len(owned(first, topic)) == 6, "the one that stays has all queues", within_s=10)
            assert CLOCK.monotonic() - started < 5
            await sending
            await until_async(lambda: notes.distinct == 1800, "all are consumed", within_s=60)
    # An offset that a loaded broker confirms late is stored too late for the next owner.
    notes.check_in_order(6, 300, repeats=12)


@check
async def a_clean_leave_frees_the_locks_at_once(namesrv: str, folder: Path) -> None:
    topic, group, notes = await make_topic(namesrv), fresh("G"), Notes()
    async with orderly(group, namesrv, topic, notes) as first:
        await until_async(lambda: len(owned(first, topic)) == 4, "the first has all queues")
    started = CLOCK.monotonic()
    async with Producer(fresh("P"), namesrv) as producer, orderly(group, namesrv, topic, notes) as second:
        await until_async(lambda: len(owned(second, topic)) == 4, "the next has all queues", within_s=5)
        await send_in_order(producer, topic, 0, 5)
        await until_async(lambda: notes.total == 20, "and consumes")
    assert CLOCK.monotonic() - started < 8
    notes.check_each_once_in_order(4, 5)


@check
async def iterating_in_order(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    seen: dict[int, list[int]] = {0: [], 1: []}
    async with Producer(fresh("P"), namesrv) as producer:
        await send_in_order(producer, topic, 0, 20, 2)

    def member() -> PushConsumer:
        consumer = PushConsumer(group, namesrv, orderly=True, consume_from_where=FIRST)
        consumer.subscribe(topic)
        return consumer

    async def stop_at_the_tenth() -> None:
        async with member() as consumer:
            async for message in consumer:
                if sum(map(len, seen.values())) == 10:
                    raise RuntimeError("this one comes again, first")
                seen[message.queue_id].append(int(message.body.split(b":")[1]))

    with pytest.raises(RuntimeError, match="comes again"):
        await stop_at_the_tenth()
    async with member() as consumer:
        async for message in consumer:
            seen[message.queue_id].append(int(message.body.split(b":")[1]))
            if sum(map(len, seen.values())) == 40:
                break
    assert seen == {0: list(range(20)), 1: list(range(20))}


@check
async def broadcast_in_order_needs_no_locks(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    notes = {"one": Notes(), "two": Notes()}

    def member(name: str) -> PushConsumer:
        return orderly(
            group, namesrv, topic, notes[name],
            message_model=MessageModel.BROADCASTING, local_offset_dir=folder, instance_name=name,
        )  # fmt: skip

    async with Producer(fresh("P"), namesrv) as producer, member("one") as one, member("two") as two:
        await until_async(lambda: len(one.assignment) == len(two.assignment) == 2, "both have all queues")
        await send_in_order(producer, topic, 0, 20, 2)
        await until_async(lambda: all(each.total == 40 for each in notes.values()), "both got all")
    for each in notes.values():
        each.check_each_once_in_order(2, 20)


# --- without an order ------------------------------------------------------------------------------------------------


@check
async def of_a_batch_only_what_failed_comes_again(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    first: list[bytes] = []
    again: list[bytes] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, consume_message_batch_max_size=10)

    @consumer.on(topic)
    async def consume(messages, context: ConsumeContext) -> ConsumeResult:
        if messages[0].reconsume_times:
            again.extend(message.body for message in messages)
        else:
            first.extend(message.body for message in messages)
            if b"4" in first and b"4" in [message.body for message in messages]:
                context.ack_index = [message.body for message in messages].index(b"4")
                context.delay_level = 1
        return ConsumeResult.SUCCESS

    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % i) for i in range(10)])
        async with consumer:
            await until_async(lambda: len(first) + len(again) == 15, "the second half came again")
    assert first == [b"%d" % i for i in range(10)]
    assert sorted(again) == [b"%d" % i for i in range(5, 10)]


@check
async def how_many_run_at_the_same_time_can_change(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    running = done = most = 0
    gate = asyncio.Event()
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, consume_concurrency=2)

    @consumer.on(topic)
    async def consume(message) -> None:
        nonlocal running, done, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        done += 1

    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(60)))
        await until_async(lambda: running == 2, "two run")
        consumer.change_concurrency(7)
        await until_async(lambda: running == 7, "seven run")
        consumer.change_concurrency(3)
        gate.set()
        await until_async(lambda: done >= 20, "they end")
        gate.clear()
        most = 0
        gate.set()
        await until_async(lambda: done == 60, "the rest follows")
        assert most <= 3
        assert consumer.consume_concurrency == 3
        assert consumer.running_info().properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
        with pytest.raises(ConfigError, match="1 to 1000"):
            consumer.change_concurrency(0)


@check
async def a_consumer_can_pause_and_go_on(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    seen: list[bytes] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, broker_suspend_max_time_ms=500)
    consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await producer.send(Message(topic, b"0"))
        await until_async(lambda: seen == [b"0"], "it consumes")
        consumer.suspend()
        await producer.send(Message(topic, b"1"))
        await asyncio.sleep(1.5)  # a pull in flight may have fetched this one
        await producer.send(Message(topic, b"2"))
        await asyncio.sleep(1.0)
        assert b"2" not in seen
        consumer.resume()
        await until_async(lambda: seen == [b"0", b"1", b"2"], "it goes on")


@check
async def topics_come_and_go_at_run_time(namesrv: str, folder: Path) -> None:
    one, two, group = await make_topic(namesrv, 2), await make_topic(namesrv, 2), fresh("G")
    seen: list[bytes] = []
    changes: list[tuple[str, int, int]] = []
    consumer = PushConsumer(
        group, namesrv, consume_from_where=FIRST,
        queues_changed=lambda topic, queues, ours: changes.append((topic, len(queues), len(ours))),
    )  # fmt: skip
    consumer.subscribe(one, handler=lambda message: seen.append(message.body))
    async with Producer(fresh("P"), namesrv) as producer, consumer:
        await until_async(lambda: len(owned(consumer, one)) == 2, "it has the first topic")
        consumer.subscribe(two, handler=lambda message: seen.append(message.body))
        await until_async(lambda: len(owned(consumer, two)) == 2, "it has the second, too")
        await producer.send(Message(two, b"two"))
        await until_async(lambda: seen == [b"two"], "it consumes the second")
        consumer.unsubscribe(one)
        await until_async(lambda: not owned(consumer, one), "it has given up the first")
        await producer.send(Message(one, b"one"))
        await producer.send(Message(two, b"two again"))
        await until_async(lambda: seen == [b"two", b"two again"], "only the second comes")
        async with Admin(namesrv) as admin:
            await consumer.instance.heartbeats.all()
            members = await admin.groups.connections(group)
            assert members is not None
            assert one not in members.subscription_table
    assert (one, 2, 2) in changes
    assert (two, 2, 2) in changes


@check
async def limits_may_hold_for_all_queues_together(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 4), fresh("G")
    gate = asyncio.Event()
    seen = 0
    consumer = PushConsumer(
        group, namesrv, consume_from_where=FIRST, pull_threshold_for_topic=100, pull_batch_size=8
    )  # fmt: skip

    @consumer.on(topic)
    async def consume(message) -> None:
        nonlocal seen
        await gate.wait()
        seen += 1

    async with Producer(fresh("P"), namesrv) as producer:
        await send_in_order(producer, topic, 0, 100)
        async with consumer:
            table = lambda: [e for q, e in consumer.running_info().mq_table.items() if q.topic == topic]  # noqa: E731
            await until_async(lambda: sum(e.cached_msg_count for e in table()) > 60, "it pulls")
            await asyncio.sleep(0.5)
            # 100 shared by five queues, the retry topic's among them: a queue pauses above 20.
            assert all(entry.cached_msg_count <= 20 + 32 for entry in table())
            gate.set()
            await until_async(lambda: seen == 400, "the rest follows")
            status = consumer.running_info().status_table[topic]
            assert status.consume_ok_tps > 0
            assert status.pull_tps > 0
            assert status.consume_failed_msgs == 0


@check
async def members_share_by_the_chosen_strategy(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 6)
    for strategy in (ByCircle(), ConsistentHash()):
        group = fresh("G")
        members = [
            PushConsumer(group, namesrv, consume_from_where=FIRST, allocate_message_queue_strategy=strategy)
            for _ in range(3)
        ]
        for member in members:
            member.subscribe(topic, handler=lambda message: None)
        async with members[0], members[1], members[2]:
            ids = sorted(member.instance.client_id for member in members)
            (reader,) = members[:1]
            queues = await reader.instance.queues_to_read(topic)

            def shared(strategy=strategy, members=members, ids=ids, queues=queues) -> bool:
                return all(
                    owned(member, topic) == sorted(strategy.allocate(member.instance.client_id, queues, ids))
                    for member in members
                )

            await until_async(shared, f"{strategy.name} is followed", within_s=15)
            assert members[0].running_info().properties["allocateMessageQueueStrategy"] == strategy.name


# --- polling in a group ----------------------------------------------------------------------------------------------


@check
async def polling_members_share_the_queues(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 4), fresh("G")
    seen: Counter[bytes] = Counter()

    def member() -> PullConsumer:
        consumer = PullConsumer(group, namesrv, consume_from_where=FIRST, auto_commit_interval_ms=1_000)
        consumer.subscribe(topic)
        return consumer

    async def poll_until(members: list[PullConsumer], total: int) -> None:
        deadline = CLOCK.monotonic() + 30
        while len(seen) < total:
            assert CLOCK.monotonic() < deadline, f"{len(seen)} of {total}"
            for consumer in members:
                seen.update([message.body for message in await consumer.poll(200)])

    async with Producer(fresh("P"), namesrv) as producer:
        async with member() as first:
            await until_async(lambda: len(first.assignment) == 4, "the first has all queues")
            await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(100)))
            await poll_until([first], 100)
            await first.commit()
            async with member() as second:
                await until_async(
                    lambda: len(first.assignment) == len(second.assignment) == 2, "both have two", within_s=10
                )
                assert not set(first.assignment) & set(second.assignment)
                await asyncio.gather(*(producer.send(Message(topic, b"%d" % i)) for i in range(100, 200)))
                await poll_until([first, second], 200)
            await until_async(lambda: len(first.assignment) == 4, "the one that stays has all again", within_s=10)
        async with Admin(namesrv) as admin:
            assert await lag_of(admin, group, topic)
    assert max(seen.values()) == 1


@check
async def queues_are_either_shared_or_assigned(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    async with PullConsumer(fresh("G"), namesrv) as consumer:
        consumer.subscribe(topic)
        with pytest.raises(ClientError, match="subscribes"):
            consumer.assign(await consumer.queues(topic))
        consumer.unsubscribe(topic)
        with pytest.raises(ClientError, match="subscribe or assign first"):
            await consumer.poll(10)
    async with PullConsumer(fresh("G"), namesrv) as consumer:
        consumer.assign(await consumer.queues(topic))
        with pytest.raises(ClientError, match="assigned by hand"):
            consumer.subscribe(topic)


@check
async def polling_filters_by_tag_and_begins_by_time(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")
    async with Producer(fresh("P"), namesrv) as producer, PullConsumer(group, namesrv) as consumer:
        for i in range(10):
            await producer.send(Message(topic, b"%d" % i, tags="ab"[i % 2]))
        await asyncio.sleep(0.05)
        between = CLOCK.now_ms()
        await asyncio.sleep(0.05)
        for i in range(10, 20):
            await producer.send(Message(topic, b"%d" % i, tags="ab"[i % 2]))
        consumer.subscribe(topic, "a")
        await until_async(lambda: len(consumer.assignment) == 1, "it has the queue")
        (queue,) = consumer.assignment

        async def polled(count: int) -> list[int]:
            found: list[int] = []
            for _ in range(20):
                if len(found) < count:
                    found += [int(message.body) for message in await consumer.poll(2_000)]
            return found

        await consumer.seek_to_begin(queue)
        assert await polled(10) == list(range(0, 20, 2))
        await consumer.seek_to_time(queue, between)
        assert await polled(5) == list(range(10, 20, 2))
        await consumer.seek(queue, 15)
        assert await polled(2) == [16, 18]
        await consumer.seek_to_end(queue)
        consumer.pause([queue])
        await producer.send(Message(topic, b"100", tags="a"))
        assert await consumer.poll(300) == []
        consumer.resume([queue])
        assert await polled(1) == [100]
        await consumer.commit([queue])
        assert await consumer.committed(queue) == 21


@check
async def changes_of_a_topics_queues_are_told(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 2)
    told: list[int] = []
    async with PullConsumer(fresh("G"), namesrv, topic_check_interval_ms=200) as consumer, Admin(namesrv) as admin:
        consumer.watch_queues(topic, lambda name, queues: told.append(len(queues)))
        await asyncio.sleep(0.6)
        assert told == []
        await admin.topics.update(topic, read_queue_nums=5, write_queue_nums=5)
        await until_async(lambda: told == [5], "the change is told")


@check
async def broadcast_polling_keeps_its_offsets_here(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 2), fresh("G")
    async with Producer(fresh("P"), namesrv) as producer:
        await send_numbers(producer, topic, 20)
    seen: list[bytes] = []
    for expected in (20, 0):
        consumer = PullConsumer(
            group, namesrv, consume_from_where=FIRST, message_model=MessageModel.BROADCASTING,
            local_offset_dir=folder, instance_name="one",
        )  # fmt: skip
        consumer.subscribe(topic)
        async with consumer:
            await until_async(lambda consumer=consumer: len(consumer.assignment) == 2, "it has all queues")
            before = len(seen)
            quiet_polls = 0
            while quiet_polls < 3:
                polled = await consumer.poll(300)
                seen += [message.body for message in polled]
                quiet_polls = quiet_polls + 1 if len(seen) - before >= expected and not polled else 0
            assert len(seen) - before == expected


@check
async def a_polled_message_is_sent_back_and_comes_again(namesrv: str, folder: Path) -> None:
    topic, group, seen = await make_topic(namesrv, 1), fresh("G"), []
    async with Producer(fresh("P"), namesrv) as producer:
        sent = await producer.send(Message(topic, b"later"))
    async with PullConsumer(group, namesrv) as puller:
        (message,) = (await puller.pull(sent.queue, sent.queue_offset)).messages
        consumer = PushConsumer(group, namesrv)
        consumer.subscribe(topic, handler=lambda m: seen.append((m.body, m.topic, m.reconsume_times)))
        async with consumer:
            await puller.send_back(message, 1)
            await until_async(lambda: (b"later", topic, 1) in seen, "it came again")
    with pytest.raises(ClientError, match="is stopped"):
        await puller.send_back(message)


# --- contents of messages, and filters in the client
# ---------------------------------------------------------------------


def bounds(message) -> tuple[int, int]:
    return int(message.properties["MIN_OFFSET"]), int(message.properties["MAX_OFFSET"])


@check
async def delivered_messages_say_where_their_queue_stands_and_when_they_began(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    began_ms = CLOCK.now_ms()
    async with Producer(fresh("P"), namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % i, properties={"n": str(i)}) for i in range(5)])
    await read_all(namesrv, topic, 5)
    seen: dict[str, list] = defaultdict(list)
    for kind, options in {"at will": {}, "in order": {"orderly": True}, "lists": {}}.items():
        size = 2 if kind == "lists" else 1
        consumer = PushConsumer(
            fresh("G"), namesrv, consume_from_where=FIRST, consume_message_batch_max_size=size, **options
        )
        take = seen[kind].extend if size > 1 else seen[kind].append
        consumer.subscribe(topic, handler=take)
        async with consumer:
            await until_async(lambda kind=kind: len(seen[kind]) == 5, f"all came {kind}")
    async with PushConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            seen["one by one"].append(message)
            if len(seen["one by one"]) == 5:
                break
    async with PullConsumer(fresh("G"), namesrv, consume_from_where=FIRST) as consumer:
        queues = await consumer.queues(topic)
        pulled = (await consumer.pull(queues[0], 0)).messages
        consumer.assign(queues)
        while len(seen["polled"]) < 5:
            seen["polled"] += await consumer.poll(1_000)
    now_ms = CLOCK.now_ms()
    assert len(seen) == 5
    for kind, messages in seen.items():
        for message in messages:
            assert bounds(message) == (0, 5), kind
            assert began_ms <= int(message.properties["CONSUME_START_TIME"]) <= now_ms, kind
            assert message.user_properties == {"n": message.body.decode()}
    assert [bounds(message) for message in pulled] == [(0, 5)] * 5
    assert "CONSUME_START_TIME" not in pulled[0].properties


@check
async def what_is_delivered_again_says_when_it_began_again(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    began: list[int] = []

    async def consume(message) -> ConsumeResult:
        began.append(int(message.properties["CONSUME_START_TIME"]))
        return SUSPEND if len(began) < 3 else ConsumeResult.SUCCESS

    consumer = PushConsumer(
        fresh("G"), namesrv, orderly=True, consume_from_where=FIRST, suspend_current_queue_time_ms=50
    )
    consumer.subscribe(topic, handler=consume)
    async with consumer, Producer(fresh("P"), namesrv) as producer:
        await producer.send(Message(topic, b"thrice"))
        await until_async(lambda: len(began) == 3, "it came thrice")
    assert all(later - earlier >= 40 for earlier, later in pairwise(began))


@check
async def filter_hooks_take_out_what_nobody_shall_get(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 1), fresh("G")

    def only_even(context) -> None:
        context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    def not_eight(context) -> None:
        assert context.group.startswith("G")
        assert context.queue.topic == topic
        for message in list(context.messages):
            if message.body == b"8":
                context.messages.remove(message)

    def broken(context) -> None:
        raise RuntimeError("a hook that fails")

    hooks = [only_even, broken, not_eight]
    seen: list[bytes] = []
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, filter_hooks=hooks)
    consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
    async with consumer, Producer(fresh("P"), namesrv) as producer:
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number))
        # Apache's queues have a message a little after its acknowledgement; the last ones have no messages for the
        # handler.
        await until_async(lambda: done_with(consumer, topic) == 10, "all are consumed or taken out")
    assert sorted(seen) == [b"0", b"2", b"4", b"6"]
    async with Admin(namesrv) as admin:
        assert await lag_of(admin, group, topic), "the end stores what was taken out, too"
    async with PullConsumer(fresh("G"), namesrv, consume_from_where=FIRST, filter_hooks=hooks) as reader:
        queues = await reader.queues(topic)
        assert [message.body for message in (await reader.pull(queues[0], 0)).messages] == [b"0", b"2", b"4", b"6"]
        reader.assign(queues)
        assert [message.body for message in await reader.poll(10_000)] == [b"0", b"2", b"4", b"6"]
        assert await reader.poll(100) == []


@check
async def each_pull_says_what_is_subscribed_to_when_that_is_wanted(namesrv: str, folder: Path) -> None:
    topic = await make_topic(namesrv, 1)
    for post in (True, False):
        seen, pulls = [], []

        def look(exchange, pulls=pulls) -> None:
            if exchange.request.code == 11:
                fields = exchange.request.fields
                pulls.append((fields["topic"], fields.get("subscription"), bool(int(fields["sysFlag"]) & 4)))

        consumer = PushConsumer(
            fresh("G"), namesrv, consume_from_where=FIRST, post_subscription_when_pull=post, rpc_hooks=[look]
        )
        consumer.subscribe(topic, "A || B", handler=lambda message, seen=seen: seen.append(message.tags))
        async with consumer, Producer(fresh("P"), namesrv) as producer:
            for tag in "ACB":
                await producer.send(Message(topic, b"x", tags=tag))
            expected = 2 if post else 4
            await until_async(lambda seen=seen, expected=expected: len(seen) == expected, "the wanted ones came")
            assert consumer.running_info().properties["postSubscriptionWhenPull"] == str(post).lower()
        assert set(seen) == {"A", "B"}
        told = {pull[1:] for pull in pulls if pull[0] == topic}
        assert told == {("A || B", True) if post else (None, False)}


@check
async def a_callback_pulls_each_of_our_queues_again_and_again(namesrv: str, folder: Path) -> None:
    topic, group = await make_topic(namesrv, 4), fresh("G")
    seen: Counter[bytes] = Counter()
    failed: set[int] = set()

    async def pull(queue, turn) -> None:
        if queue.queue_id not in failed:
            failed.add(queue.queue_id)
            raise ValueError("each queue's first call fails, and it goes on")
        at = await turn.consumer.committed(queue) or 0
        found = await turn.consumer.pull(queue, at, suspend_ms=200)
        seen.update([message.body for message in found.messages])
        await turn.consumer.commit_offsets({queue: found.next_offset})
        turn.next_delay_ms = 1

    def member() -> PullSchedule:
        schedule = PullSchedule(group, namesrv)
        schedule.register(topic, pull)
        return schedule

    async with Producer(fresh("P"), namesrv) as producer, member() as first:
        await until_async(lambda: len(first.assignment) == 4, "the first has all queues")
        await send_in_order(producer, topic, 0, 5)
        await until_async(lambda: len(seen) == 20, "all are seen")
        async with member() as second:
            await until_async(
                lambda: len(first.assignment) == len(second.assignment) == 2, "both have two", within_s=10
            )
            await send_in_order(producer, topic, 5, 5)
            await until_async(lambda: len(seen) == 40, "the others are seen")
        await until_async(lambda: len(first.assignment) == 4, "the one that stays has all again", within_s=10)
