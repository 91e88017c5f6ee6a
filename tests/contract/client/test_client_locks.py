"""Orderly consumers with brokers that refuse, lose and drop locks."""

import asyncio

import pytest
from scripted import noting, one_broker, record, within

from tianzhou import PushConsumer
from tianzhou.client.consumer.push import assigned_queues, process_queue
from tianzhou.model import MessageQueue
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LOCKED_QUEUES
from tianzhou.wire.bodies.offsets import OFFSET_TABLE
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))


class Locks:
    """Grants and revokes locks as a test wants; records the requests."""

    def __init__(self, broker, *, grants=True) -> None:
        self.grants = grants
        self.locked: list[list[MessageQueue]] = []
        self.unlocked: list[MessageQueue] = []
        self.order: list[tuple[str, int]] = []
        broker.answers[41] = self._lock
        broker.answers[42] = self._unlock
        broker.offsets["T", 0] = 0
        self._broker = broker

    def _lock(self, command):
        asked = LOCK_REQUEST.loads(command.body)
        self.locked.append([queue for queue in asked.queues if queue.topic == "T"])
        granted = [queue for queue in asked.queues if self.grants or queue.topic != "T"]
        return command.reply(0, body=LOCKED_QUEUES.dumps(granted))

    def _unlock(self, command):
        self.unlocked += [queue for queue in LOCK_REQUEST.loads(command.body).queues if queue.topic == "T"]
        return command.reply(0)


def lose_the_queue(broker) -> None:
    """Let a member that sorts first take the only queue."""
    broker.consumer_ids.insert(0, "!")
    broker.connections[0].invoke_oneway(Command(40, fields=write_header(40, consumer_group="G")))


async def test_nothing_is_read_before_the_lock_and_all_is_freed_in_order_at_the_end(cluster, broker):
    locks = Locks(broker, grants=False)
    consumer, seen = noting(cluster, orderly=True)
    async with consumer:
        await until_async(lambda: len([one for one in locks.locked if one]) >= 2, "it asks again and again")
        assert not broker.pulls()
        assert MessageQueue("T", broker.name, 0) not in consumer.assignment
        # Our consumer begins at the offset that the other member stores before it releases the lock.
        broker.offsets["T", 0] = 7
        locks.grants = True
        await until_async(lambda: broker.pulls(), "it pulls")
        assert broker.pulls()[0].queue_offset == 7
        broker.deliver(record("T", 7), record("T", 8))
        await until_async(lambda: seen == [7, 8], "it consumes")
    assert broker.offsets["T", 0] == 9
    assert locks.unlocked == [MessageQueue("T", broker.name, 0)]
    codes = [code for code in broker.codes() if code in {15, 42, 35}]
    assert codes[-2:] == [42, 35]
    assert codes[-3] == 15


async def test_locks_are_renewed_together(monkeypatch):
    monkeypatch.setattr(assigned_queues, "LOCK_INTERVAL_S", 0.05)
    async with one_broker(queues=3) as (cluster, broker):
        locks = Locks(broker)
        broker.offsets |= {("T", i): 0 for i in range(3)}
        consumer, _ = noting(cluster, orderly=True)
        async with consumer:
            await until_async(lambda: len([one for one in locks.locked if len(one) == 3]) >= 3, "they are renewed")


async def test_a_lost_lock_begins_the_queue_again_and_never_two_handlers(cluster, broker, monkeypatch):
    monkeypatch.setattr(assigned_queues, "LOCK_INTERVAL_S", 0.05)
    locks = Locks(broker)
    consumer = PushConsumer("G", cluster.address, orderly=True)
    gate, seen, at_work = asyncio.Event(), [], 0

    @consumer.on("T")
    async def consume(message) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        seen.append(message.queue_offset)
        await gate.wait()
        at_work -= 1

    async with consumer:
        broker.deliver(record("T", 0), record("T", 1))
        await until_async(lambda: seen == [0], "it consumes")
        locks.grants = False
        await until_async(lambda: MessageQueue("T", broker.name, 0) not in consumer.assignment, "the lock is lost")
        broker.offsets["T", 0] = 5
        locks.grants = True
        await until_async(lambda: broker.pulls()[-1].queue_offset == 5, "it begins where the other has come to")
        broker.deliver(record("T", 5))
        await asyncio.sleep(0.1)
        assert seen == [0]
        gate.set()
        await until_async(lambda: seen == [0, 5], "only then the next handler begins")
    # A message in process when the lock was lost stores no offset.
    assert broker.offsets["T", 0] == 6


async def test_a_lock_that_cannot_be_renewed_is_not_relied_on(cluster, broker, monkeypatch):
    monkeypatch.setattr(assigned_queues, "LOCK_INTERVAL_S", 0.05)
    monkeypatch.setattr(process_queue, "LOCK_TRUST_S", 0.3)
    monkeypatch.setattr("tianzhou.client.consumer.push.orderly.LOCK_RETRY_S", 0.05)
    locks = Locks(broker)
    consumer, seen = noting(cluster, orderly=True)
    async with consumer:
        await until_async(lambda: broker.pulls(), "it pulls")
        broker.answers[41] = lambda command: command.reply(1, "not now")
        await asyncio.sleep(0.6)
        broker.deliver(record("T", 0))
        await asyncio.sleep(0.3)
        assert seen == []
        broker.answers[41] = locks._lock
        await until_async(lambda: seen == [0], "it goes on with the lock")


async def test_a_queue_is_given_up_when_its_handler_has_ended(cluster, broker):
    locks = Locks(broker)
    consumer = PushConsumer("G", cluster.address, orderly=True)
    gate, started, seen = asyncio.Event(), asyncio.Event(), []

    @consumer.on("T")
    async def consume(message) -> None:
        started.set()
        await gate.wait()
        seen.append(message.queue_offset)

    async with consumer:
        broker.deliver(record("T", 0), record("T", 1))
        await started.wait()
        lose_the_queue(broker)
        await until_async(lambda: MessageQueue("T", broker.name, 0) not in consumer.assignment, "it is given up")
        await asyncio.sleep(0.8)
        assert locks.unlocked == []
        info = consumer.running_info().mq_table[MessageQueue("T", broker.name, 0)]
        assert (info.dropped, info.locked) == (True, True)
        gate.set()
        await until_async(lambda: locks.unlocked, "the lock is freed")
        # The message in process counts, the next one is left to the new owner.
        assert (seen, broker.offsets["T", 0]) == ([0], 1)
        assert broker.codes().index(15) < broker.codes().index(42)


async def test_a_handler_that_does_not_end_cannot_keep_a_queue_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(assigned_queues, "UNLOCK_DELAY_S", 0.4)
    async with one_broker() as (cluster, broker):
        locks = Locks(broker)
        consumer = PushConsumer("G", cluster.address, orderly=True, await_termination_ms=50)
        started = asyncio.Event()

        @consumer.on("T")
        async def consume(message) -> None:
            started.set()
            await asyncio.sleep(60)

        async with consumer:
            broker.deliver(record("T", 0))
            await started.wait()
            lose_the_queue(broker)
            await until_async(lambda: locks.unlocked, "the lock is freed")
            assert broker.offsets["T", 0] == 0
    assert "another member may overtake it" in caplog.text


async def test_a_lock_granted_without_our_hearing_of_it_is_freed(cluster, broker, monkeypatch):
    monkeypatch.setattr(assigned_queues, "LOCK_INTERVAL_S", 0.1)
    locks = Locks(broker)
    grant = broker.answers[41]

    def fail_once(command):
        queues = LOCK_REQUEST.loads(command.body).queues
        if any(queue.topic == "T" for queue in queues):
            broker.consumer_ids.insert(0, "!")  # meanwhile the queue belongs to another member
            broker.answers[41] = grant
            return command.reply(1, "granted, but the answer got lost")
        return grant(command)

    broker.answers[41] = fail_once
    consumer, _ = noting(cluster, orderly=True)
    async with consumer:
        await until_async(lambda: locks.unlocked, "it is freed")
        assert not broker.pulls()


async def test_a_reset_waits_for_the_handler_at_work(cluster, broker):
    Locks(broker)
    consumer = PushConsumer("G", cluster.address, orderly=True)
    gate, seen, most, at_work = asyncio.Event(), [], 0, 0

    @consumer.on("T")
    async def consume(message) -> None:
        nonlocal most, at_work
        at_work += 1
        most = max(most, at_work)
        await gate.wait()
        at_work -= 1
        seen.append(message.queue_offset)

    async with consumer:
        broker.deliver(record("T", 0), record("T", 1))
        await until_async(lambda: at_work == 1, "it consumes")
        fields = write_header(220, topic="T", group="G", timestamp=0, is_force=True)
        body = OFFSET_TABLE.dumps({MessageQueue("T", broker.name, 0): 5})
        broker.connections[0].invoke_oneway(Command(220, fields=fields, body=body))
        await until_async(lambda: broker.pulls()[-1].queue_offset == 5, "it pulls there")
        broker.deliver(record("T", 5))
        await asyncio.sleep(0.1)
        gate.set()
        await until_async(lambda: seen == [0, 5], "both end")
    assert most == 1
    assert broker.offsets["T", 0] == 6


@pytest.mark.parametrize("code", [40, 220])
async def test_what_concerns_other_groups_is_no_reason_to_stir(cluster, broker, code):
    Locks(broker)
    consumer, _ = noting(cluster, orderly=True)
    async with consumer:
        await until_async(lambda: broker.pulls(), "it pulls")
        queue = MessageQueue("T", broker.name, 0)
        fields = {
            40: lambda: write_header(40, consumer_group="other"),
            220: lambda: write_header(220, topic="T", group="other", timestamp=0, is_force=True),
        }[code]()
        body = OFFSET_TABLE.dumps({queue: 5}) if code == 220 else b""
        asked = len(broker.asked(38))
        broker.connections[0].invoke_oneway(Command(code, fields=fields, body=body))
        await asyncio.sleep(0.1)
        assert queue in consumer.assignment
        assert len(broker.asked(38)) == asked
        assert broker.offsets["T", 0] == 0
