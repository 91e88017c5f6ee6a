"""Virtual time: it stands still, passes when spent, and triggers every due event."""

import asyncio
import functools
import itertools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tianzhou import Message, TransactionState, sync
from tianzhou.clock import SystemClock
from tianzhou.errors import ClientError
from tianzhou.model import MessageModel
from tianzhou.testing import AsyncCluster, Cluster, NotReached, run_virtual

pytestmark = [pytest.mark.runner.with_args(run_virtual), pytest.mark.tianzhou(virtual=True)]


def test_time_stands_still_while_nobody_waits(cluster):
    cluster.send("orders", "a")
    before = cluster.now_ms
    time.sleep(0.05)
    assert cluster.now_ms == before


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"message_model": MessageModel.BROADCASTING}])
def test_what_a_filter_leaves_out_is_not_waited_for(cluster, consuming, options, tmp_path):
    with consuming("paid", local_offset_dir=tmp_path, **options) as seen:
        cluster.wait_until_consumed("billing", "orders")
        for round_ in range(3):
            cluster.send("orders", f"{round_}", tags="paid")
            cluster.send("orders", "no", tags="cancelled")
            before = cluster.elapsed
            cluster.wait_until_consumed("billing", "orders")
            assert cluster.elapsed - before < timedelta(seconds=0.2)
    assert seen == [b"0", b"1", b"2"]


def test_the_first_example_of_the_how_to_takes_a_moment(cluster, consuming):
    with consuming("paid") as seen:
        cluster.send("orders", "1", tags="paid")
        cluster.send("orders", "2", tags="cancelled")
        cluster.wait_until_consumed("billing", "orders")
    assert seen == [b"1"]
    assert cluster.elapsed < timedelta(seconds=1)


def test_a_delay_of_two_hours(cluster):
    seen = []
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: seen.append((message.body, cluster.now_ms)))
    with consumer:
        sent_ms = cluster.now_ms
        cluster.send("orders", "in two hours", delay_level=18)
        cluster.advance(hours=1, minutes=59, seconds=59)
        cluster.settle()
        assert (seen, cluster.messages("orders")) == ([], [])
        cluster.advance(seconds=1)
        assert seen == [(b"in two hours", sent_ms + 7_200_000)]
        assert cluster.elapsed == timedelta(hours=2)


def test_sixteen_retries_and_the_dead_letter(cluster):
    attempts = []
    cluster.create_topic("orders", queues=1)
    consumer = cluster.push_consumer("billing")

    @consumer.on("orders")
    def fail(message):
        attempts.append(message.reconsume_times)
        raise RuntimeError("this handler never succeeds")

    with consumer:
        cluster.send("orders", "poison")
        cluster.wait_until_consumed("billing", "orders", within=timedelta(hours=6))
        assert attempts == list(range(17))
        assert [message.body for message in cluster.dead_letters("billing")] == [b"poison"]
        # The steps of the delays add up to 4 h 46 min.
        assert timedelta(minutes=285) < cluster.elapsed < timedelta(minutes=300)


def test_fifteen_questions_about_a_transaction_and_then_none(cluster):
    asked = []

    def check(message):
        asked.append(message.body)
        return TransactionState.UNKNOWN

    with cluster.transaction_producer("shop", check=check) as producer:
        producer.send_in_transaction(Message("orders", b"who knows"), lambda message, arg: TransactionState.UNKNOWN)
        cluster.wait_until(lambda: len(asked) == 15, within=timedelta(minutes=30))
        cluster.advance(hours=1)
    assert len(asked) == 15
    assert cluster.messages("orders") == []


def test_a_transaction_whose_answer_got_lost_is_checked(cluster):
    with cluster.transaction_producer("shop", check=lambda message: TransactionState.COMMIT) as producer:
        producer.send_in_transaction(Message("orders", b"paid"), lambda message, arg: TransactionState.UNKNOWN)
        assert cluster.messages("orders") == []
        cluster.wait_until(lambda: cluster.messages("orders"), within=timedelta(minutes=5))


def test_members_stay_known_while_hours_pass(cluster, consuming):
    with consuming(orderly=True) as seen, cluster.admin() as admin:
        cluster.settle()
        before = admin.groups.connections("billing")
        cluster.advance(hours=3)
        assert admin.groups.connections("billing") == before
        cluster.send("orders", "still there?")
        cluster.settle()
        assert seen == [b"still there?"]


def test_code_under_test_that_makes_its_own_blocking_clients_lives_in_virtual_time(cluster):
    with sync.Producer("shop", cluster.namesrv_addr) as producer:
        result = producer.send(Message("orders", b"x", delay_level=5))
    assert result.msg_id
    assert abs(SystemClock().now_ms() - cluster.now_ms) < 2
    cluster.advance(minutes=1)
    assert len(cluster.messages("orders")) == 1
    assert cluster.messages("orders")[0].born_timestamp == cluster.now_ms - 60_000


def test_after_the_last_virtual_cluster_clocks_and_clients_are_ordinary_ones():
    usual = SystemClock.now_ms
    with Cluster(virtual=True) as one, Cluster(virtual=True) as other:
        one.advance(hours=5)
        assert other.elapsed == timedelta(0)
        assert SystemClock.now_ms is not usual
    assert SystemClock.now_ms is usual
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 5_000


@pytest.mark.parametrize("spends", [True, False])
def test_clients_left_running_end_with_the_cluster(spends):
    with Cluster(virtual=True) as cluster:
        cluster.create_topic("orders")
        consumer = sync.PushConsumer("billing", cluster.namesrv_addr)
        consumer.subscribe("orders", handler=lambda message: None)
        consumer.start()
        if spends:
            cluster.send("orders", "a")
            cluster.wait_until_consumed("billing", "orders")
    assert "tianzhou-test-cluster" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClientError, match="the test cluster is closed"):
        consumer.stop()
    with pytest.raises(ClientError, match="started before; make a new one"), cluster:
        pass


def test_a_handler_that_blocks_its_thread_takes_no_virtual_time(cluster):
    passed = []
    consumer = cluster.push_consumer("billing")

    @consumer.on("orders")
    def slow(message):
        before = cluster.now_ms
        time.sleep(0.1)
        passed.append(cluster.now_ms - before)

    with consumer:
        cluster.send("orders", "a")
        cluster.wait_until_consumed("billing", "orders", within=1)
    assert passed == [0]


def test_a_handler_may_send_by_a_blocking_producer_whose_reply_gets_lost(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.create_topic("invoices", queues=1)
    consumer = cluster.push_consumer("billing")
    with cluster.producer() as producer:

        @consumer.on("orders")
        def bill(message):
            producer.send(Message("invoices", message.body))

        with consumer, cluster.faults.lose_replies(topic="invoices", times=1) as lost:
            cluster.send("orders", "a")
            cluster.wait_until_consumed("billing", "orders", within=timedelta(minutes=5))
    assert lost.hits == 1
    assert {message.body for message in cluster.messages("invoices")} == {b"a"}


def test_a_handler_may_look_at_the_cluster(cluster):
    seen = []
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: seen.append(len(cluster.messages("orders"))))
    with consumer:
        cluster.send("orders", "a")
        cluster.wait_until_consumed("billing", "orders")
    assert seen == [1]


def test_a_call_that_nothing_will_end_is_given_up(cluster):
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders")
    with pytest.raises(ClientError, match="within 0:02:00 of virtual time"):
        cluster.run(asyncio.Event().wait(), within=timedelta(minutes=2))


def test_waiting_in_vain_says_what_is_left(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", "a")
    with pytest.raises(NotReached, match=r"no consumer of group billing has ever connected \(after 30.* virtual time"):
        cluster.wait_until_consumed("billing", "orders")
    release = threading.Event()
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: 1 / 0)
    with consumer, pytest.raises(NotReached, match="1 that will be delivered again, waiting for their time"):
        cluster.wait_until_consumed("billing", "orders", within=5)
    with pytest.raises(NotReached, match="no consumer of the group is connected now"):
        cluster.wait_until_consumed("billing", "orders", within=5)
    with pytest.raises(ClientError, match="no running broker has topic ordres; topics are orders"):
        cluster.wait_until_consumed("billing", "ordres")
    with pytest.raises(NotReached, match="the moon is full"):
        cluster.wait_until(release.is_set, "the moon is full", within=1)


def test_real_time_cannot_be_hurried():
    with Cluster() as cluster:
        for call in (lambda: cluster.advance(hours=1), cluster.settle):
            with pytest.raises(ClientError, match="virtual=True"):
                call()


async def test_virtual_time_on_ones_own_loop():
    async with AsyncCluster(virtual=True) as cluster:
        await cluster.create_topic("orders")
        seen = []
        consumer = cluster.push_consumer("billing")

        @consumer.on("orders")
        async def take(message):
            await asyncio.sleep(600)
            seen.append(message.body)

        async with consumer:
            await cluster.send("orders", "a")
            await cluster.wait_until_consumed("billing", "orders", within=timedelta(minutes=11))
            assert seen == [b"a"]
            with pytest.raises(NotReached):
                await cluster.wait_until(lambda: False, within=3)
            began = cluster.now_ms
            await asyncio.sleep(3)
            assert cluster.now_ms - began == 3000


def test_a_virtual_cluster_refuses_loops_in_real_time():
    async def make():
        async with AsyncCluster(virtual=True):
            pass

    with pytest.raises(ClientError, match="run_virtual"):
        asyncio.run(make())

    async def use(cluster):
        cluster.aio.push_consumer("billing")

    with Cluster(virtual=True) as cluster:
        with pytest.raises(ClientError, match=r"cluster\.run"):
            asyncio.run(use(cluster))

        async def block(call):
            call()

        for call in (lambda: cluster.messages("orders"), lambda: cluster.producer().start()):
            with pytest.raises(ClientError, match=r"cluster\.aio"):
                asyncio.run(block(call))


# --- what hours cost --------------------------------------------------------------------------------------------------


class Work:
    """Counts a cluster's actions while time passes: moves of the clock, and requests its brokers serve."""

    def __init__(self, cluster):
        self.loop, self.requests = cluster.aio.home, 0
        for broker in cluster.aio.brokers.values():
            gate = broker.running.gate
            gate._router = SimpleNamespace(serve=functools.partial(self._serve, gate._router.serve))
            gate._router.serve_late = gate._router.serve
        self._jumps = self.loop.jumps

    def _serve(self, serve, connection, command, waited_s=0.0):
        self.requests += 1
        return serve(connection, command)

    @property
    def jumps(self):
        return self.loop.jumps - self._jumps


def test_two_hours_of_an_idle_consumer_cost_few_requests(cluster, consuming):
    with consuming() as seen:
        cluster.send("orders", "in two hours", delay_level=18)
        work = Work(cluster)
        cluster.advance(hours=2)
        assert seen == [b"in two hours"]
        assert work.jumps <= 20
        assert work.requests <= 250


def test_sixteen_retries_cost_a_few_jumps_each(cluster):
    cluster.create_topic("orders", queues=1)
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=lambda message: 1 / 0)
    with consumer:
        work = Work(cluster)
        cluster.send("orders", "poison")
        cluster.wait_until_consumed("billing", "orders", within=timedelta(hours=6))
        assert len(cluster.dead_letters("billing")) == 1
        assert work.jumps <= 16 * 4
        assert work.requests <= 16 * 40


def test_retries_come_in_time_however_long_the_advance(cluster):
    attempts = []
    cluster.create_topic("orders", queues=1)
    consumer = cluster.push_consumer("billing")

    @consumer.on("orders")
    def fail(message):
        attempts.append(round(cluster.elapsed.total_seconds()))
        raise RuntimeError("this handler never succeeds")

    with consumer:
        began = cluster.elapsed.total_seconds()
        cluster.send("orders", "poison")
        cluster.advance(hours=5)
    steps = [after - before for before, after in itertools.pairwise(attempts)]
    minutes = [*range(1, 11), 20, 30, 60, 120]
    assert steps == [10, 30, *(60 * one for one in minutes)]
    assert attempts[0] == round(began)


def test_a_handler_s_own_sleep_is_hardly_late_however_long_the_advance(cluster):
    slept = []
    cluster.create_topic("orders", queues=1)

    async def main():
        consumer = cluster.aio.push_consumer("billing")

        @consumer.on("orders")
        async def take(message):
            began = cluster.now_ms
            await asyncio.sleep(90)
            slept.append((cluster.now_ms - began) / 1000)

        async with consumer:
            await cluster.aio.send("orders", "a")
            await cluster.aio.advance(hours=2)

    cluster.run(main(), within=timedelta(hours=3))
    assert 90 <= slept[0] <= 90 + 50


def test_a_process_that_stood_still_for_an_hour_takes_nobody_for_dead(cluster, consuming, caplog):
    with consuming() as seen, cluster.admin() as admin, caplog.at_level(logging.INFO):
        cluster.settle()
        before = admin.groups.connections("billing")
        caplog.clear()
        cluster.aio.home.clock.advance(3600)
        cluster.advance(minutes=1)
        assert admin.groups.connections("billing") == before
        said = [record.getMessage() for record in caplog.records]
        assert not [
            text for text in said if "no heartbeat" in text or "unregistered" in text or "starting again" in text
        ]
        cluster.send("orders", "still there?")
        cluster.settle()
        assert seen == [b"still there?"]


class SlowToEnd(ThreadPoolExecutor):
    """An executor whose threads take a moment of real time to join, like on a busy machine."""

    def shutdown(self, wait=True, *, cancel_futures=False):
        time.sleep(0.05)
        super().shutdown(wait, cancel_futures=cancel_futures)


async def test_the_limit_for_the_threads_of_a_loop_that_ends_does_not_pass_at_once():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(SlowToEnd())
    await loop.run_in_executor(None, int)
    before = loop.time()
    # asyncio.Runner has this limit from Python 3.12 on, and warns when it passes.
    await loop.shutdown_default_executor(300)
    assert loop.time() == before
