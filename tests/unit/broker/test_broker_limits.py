"""What goes one over a limit is refused by name, counted, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from broker_bench import OpenBench, Peer

from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command


async def refused_of(peer: Peer) -> dict[str, str]:
    """The refusals in the runtime figures."""
    reply = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    return {key: value for key, value in KV_TABLE.loads(reply.body).items() if key.startswith("refused_")}


def create(peer: Peer, topic: str, queues: int) -> Any:
    return peer.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, default_topic="TBW102", read_queue_nums=queues,
        write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG",
    )  # fmt: skip


@pytest.mark.over_limit("maxQueuesPerTopic")
async def test_a_topic_has_no_more_queues_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_queues_per_topic=8) as bench:
        peer = bench.peer()
        assert (await create(peer, "orders", 8)).code == ResponseCode.SUCCESS
        reply: Command = await create(peer, "orders", 9)
        assert (reply.code, reply.remark) == (
            ResponseCode.INVALID_PARAMETER,
            "readQueueNums of topic orders: 9 queues, at most 8 are allowed; raise maxQueuesPerTopic if that is meant",
        )
        assert bench.tables.topics.get("orders").read_queue_nums == 8
        assert await refused_of(peer) == {"refused_maxQueuesPerTopic": "1"}
