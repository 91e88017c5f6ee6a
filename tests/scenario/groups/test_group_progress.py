"""Output of tools about a group with a member of ours, and about its broker."""

from __future__ import annotations

import asyncio
from typing import Any

import tianzhou
from tianzhou.admin import Admin
from tianzhou.sync import PushConsumer
from waiting import until


def test_a_groups_place_in_every_queue_is_shown_its_retry_topics_too(tianzhou_cluster: Any) -> None:
    tianzhou_cluster.create_topic("orders", queues=2)
    consumer = PushConsumer("billing", tianzhou_cluster.namesrv_addr)
    consumer.on("orders")(lambda message: None)
    with consumer:
        tianzhou_cluster.send("orders", "a")
        tianzhou_cluster.wait_until_consumed("billing", "orders")
        # Queues are assigned one after the other, and messages may be consumed before the last assignment.
        until(lambda: len(consumer.assignment) == 3)

    async def shown() -> dict[str, int]:
        async with Admin(tianzhou_cluster.namesrv_addr) as admin:
            lag = await admin.groups.lag("billing")
        return {f"{one.queue.topic}:{one.queue.queue_id}": one.consumer_offset for one in lag.queues}

    found = asyncio.run(shown())
    assert found.keys() == {"orders:0", "orders:1", "%RETRY%billing:0"}
    assert sum(found.values()) == 1


def test_a_broker_says_which_version_of_which_program_it_is(tianzhou_cluster: Any) -> None:
    async def shown() -> Any:
        async with Admin(tianzhou_cluster.namesrv_addr) as admin:
            return (await admin.cluster.status())[0]

    status = asyncio.run(shown())
    assert (status.version, status.tianzhou_version) == ("V5_3_3", tianzhou.__version__)
    # Tools of RocketMQ 4.9 expect another spelling, and fail without it.
    assert status.runtime["getTransferedTps"] == status.runtime["getTransferredTps"]
