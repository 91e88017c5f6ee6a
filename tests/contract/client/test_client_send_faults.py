"""Our producer with brokers that refuse, are silent, hang up or store without confirming."""

import asyncio

import pytest
from scripted import ScriptedCluster, refusing, sent, within

from tianzhou import Message, Producer, SendStatus
from tianzhou.errors import BrokerError, ClientError, ConnectionLost, RequestTimeout
from tianzhou.model import MessageQueue
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))
MESSAGE = Message("T", b"x")


async def silent(command):
    await asyncio.sleep(60)


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


@pytest.mark.parametrize("trouble", [refusing(14, "it is a slave"), silent], ids=["refuses", "hangs"])
@pytest.mark.parametrize("chosen", [False, True], ids=["any-queue", "chosen-queue"])
async def test_a_new_master_is_found_although_the_former_one_lives(trouble, chosen):
    """Its connection stays open: without a route refresh, sends would fail for pollNameServerInterval, 30 s."""
    async with ScriptedCluster(2) as cluster:
        former, new = cluster.brokers
        cluster.brokers = [former]
        former.answers[310] = trouble
        async with Producer("P", cluster.address, send_msg_timeout_ms=150) as producer:
            queue = MessageQueue("T", former.name, 0) if chosen else None
            await producer.queues("T")
            new.name = former.name
            cluster.brokers = [new]
            with pytest.raises((BrokerError, RequestTimeout)):
                await producer.send(MESSAGE, queue)
            # Wait for the new route, not only for the request to the name server.
            await until_async(lambda: producer.instance.routes.addresses() == [new.address])
            assert (await producer.send(MESSAGE, queue, timeout_ms=10_000)).status is SendStatus.SEND_OK
            assert new.asked(310)


async def test_a_broker_that_refuses_everything_costs_the_name_server_little():
    async with ScriptedCluster(1) as cluster, Producer("P", cluster.address) as producer:
        cluster.brokers[0].answers[310] = refusing(14, "the disk is full")
        for _ in range(100):
            with pytest.raises(BrokerError):
                await producer.send(MESSAGE)
        assert cluster.asked.count("T") < 10


async def test_a_producer_that_is_not_running_says_so():
    async with ScriptedCluster(1) as cluster:
        producer = Producer("P", cluster.address)
        with pytest.raises(ClientError, match="start it with 'async with'"):
            await producer.send(MESSAGE)
        await producer.stop()
