"""Subscriptions in pulls, and the permission to pull."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_bench import Bench, OpenBench, Peer

from tianzhou.model import ConsumerData, ConsumeType, HeartbeatData, SubscriptionData, TopicConfig
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.offsets import QUEUE_UNITS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.hashing import tags_code
from tianzhou.wire.json_dialect import loads


async def test_what_pulls_bring_along_is_shown_for_ten_minutes(bench: Bench, peer: Peer) -> None:
    await peer.send("T", properties={"TAGS": "a", "UNIQ_KEY": "U"})

    async def shown(group: str = "G") -> dict[str, Any]:
        answer: dict[str, Any] = loads((await peer.ask(345, group=group, topic="T")).body)
        found: dict[str, Any] = answer.get("subscriptionData", {})
        return found

    assert await shown() == {}
    await peer.pull("T", subscription="a || b")
    said = await shown()
    assert (said["subString"], said["expressionType"]) == ("a || b", "TAG")
    assert sorted(said["tagsSet"]) == ["a", "b"]
    assert sorted(said["codeSet"]) == sorted([tags_code("a"), tags_code("b")])
    units = QUEUE_UNITS.loads((await peer.ask(321, topic="T", queue_id=0, count=1, consumer_group="G")).body)
    assert [unit.eval for unit in units.queue_data or []] == [True]
    await peer.pull("T", subscription="||")
    assert (await shown())["subString"] == "a || b", "what was refused is not remembered"
    await peer.heartbeat("c1", "T", expression="c")
    assert (await shown())["subString"] == "c", "members have the last word"
    await asyncio.sleep(601)
    bench.tables.clients.forget_pulls(bench.clock.now_ms() - 600_000)
    assert (await shown())["subString"] == "c"
    await peer.ask(RequestCode.UNREGISTER_CLIENT, client_id="c1", consumer_group="G")
    assert await shown() == {}


async def test_sql_that_a_pull_brings_along_is_shown_too(broker: OpenBench) -> None:
    async with broker(enable_property_filter=True) as bench:
        peer = bench.peer()
        await peer.send("T")
        await peer.pull("T", subscription="a > 5", expression_type="SQL92")
        answer = loads((await peer.ask(345, group="G", topic="T")).body)
        assert answer["subscriptionData"]["expressionType"] == "SQL92"
        assert answer["subscriptionData"]["subString"] == "a > 5"


async def test_where_pull_consumers_are_rejected_only_push_groups_pull(broker: OpenBench) -> None:
    async with broker(reject_pull_consumer_enable=True) as bench:
        peer = bench.peer()
        await peer.send("T")
        refused = await peer.pull("T")
        assert refused.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert refused.remark is not None
        assert "rejectPullConsumerEnable" in refused.remark
        said = [SubscriptionData("T")]
        pulling = HeartbeatData("p1", [], [ConsumerData("P", ConsumeType.CONSUME_ACTIVELY, subscription_data_set=said)])
        await peer.ask(RequestCode.HEART_BEAT, HEARTBEAT.dumps(pulling))
        assert (await peer.pull("T", consumer_group="P")).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await peer.heartbeat("c1", "T")
        assert (await peer.pull("T")).code == ResponseCode.SUCCESS


async def test_expressions_for_a_topic_go_with_it(broker: OpenBench) -> None:
    async with broker(enable_property_filter=True) as bench:
        peer = bench.peer()
        for topic in ("T", "U"):
            bench.tables.topics.put(TopicConfig(topic), 1)
            await peer.heartbeat("c1", topic, group=topic, expression="a > 5", kind="SQL92")
        assert bench.tables.filters.find("T", "T") is not None
        await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        assert bench.tables.filters.find("T", "T") is None
        assert bench.tables.filters.find("U", "U") is not None
