"""Queue numbers change in their order, and queues go when groups have consumed them; creation refuses a known name."""

from __future__ import annotations

from typing import Any

import pytest

from tianzhou import Message
from tianzhou.admin import Admin, QueueUse
from tianzhou.errors import AlreadyExists, ClientError, ConfigError
from tianzhou.model import MessageQueue
from tianzhou.model.subscription import MessageModel
from tianzhou.testing import AsyncCluster, run_virtual

pytestmark = pytest.mark.runner.with_args(run_virtual)


async def filled(cluster: AsyncCluster, admin: Admin, queues: int = 4) -> None:
    """Create the topic `orders` with a message in each queue of `broker-a`, all unread by the group `billing`."""
    await cluster.create_topic("orders", queues)
    await admin.groups.create("billing")
    async with cluster.producer("shop") as producer:
        for queue_id in range(queues):
            await producer.send(Message("orders", b"x"), MessageQueue("orders", "broker-a", queue_id))
    await admin.groups.reset("billing", "orders", to_earliest=True)


async def numbers(admin: Admin) -> dict[str, tuple[int, int]]:
    return {
        name: (config.read_queue_nums, config.write_queue_nums)
        for name, config in (await admin.topics.config("orders")).items()
    }


async def test_queues_go_when_the_groups_have_consumed_them() -> None:
    async with AsyncCluster() as cluster, cluster.admin() as admin:
        await filled(cluster, admin)
        plan = await admin.topics.plan_queues("orders", read_queue_nums=2, write_queue_nums=2)
        assert [(one.queue_id, one.messages, dict(one.unread)) for one in plan.dropped] == [
            (2, 1, {"billing": 1}),
            (3, 1, {"billing": 1}),
        ]
        assert await numbers(admin) == {"broker-a": (4, 4)}, "a plan changes nothing"
        left = await admin.topics.change_queues("orders", read_queue_nums=2, write_queue_nums=2)
        assert [(step.use, step.number, step.cuts_reading) for step in left.steps] == [(QueueUse.READ, 2, True)]
        assert left.unread() == {"billing": 2}
        assert await numbers(admin) == {"broker-a": (4, 2)}
        assert (await admin.groups.lag("billing", "orders")).total == 4, "no message is out of sight"
        await admin.groups.reset("billing", "orders", to_latest=True)
        left = await admin.topics.change_queues("orders", read_queue_nums=2, write_queue_nums=2)
        assert not left.steps
        assert await numbers(admin) == {"broker-a": (2, 2)}


async def test_queues_go_with_their_unread_messages_on_demand() -> None:
    async with AsyncCluster() as cluster, cluster.admin() as admin:
        await filled(cluster, admin)
        left = await admin.topics.change_queues("orders", read_queue_nums=1, write_queue_nums=1, drop_unread=True)
        assert not left.steps
        assert await numbers(admin) == {"broker-a": (1, 1)}


async def test_a_group_that_broadcasts_holds_no_queue() -> None:
    async with AsyncCluster() as cluster, cluster.admin() as admin:
        await filled(cluster, admin)
        await admin.groups.reset("billing", "orders", to_latest=True)
        consumer = cluster.push_consumer("screens", message_model=MessageModel.BROADCASTING)
        consumer.subscribe("orders", handler=lambda _: None)
        async with consumer:
            assert "screens" in await admin.topics.groups("orders")
            left = await admin.topics.change_queues("orders", read_queue_nums=2, write_queue_nums=2)
        assert not left.steps


async def test_a_message_that_comes_meanwhile_gives_its_broker_the_queues_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncCluster() as cluster, cluster.admin() as admin, cluster.producer("shop") as producer:
        await filled(cluster, admin)
        await admin.groups.reset("billing", "orders", to_latest=True)
        update = admin.topics.update
        sends = [MessageQueue("orders", "broker-a", 3)]

        async def late(topic: str, **settings: Any) -> Any:
            if settings.get("read_queue_nums") == 2 and sends:
                await producer.send(Message(topic, b"late"), sends.pop())
            return await update(topic, **settings)

        monkeypatch.setattr(admin.topics, "update", late)
        left = await admin.topics.change_queues("orders", read_queue_nums=2, write_queue_nums=2)
        assert left.unread() == {"billing": 1}
        assert await numbers(admin) == {"broker-a": (4, 2)}
        await admin.groups.reset("billing", "orders", to_latest=True)
        assert not (await admin.topics.change_queues("orders", read_queue_nums=2, write_queue_nums=2)).steps


async def test_more_queues_are_read_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncCluster() as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders", 2)
        update, calls = admin.topics.update, []

        async def recorded(topic: str, **settings: Any) -> Any:
            calls.append(settings)
            return await update(topic, **settings)

        monkeypatch.setattr(admin.topics, "update", recorded)
        assert not (await admin.topics.change_queues("orders", read_queue_nums=4, write_queue_nums=4)).steps
        assert calls == [
            {"read_queue_nums": 4, "brokers": ("broker-a",)},
            {"write_queue_nums": 4, "brokers": ("broker-a",)},
        ]


async def test_one_broker_changes_and_the_others_stay() -> None:
    async with AsyncCluster(brokers=2) as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders", 2)
        await admin.topics.change_queues("orders", read_queue_nums=5, write_queue_nums=5, brokers=["broker-b"])
        assert await numbers(admin) == {"broker-a": (2, 2), "broker-b": (5, 5)}
        # Brokers with different numbers get the same change, and no wait expects numbers that no broker has.
        changed = await admin.topics.update("orders", perm=4)
        assert {name: config.perm for name, config in changed.items()} == {"broker-a": 4, "broker-b": 4}
        assert await numbers(admin) == {"broker-a": (2, 2), "broker-b": (5, 5)}
        with pytest.raises(ClientError, match="topic orders is not on broker nowhere; it is on broker-a, broker-b"):
            await admin.topics.plan_queues("orders", read_queue_nums=1, brokers=["nowhere"])
        with pytest.raises(ConfigError, match="read_queue_nums of topic orders is 0; it has to be 1 to 65535"):
            await admin.topics.change_queues("orders", read_queue_nums=0)


async def test_the_order_of_an_ordered_topic_names_all_its_brokers() -> None:
    async with AsyncCluster(brokers=2) as cluster, cluster.admin() as admin:
        await cluster.create_topic("orders", 2, order=True)
        await admin.topics.update("orders", write_queue_nums=3, read_queue_nums=3, brokers=["broker-b"])
        assert await admin.cluster.get_kv("ORDER_TOPIC_CONFIG", "orders") == "broker-a:2;broker-b:3"


async def test_creation_refuses_a_name_that_exists() -> None:
    async with AsyncCluster(brokers=2) as cluster, cluster.admin() as admin:
        await admin.topics.create("orders", read_queue_nums=3, write_queue_nums=3, only_new=True)
        with pytest.raises(AlreadyExists, match="topic orders exists already"):
            await admin.topics.create("orders", only_new=True)
        assert set((await numbers(admin)).values()) == {(3, 3)}
        await admin.groups.create("billing", retry_max_times=1, only_new=True)
        with pytest.raises(AlreadyExists, match="group billing exists already"):
            await admin.groups.create("billing", only_new=True)
        assert {one.retry_max_times for one in (await admin.groups.config("billing")).values()} == {1}
