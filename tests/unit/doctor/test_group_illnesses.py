"""Stuck and lagging groups: each finding's cause is made on a cluster, and its name is checked."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from ill_clusters import consume, finding, ill, names, report

from tianzhou.client.cluster import rpc
from tianzhou.doctor import diagnose
from tianzhou.doctor.illnesses import group
from tianzhou.doctor.illnesses.group import falls_back
from tianzhou.model import ConsumerData, HeartbeatData, MessageExt, MessageModel, MessageQueue, SubscriptionData
from tianzhou.testing import AsyncCluster
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LockRequest
from tianzhou.wire.codes import RequestCode


async def consumed(cluster: AsyncCluster) -> None:
    """Let group billing consume one message of orders, and leave."""
    consumer = cluster.push_consumer("billing")
    consumer.subscribe("orders", handler=consume)
    await consumer.start()
    await cluster.send("orders", "x")
    await cluster.wait_until_consumed("billing", "orders")
    await consumer.stop()


def test_a_healthy_group_has_no_finding() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        for _ in range(20):
            await cluster.send("orders", "x")
        await cluster.wait_until_consumed("billing", "orders")
        await cluster.advance(minutes=3)
        found = await report(cluster, "group", "billing")
        assert (found.findings, found.healthy, found.unanswered) == ([], True, [])

    ill(make)


def test_a_group_without_members_is_behind_and_will_lose_what_it_has_not_read() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await consumed(cluster)
        await cluster.send("orders", "not read")
        one = await finding(cluster, "group-without-members", "group", "billing")
        assert one.severity == "error"
        assert one.evidence == {"lag": 1}
        await cluster.advance(minutes=50)
        assert {"group-behind", "unread-about-to-be-lost"} <= await names(cluster, "group", "billing")
        # The whole cluster's diagnosis has the same finding.
        assert "group-without-members" in await names(cluster, "cluster")

    ill(make, settings={"fileReservedTime": 1})


def test_a_group_that_nobody_knows() -> None:
    async def make(cluster: AsyncCluster) -> None:
        assert await names(cluster, "group", "nobody") == {"group-unknown"}

    ill(make)


def test_more_members_than_queues() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 2)
        for _ in range(3):
            consumer = cluster.push_consumer("billing")
            consumer.subscribe("orders", handler=consume)
            await consumer.start()
        await cluster.advance(seconds=30)
        one = await finding(cluster, "more-members-than-queues", "group", "billing")
        assert one.evidence == {"queues": 2, "members": 3}

    ill(make)


def test_members_that_differ() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 4)
        for number, tags in enumerate("AB"):
            consumer = cluster.push_consumer("billing", orderly=bool(number))
            consumer.subscribe("orders", tags, handler=consume)
            await consumer.start()
        await cluster.advance(seconds=30)
        assert {"subscriptions-differ", "consume-modes-differ"} <= await names(cluster, "group", "billing")

    ill(make)


def test_client_ids_that_clash() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 2)
        for _ in range(2):
            consumer = cluster.push_consumer("billing", client_id="10.0.0.1@worker")
            consumer.subscribe("orders", handler=consume)
            await consumer.start()
        await cluster.advance(seconds=30)
        one = await finding(cluster, "client-ids-clash", "group", "billing")
        assert one.evidence["client_id"] == "10.0.0.1@worker"

    ill(make)


def test_locks_that_cannot_be_renewed_and_one_that_somebody_else_has_got() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = cluster.push_consumer("billing", orderly=True, client_id="10.0.0.1@worker")
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=5)
        assert await names(cluster, "group", "billing") == set()
        with cluster.faults.lose_requests(requests=[RequestCode.LOCK_BATCH_MQ]):
            await cluster.advance(seconds=55)
            one = await finding(cluster, "queue-lock-not-held", "group", "billing")
        assert one.evidence["queues"] == ["orders@broker-a:0"]
        async with cluster.admin() as admin:
            remoting, address = admin.instance.remoting, cluster.brokers["broker-a"].address
            for code, client_id in (
                (RequestCode.UNLOCK_BATCH_MQ, "10.0.0.1@worker"),
                (RequestCode.LOCK_BATCH_MQ, "other@host"),
            ):
                locks = LockRequest(client_id, "billing", [MessageQueue("orders", "broker-a", 0)])
                await rpc.call(remoting, address, code, body=LOCK_REQUEST.dumps(locks))
        await cluster.advance(seconds=25)
        # Our members drop a queue whose lock another member has.
        assert "queues-without-reader" in await names(cluster, "group", "billing")

    ill(make)


def test_a_filter_that_drops_everything() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 2)
        for name, options in (("by_tag", {"tags": "paid"}), ("by_sql", {"sql": "price > 100"}), ("well", {})):
            consumer = cluster.push_consumer(name)
            consumer.subscribe("orders", handler=consume, **options)
            await consumer.start()
        for _ in range(8):
            await cluster.send("orders", "x", tags="Paid", properties={"price": "7"})
        await cluster.advance(seconds=5)
        one = await finding(cluster, "filter-drops-all", "group", "by_tag")
        assert one.evidence["tags_seen"] == {"Paid": 8}
        assert "filter-drops-all" in await names(cluster, "group", "by_sql")
        assert await names(cluster, "group", "well") == set()

    ill(make)


def test_an_offset_beyond_the_end() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await consumed(cluster)
        async with cluster.admin() as admin:
            queue, address = MessageQueue("orders", "broker-a", 0), cluster.brokers["broker-a"].address
            await rpc.update_offset(admin.instance.remoting, address, "billing", queue, 77)
        one = await finding(cluster, "offset-above-max", "group", "billing")
        assert one.evidence["queues"] == {"orders@broker-a:0": {"first": 0, "next": 1, "committed": 77}}

    ill(make)


def test_handlers_that_are_slow_and_never_catch_up() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)

        async def slow(_message: MessageExt) -> None:
            await asyncio.sleep(4)

        consumer = cluster.push_consumer("billing", consume_concurrency=1, pull_threshold_for_queue=4)
        consumer.subscribe("orders", handler=slow)
        await consumer.start()
        for _ in range(40):
            for _ in range(4):
                await cluster.send("orders", "x")
            await cluster.advance(seconds=3)
        assert "handler-slow" in await names(cluster, "group", "billing")
        one = await finding(cluster, "never-catches-up", "group", "billing")
        assert f"{one.evidence['in_per_second']:.2f} messages/s come in" in one.message
        assert f"it consumes {one.evidence['consumed_per_second']:.2f}" in one.message

    ill(make)


@pytest.mark.parametrize(
    ("put_tps", "consume_tps", "expected"),
    [
        (9.714, 9.706, False), (9.71, 9.71, False), (100.0, 97.0, False), (100.0, 80.0, True), (0.3, 0.0, True),
        (0.04, 0.0, False), (0.0, 5.0, False),
    ],
)  # fmt: skip
def test_a_group_falls_back_only_by_a_difference_that_its_figures_show(
    put_tps: float, consume_tps: float, expected: bool
) -> None:
    assert falls_back(put_tps, consume_tps) is expected


def test_a_handler_that_hangs() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)

        async def hang(_message: MessageExt) -> None:
            await asyncio.sleep(10_000)

        consumer = cluster.push_consumer("billing", await_termination_ms=1)
        consumer.subscribe("orders", handler=hang)
        await consumer.start()
        await cluster.send("orders", "x")
        await cluster.advance(seconds=90)
        one = await finding(cluster, "handler-hangs", "group", "billing")
        assert one.evidence["in_hand"] == {"orders@broker-a:0": 1}

    ill(make)


def test_a_message_that_fails_for_ever_becomes_a_dead_letter() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)

        async def fail(_message: MessageExt) -> None:
            raise ValueError("poison")

        consumer = cluster.push_consumer("billing", max_reconsume_times=4)
        consumer.subscribe("orders", handler=fail)
        await consumer.start()
        await cluster.send("orders", "x")
        await cluster.advance(minutes=10)
        found = await names(cluster, "group", "billing")
        assert {"handler-fails", "message-retried-again-and-again", "dead-letters"} <= found

    ill(make)


def test_a_member_that_is_suspended() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=5)
        consumer.suspend()
        await cluster.send("orders", "x")
        await cluster.advance(minutes=3)
        assert "member-does-not-pull" in await names(cluster, "group", "billing")

    ill(make)


def test_a_member_that_does_not_answer() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        with cluster.faults.lose_requests(requests=[RequestCode.GET_CONSUMER_RUNNING_INFO]):
            assert await names(cluster, "group", "billing") == {"member-does-not-answer"}

    ill(make)


def test_settings_of_a_group() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = cluster.push_consumer("billing", message_model=MessageModel.BROADCASTING)
        consumer.subscribe("orders", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=2)
        assert await names(cluster, "group", "billing") == {"group-broadcasting"}
        async with cluster.admin() as admin:
            await admin.groups.update("billing", consume_enable=False, consume_broadcast_enable=False)
        assert await names(cluster, "group", "billing") == {"group-disabled", "group-broadcast-refused"}

    ill(make)


def test_topics_of_a_group() -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("secret", 1)
        async with cluster.admin() as admin:
            await admin.topics.update("secret", perm=2)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("ghost", handler=consume)
        consumer.subscribe("secret", handler=consume)
        await consumer.start()
        await cluster.advance(seconds=5)
        found = await names(cluster, "group", "billing")
        assert {"topic-of-group-missing", "topic-of-group-not-readable"} <= found

    ill(make)


def test_queues_that_no_member_reads_and_those_that_two_read() -> None:
    class First:
        """A strategy that gives every member the first queue."""

        name = "FIRST"

        def allocate(
            self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
        ) -> list[MessageQueue]:
            del client_id, client_ids
            return list(queues[:1])

    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 3)
        for _ in range(2):
            consumer = cluster.push_consumer("billing", allocate_message_queue_strategy=First())
            consumer.subscribe("orders", handler=consume)
            await consumer.start()
        for _ in range(6):
            await cluster.send("orders", "x")
        await cluster.advance(seconds=30)
        assert {"queues-without-reader", "queue-read-twice"} <= await names(cluster, "group", "billing")

    ill(make)


def test_offsets_of_messages_that_are_deleted(tmp_path: Path) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        await consumed(cluster)
        for _ in range(40):
            await cluster.send("orders", random.Random(1).randbytes(30_000))
        for file in tmp_path.rglob("commitlog/*"):
            os.utime(file, (0, 0))  # long ago, whatever the clock of the test
        await cluster.advance(minutes=30)
        one = await finding(cluster, "offset-below-min", "group", "billing")
        assert "never consumed" in one.message

    hours = ";".join(f"{hour:02}" for hour in range(24))
    settings = {
        "mappedFileSizeCommitLog": 131_072, "fileReservedTime": 1, "deleteWhen": hours, "maxMessageSize": 65_536,
        "mappedFileSizeConsumeQueue": 200,
    }  # fmt: skip
    ill(make, settings=settings, folder=tmp_path)


@pytest.mark.parametrize(("kind", "expression"), [("TAG", " || "), ("SQL92", "price >")])
def test_an_expression_that_cannot_be_read(kind: str, expression: str) -> None:
    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = ConsumerData("billing", subscription_data_set=[SubscriptionData("orders", expression,
                                                                                   expression_type=kind)])  # fmt: skip
        async with cluster.admin() as admin:
            remoting, address = admin.instance.remoting, cluster.brokers["broker-a"].address
            # Our clients refuse the expression themselves; clients in other languages leave it to the broker.
            await rpc.heartbeat(remoting, address, HeartbeatData("10.0.0.1@go", consumers=[consumer]))
            found = await diagnose(admin, "group", "billing")
        assert "filter-unreadable" in found.names

    ill(make)


def test_spans_of_time_in_words() -> None:
    assert [group.duration(ms) for ms in (850, 42_000, 420_000, 12_600_000, 181_440_000)] == [
        "850 ms", "42 s", "7 min", "3.5 h", "2.1 days",
    ]  # fmt: skip
