"""Brokers with injected faults, and clients that observe them."""

import asyncio
from datetime import timedelta

import pytest

from tianzhou import Message
from tianzhou.errors import BrokerError, ClientError, ConfigError, RemotingError, RequestTimeout
from tianzhou.testing import COMMITS, PULLS, SEND_BACKS, AsyncCluster, Cluster
from tianzhou.wire.codes import ResponseCode

pytestmark = pytest.mark.tianzhou(virtual=True)


def test_refused_sends(cluster):
    cluster.create_topic("others")
    with cluster.producer(retry_times_when_send_failed=0) as producer:
        with cluster.faults.refuse(ResponseCode.SYSTEM_BUSY, "go away", topic="orders") as fault:
            with pytest.raises(BrokerError, match="go away"):
                producer.send(Message("orders", b"a"))
            producer.send(Message("others", b"b"))
        producer.send(Message("orders", b"c"))
    assert fault.hits == 1
    assert [message.body for message in cluster.messages("orders")] == [b"c"]


def test_a_fault_that_strikes_twice_is_survived_by_retries(cluster):
    fault = cluster.faults.refuse(ResponseCode.SYSTEM_BUSY, times=2)
    with cluster.producer(retry_response_codes={ResponseCode.SYSTEM_BUSY}) as producer:
        producer.send(Message("orders", b"a"))
    assert fault.hits == 2


def test_a_lost_reply_stores_twice_and_a_lost_request_once(cluster):
    for topic in ("replies", "requests"):
        cluster.create_topic(topic)
    with cluster.producer(send_msg_max_timeout_per_request_ms=1000) as producer:
        with cluster.faults.lose_replies(times=1):
            producer.send(Message("replies", b"a"))
        with cluster.faults.lose_requests(times=1):
            producer.send(Message("requests", b"a"))
    twice = cluster.messages("replies")
    assert [message.body for message in twice] == [b"a", b"a"]
    assert len({message.msg_id for message in twice}) == 1
    assert len(cluster.messages("requests")) == 1


@pytest.mark.parametrize(("served", "stored"), [(False, 0), (True, 1)])
def test_dropped_connections(cluster, served, stored):
    with cluster.producer(retry_times_when_send_failed=0) as producer:
        with cluster.faults.drop_connections(served=served), pytest.raises(RemotingError):
            producer.send(Message("orders", b"a"))
        assert len(cluster.messages("orders")) == stored
        producer.send(Message("orders", b"b"))


def test_slow_answers_take_the_clusters_time(cluster):
    with cluster.producer(retry_times_when_send_failed=0) as producer:
        with cluster.faults.answer_late(2.5, times=1):
            producer.send(Message("orders", b"a"))
        assert cluster.elapsed == timedelta(seconds=2.5)
        with cluster.faults.answer_late(4), pytest.raises(RequestTimeout):
            producer.send(Message("orders", b"b"), timeout_ms=3000)
        cluster.advance(seconds=4)
    assert [message.body for message in cluster.messages("orders")] == [b"a", b"b"]


def test_the_newest_fault_strikes_and_clear_ends_all(cluster):
    old = cluster.faults.refuse(ResponseCode.SYSTEM_BUSY, "old")
    new = cluster.faults.refuse(ResponseCode.SYSTEM_ERROR, "new")
    with cluster.producer(retry_times_when_send_failed=0) as producer:
        with pytest.raises(BrokerError, match="new"):
            producer.send(Message("orders", b"a"))
        cluster.faults.clear()
        producer.send(Message("orders", b"a"))
    assert (old.hits, new.hits) == (0, 1)
    old.end()


def test_consumers_get_through_refused_pulls_commits_and_returns(cluster):
    seen = []
    cluster.create_topic("orders", queues=1)
    cluster.faults.refuse(requests=PULLS, times=3)
    cluster.faults.drop_connections(requests=COMMITS, times=1)
    cluster.faults.lose_replies(requests=SEND_BACKS, times=1)
    consumer = cluster.push_consumer("billing")

    @consumer.on("orders")
    def take(message):
        seen.append(message.reconsume_times)
        if not message.reconsume_times:
            raise ValueError("not yet")

    with consumer:
        cluster.send("orders", "a")
        cluster.wait_until_consumed("billing", "orders", within=timedelta(minutes=10))
    assert seen[0] == 0
    assert seen[-1] >= 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_broker_goes_and_comes_back_with_its_messages(cluster, consuming, times):
    broker = cluster.brokers["broker-a"]
    address = broker.address
    with consuming() as seen, cluster.producer(retry_times_when_send_failed=0) as producer:
        for number in range(times):
            producer.send(Message("orders", b"%d" % number))
            cluster.wait_until_consumed("billing", "orders")
            with broker.down():
                assert not broker.is_running
                with pytest.raises((RemotingError, ClientError)):
                    producer.send(Message("orders", b"nobody takes it"))
                with pytest.raises(ClientError, match="broker-a holds of orders cannot be read while it is stopped"):
                    cluster.messages("orders")
                cluster.advance(minutes=2)
            assert broker.address == address
        cluster.send("orders", "last")
        cluster.wait_until_consumed("billing", "orders", within=timedelta(minutes=5))
    assert seen == [*(b"%d" % number for number in range(times)), b"last"]


@pytest.mark.parametrize("kill", [False, True])
def test_what_a_stop_writes_and_a_kill_does_not(tmp_path, kill):
    abort = tmp_path / "broker-a" / "store" / "abort"
    with Cluster(virtual=True, folder=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        broker = cluster.brokers["broker-a"]
        seen = []
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=lambda message: seen.append(message.body))
        with consumer:
            for number in range(3):
                cluster.send("orders", f"{number}")
            cluster.send("later", "in two hours", delay_level=18)
            cluster.settle()
        # It has left and committed its position; no file has that yet.
        assert sorted(seen) == [b"0", b"1", b"2"]
        seen.clear()
        with broker.down(kill=kill):
            assert abort.exists() is kill
            assert not broker.is_running
        assert [message.body for message in cluster.messages("orders")] == [b"0", b"1", b"2"]
        again = cluster.push_consumer("billing")
        again.subscribe("orders", handler=lambda message: seen.append(message.body))
        with again:
            cluster.settle()
            assert sorted(seen) == ([b"0", b"1", b"2"] if kill else [])
            cluster.send("orders", "3")
            cluster.settle()
            assert seen[-1] == b"3"
        cluster.advance(hours=2)
        assert [message.body for message in cluster.messages("later")] == [b"in two hours"]


@pytest.mark.tianzhou(virtual=True, brokers=2)
def test_of_two_brokers_the_other_takes_over(cluster):
    cluster.create_topic("orders", queues=2)
    with cluster.producer() as producer:
        with cluster.brokers["broker-a"].faults.drop_connections() as fault:
            results = [producer.send(Message("orders", b"%d" % number)) for number in range(8)]
        assert fault.hits
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        with cluster.brokers["broker-b"].down():
            cluster.advance(minutes=1)
            assert producer.send(Message("orders", b"8")).queue.broker_name == "broker-a"
    assert [message.body for message in cluster.messages("orders")] == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("virtual", [False, True])
def test_a_whole_cluster_is_killed_under_its_clients_and_comes_up(virtual):
    with Cluster(virtual=virtual, brokers=2) as cluster:
        cluster.create_topic("orders", queues=2)
        seen = []
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=lambda message: seen.append(message.body))
        with consumer, cluster.producer(retry_times_when_send_failed=0, send_msg_timeout_ms=500) as producer:
            sent = [b"%d" % number for number in range(10)]
            for body in sent:
                producer.send(Message("orders", body))
            cluster.kill()
            assert not any(broker.is_running for broker in cluster.brokers.values())
            with pytest.raises((RemotingError, ClientError)):
                producer.send(Message("orders", b"nobody takes it"))
            cluster.kill()  # a dead broker has no more faults
            cluster.up()
            assert sorted(message.body for message in cluster.messages("orders")) == sent
            cluster.wait_until(lambda: {b"%d" % number for number in range(10)} <= set(seen))

            def goes_on():
                try:
                    return producer.send(Message("orders", b"last"))
                except (RemotingError, ClientError):
                    return None

            cluster.wait_until(goes_on)
            cluster.wait_until(lambda: b"last" in seen)


async def test_faults_strike_each_of_the_sends_that_come_together():
    async with AsyncCluster(brokers=1) as cluster:
        await cluster.create_topic("orders")
        async with cluster.producer(retry_times_when_send_failed=0) as producer:
            await producer.send(Message("orders", b"first"))  # opens the connection
            with cluster.faults.refuse(ResponseCode.SYSTEM_BUSY, times=3) as fault:
                sends = [producer.send(Message("orders", b"%d" % n)) for n in range(8)]
                results = await asyncio.gather(*sends, return_exceptions=True)
            assert fault.hits == 3
            assert [isinstance(result, BrokerError) for result in results] == [True] * 3 + [False] * 5


async def test_faults_in_real_time_and_async_code():
    async with AsyncCluster(brokers=2) as cluster:
        await cluster.create_topic("orders")
        seen = []
        consumer = cluster.push_consumer("billing")

        @consumer.on("orders")
        async def take(message):
            seen.append(message.body)

        async with consumer, cluster.producer() as producer:
            with cluster.brokers["broker-a"].faults.answer_late(0.05) as fault:
                await asyncio.gather(*(producer.send(Message("orders", b"%d" % n)) for n in range(20)))
            assert fault.hits
            await cluster.wait_until_consumed("billing", "orders")
            assert sorted(seen) == sorted(b"%d" % n for n in range(20))
            await cluster.brokers["broker-a"].stop()
            await cluster.send("orders", "b has it")
            await cluster.wait_until(lambda: b"b has it" in seen)


def test_options_nobody_knows():
    with pytest.raises(ConfigError, match="its options are virtual, brokers"):
        Cluster(vrtual=True)
    with pytest.raises(ConfigError, match="brokers=0"):
        Cluster(brokers=0)
    with pytest.raises(ConfigError, match=r"transactionCheckIntervall is no key .* did you mean transactionCheckInter"):
        Cluster(settings={"transactionCheckIntervall": 5})
    with pytest.raises(ClientError, match="times=0"), Cluster() as cluster:
        cluster.faults.refuse(times=0)
    with pytest.raises(ClientError, match="with Cluster"):
        Cluster().messages("orders")


def test_settings_and_a_folder_that_is_kept(tmp_path):
    with Cluster(folder=tmp_path, settings={"maxMessageSize": 100}) as cluster:
        cluster.create_topic("orders")
        cluster.send("orders", "kept")
        with pytest.raises(BrokerError, match="100"):
            cluster.send("orders", "x" * 200)
    with Cluster(folder=tmp_path) as cluster:
        assert [message.body for message in cluster.messages("orders")] == [b"kept"]
