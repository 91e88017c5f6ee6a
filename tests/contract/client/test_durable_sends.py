"""`Producer(durable=True)`: only SEND_OK counts, everything else is tried again until the time is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from scripted import ScriptedCluster, sent, within

from tianzhou import Message, MessageQueue, Producer, SendStatus
from tianzhou import sync as blocking
from tianzhou.client.producer import durable
from tianzhou.errors import BrokerError, ClientError, ConfigError, NotDurable
from tianzhou.model import BrokerData, QueueData, TopicRoute
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))

MESSAGE = Message("T", b"x")
STATUSES = {10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
CHANGES = {10: "syncFlushTimeout", 11: "start its slave", 12: "slaveTimeout"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "FIRST_PAUSE_MS", 20)


@pytest.mark.parametrize("code", STATUSES)
async def test_a_message_that_is_not_safe_goes_to_another_broker(code: int) -> None:
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address, durable=True) as producer:
        unsure, good = cluster.brokers
        unsure.answers[310] = lambda command: command.reply(code, fields=sent(0, 7))
        results = [await producer.send(MESSAGE) for _ in range(4)]
        assert {(result.status, result.queue.broker_name) for result in results} == {(SendStatus.SEND_OK, good.name)}
        assert unsure.asked(310)


@pytest.mark.parametrize("code", STATUSES)
async def test_when_the_time_is_over_the_error_names_the_status_and_what_to_change(code: int) -> None:
    async with (
        ScriptedCluster(1) as cluster,
        Producer("P", cluster.address, durable=True, durable_timeout_ms=200) as producer,
    ):
        cluster.brokers[0].answers[310] = lambda command: command.reply(code, fields=sent(0, 7))
        with pytest.raises(NotDurable, match=f"at offset 7, but {STATUSES[code]}.*{CHANGES[code]}.*200 ms") as raised:
            await producer.send(MESSAGE)
        assert raised.value.status == STATUSES[code]
        assert len(raised.value.msg_id) == 32


async def test_a_broker_that_is_alone_is_asked_again_after_pauses_and_not_in_a_row() -> None:
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address, durable=True) as producer:
        broker = cluster.brokers[0]
        codes = [11, 12, 0]
        broker.answers[310] = lambda command: command.reply(codes.pop(0), fields=sent(0, 7))
        keys = (await producer.send(MESSAGE)).msg_id
        assert codes == []
        assert len(broker.asked(310)) == 3
        assert all(keys in header.properties for header in broker.asked(310))


@pytest.mark.parametrize(("brokers", "sends"), [(1, 1), (2, 3)])
async def test_a_round_sends_again_at_once_only_where_another_broker_can_take_the_message(
    monkeypatch: pytest.MonkeyPatch, brokers: int, sends: int
) -> None:
    # The pause after the first round is longer than the send's time limit, so there is no second round.
    monkeypatch.setattr(durable, "FIRST_PAUSE_MS", durable.LONGEST_PAUSE_MS)
    async with (
        ScriptedCluster(brokers) as cluster,
        Producer("P", cluster.address, durable=True, durable_timeout_ms=durable.LONGEST_PAUSE_MS) as producer,
    ):
        for broker in cluster.brokers:
            broker.answers[310] = lambda command: command.reply(10, fields=sent(0, 7))
        with pytest.raises(NotDurable, match="FLUSH_DISK_TIMEOUT"):
            await producer.send(MESSAGE)
        assert sum(len(broker.asked(310)) for broker in cluster.brokers) == sends
        assert all(broker.asked(310) for broker in cluster.brokers)


async def test_a_queue_that_is_wished_for_is_tried_again_and_no_other() -> None:
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address, durable=True) as producer:
        wished, other = cluster.brokers
        codes = [11, 2, 0]
        wished.answers[310] = lambda command: command.reply(codes.pop(0), fields=sent(0, 7))
        result = await producer.send(MESSAGE, MessageQueue("T", wished.name, 0))
        assert (result.status, codes) == (SendStatus.SEND_OK, [])
        assert not other.asked(310)


async def test_a_send_waits_no_longer_for_a_master_that_hangs_than_until_another_one_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable, "LOOK_EVERY_S", 0.05)
    async with ScriptedCluster(2) as cluster, Producer("P", cluster.address, durable=True) as producer:
        hanging, next_one = cluster.brokers
        master = [hanging]

        def route() -> TopicRoute:
            data = [BrokerData(hanging.name, "c", {0: master[0].address})]
            return TopicRoute([QueueData(hanging.name, 1, 1, 6)], data)

        def hang(command: Command) -> None:
            asyncio.get_running_loop().call_later(0.3, master.__setitem__, 0, next_one)

        monkeypatch.setattr(cluster, "route", route)
        hanging.answers[310] = hang
        result = await asyncio.wait_for(producer.send(MESSAGE), durable.ROUND_MS / 2000)
        assert result.status is SendStatus.SEND_OK
        assert len(hanging.asked(310)) == len(next_one.asked(310)) == 1


async def test_a_broker_that_is_away_for_a_while_costs_time_and_no_message() -> None:
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address, durable=True) as producer:
        broker = cluster.brokers[0]
        left = [4]

        def hang_up(command: Command) -> Command | None:
            left[0] -= 1
            if left[0] > 0:
                for connection in broker.connections:
                    connection.abort()
                return None
            return command.reply(0, fields=sent(0, 7))

        broker.answers[310] = hang_up
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK
        assert left == [0]


async def test_an_answer_that_no_other_broker_would_give_differently_is_raised_at_once() -> None:
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address, durable=True) as producer:
        broker = cluster.brokers[0]
        broker.answers[310] = lambda command: command.reply(13, "illegal")
        with pytest.raises(BrokerError, match="illegal"):
            await producer.send(MESSAGE)
        assert len(broker.asked(310)) == 1


async def test_what_is_never_acknowledged_safely_is_refused() -> None:
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address, durable=True) as producer:
        with pytest.raises(ClientError, match=r"send_oneway.*never acknowledged"):
            await producer.send_oneway(MESSAGE)
        with pytest.raises(ClientError, match="wait_store_ok=False"):
            await producer.send(Message("T", b"x", wait_store_ok=False))
        with pytest.raises(ClientError, match="wait_store_ok=False"):
            await producer.send_batch([Message("T", b"x", wait_store_ok=False)])
        assert not cluster.brokers[0].asked(310)


async def test_an_unknown_topic_is_refused_at_once() -> None:
    async with (
        ScriptedCluster(1, topics=("T",)) as cluster,
        Producer("P", cluster.address, durable=True) as producer,
    ):
        with pytest.raises(ClientError, match="topic X does not exist"):
            await producer.send(Message("X", b"x"))


async def test_with_an_outbox_what_is_not_safe_anywhere_waits_on_the_disk(tmp_path: Path) -> None:
    async with (
        ScriptedCluster(1) as cluster,
        Producer("P", cluster.address, durable=True, durable_timeout_ms=1000, outbox=tmp_path) as producer,
    ):
        broker = cluster.brokers[0]
        broker.answers[310] = lambda command: command.reply(11, fields=sent(0, 7))
        result = await producer.send(MESSAGE)
        assert result.status is SendStatus.KEPT_IN_OUTBOX
        del broker.answers[310]

        def sent_again() -> bool:
            status = producer.outbox
            return status is not None and status.pending == 0

        await until_async(sent_again, "the outbox is empty")
        assert sum(result.msg_id in header.properties for header in broker.asked(310)) >= 2


async def test_the_limit_has_to_be_one() -> None:
    with pytest.raises(ConfigError, match="durable_timeout_ms"):
        Producer("P", "127.0.0.1:1", durable=True, durable_timeout_ms=0)


def test_pauses_grow_up_to_a_bound() -> None:
    pauses = [durable.pause_ms(rounds) for rounds in range(1, 40)]
    assert pauses[:3] == [20, 40, 80]
    assert pauses == sorted(pauses)
    assert pauses[-1] == durable.LONGEST_PAUSE_MS


def test_the_blocking_producer_has_the_switch() -> None:
    with pytest.raises(ConfigError, match="durable_timeout_ms"):
        blocking.Producer("P", "127.0.0.1:1", durable=True, durable_timeout_ms=0)
