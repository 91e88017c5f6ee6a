"""What goes one over a limit is refused by name, counted, and changes nothing."""

from __future__ import annotations

import pytest
from broker_bench import OpenBench

from tianzhou.wire.codes import ResponseCode
from tianzhou.wire.command import Command


@pytest.mark.over_limit("maxQueuesPerTopic")
async def test_a_topic_has_no_more_queues_than_the_limit(broker: OpenBench) -> None:
    async with broker(max_queues_per_topic=8) as bench:
        peer = bench.peer()
        assert (await peer.create_topic("orders", 8)).code == ResponseCode.SUCCESS
        reply: Command = await peer.create_topic("orders", 9)
        assert (reply.code, reply.remark) == (
            ResponseCode.INVALID_PARAMETER,
            "readQueueNums of topic orders: 9 queues, at most 8 are allowed; raise maxQueuesPerTopic if that is meant",
        )
        assert bench.tables.topics.get("orders").read_queue_nums == 8
        assert await peer.refused() == {"maxQueuesPerTopic": "1"}
