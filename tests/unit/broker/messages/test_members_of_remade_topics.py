"""Members of our own client over changes of topics and groups: every acknowledged message is consumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tianzhou.model import MessageExt, MessageModel, TopicConfig
from tianzhou.store.results import NewRecord
from tianzhou.testing import AsyncCluster, run_virtual


def clustered(make: Callable[[AsyncCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncCluster(virtual=True) as cluster:
            await make(cluster)

    run_virtual(main())


@pytest.mark.parametrize("model", MessageModel)
@pytest.mark.parametrize("restarts", [False, True], ids=["the broker stays", "the broker restarts"])
def test_a_topic_that_is_made_again_while_members_run(model: MessageModel, restarts: bool, tmp_path: Path) -> None:
    seen: Counter[bytes] = Counter()

    async def make(cluster: AsyncCluster) -> None:
        await cluster.create_topic("orders", 1)
        consumer = cluster.push_consumer("billing", message_model=model, local_offset_dir=tmp_path)

        @consumer.on("orders")
        async def consume(message: MessageExt) -> None:
            seen[message.body] += 1

        async with consumer, cluster.admin() as admin:
            for number in range(10):
                await cluster.send("orders", f"old{number}")
            await cluster.wait_until(lambda: len(seen) == 10, "the old ones are consumed")
            await cluster.advance(seconds=10)
            await admin.topics.delete("orders")
            if restarts:
                await cluster.brokers["broker-a"].stop()
                await cluster.brokers["broker-a"].start()
                await cluster.advance(seconds=10)
            await cluster.create_topic("orders", 1)
            for number in range(10):
                await cluster.send("orders", f"new{number}")
            await cluster.wait_until(lambda: len(seen) == 20, "the new ones are consumed", within=120)
            await cluster.advance(seconds=30)

    clustered(make)
    assert set(seen.values()) == {1}, seen


def test_a_group_finds_retries_in_queues_that_its_topic_did_not_have() -> None:
    found: list[bytes] = []

    async def make(cluster: AsyncCluster) -> None:
        broker = cluster.brokers["broker-a"]
        retry = "%RETRY%billing"
        tables = broker.running.tables
        tables.topics.put(TopicConfig(retry, 1, 1), 1)
        for queue_id in range(4):
            broker.running.store.append(
                NewRecord(retry, queue_id, b"failed%d" % queue_id, b"RETRY_TOPIC\x01orders\x02")
            )
        await cluster.create_topic("orders", 1)
        await broker.stop()
        await broker.start()
        consumer = cluster.push_consumer("billing")

        @consumer.on("orders")
        async def consume(message: MessageExt) -> None:
            found.append(message.body)

        async with consumer:
            await cluster.wait_until(lambda: len(found) == 4, "all retries come")

    clustered(make)
    assert sorted(found) == [b"failed0", b"failed1", b"failed2", b"failed3"]
