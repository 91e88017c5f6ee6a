"""Topics and queues above their limits are refused by name and counted; existing ones are unchanged."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from broker_bench import Bench, OpenBench, Peer
from staging_talk import message, stage

from tianzhou.broker.state_files import StateFiles
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

REFUSED = ResponseCode.INVALID_PARAMETER


@pytest.mark.over_limit("maxTopics")
@pytest.mark.parametrize("door", ["17", "18", "send", "heartbeat", "staged"])
async def test_topics_come_to_an_end_at_every_door(bench: Bench, door: str) -> None:
    peer, topics = bench.peer(), bench.tables.topics
    bench.settings.max_topics = len(topics) + 1
    assert (await peer.create_topic("orders")).code == 0
    if door == "17":
        reply = await peer.create_topic("more")
    elif door == "18":
        config = {"topicName": "more", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        body = json.dumps({"topicConfigList": [config | {"topicName": "orders", "perm": 4}, config]}).encode()
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
        assert topics.get("orders").perm == 6, "all or nothing"
    elif door == "send":
        reply = await peer.send("more")
    elif door == "heartbeat":
        reply = await peer.heartbeat("c", "orders", group="more")
    else:
        reply = await stage(peer, "a", [message("m", topic="more")])
    assert reply.code == REFUSED
    assert "at most" in reply.remark
    assert "raise maxTopics" in reply.remark
    assert "more" not in topics
    assert await peer.refused() == {"maxTopics": "1"}
    # Existing topics are still served, changed and deleted.
    assert (await peer.send("orders")).code == 0
    assert (await peer.create_topic("orders", 4)).code == 0
    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
    assert (await peer.create_topic("more")).code == 0


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


@pytest.mark.over_limit("maxQueues")
async def test_all_topics_together_have_a_number_of_queues(bench: Bench) -> None:
    peer, topics = bench.peer(), bench.tables.topics
    bench.settings.max_queues = topics.queues + 10
    assert (await peer.create_topic("orders", 8)).code == 0
    assert (await peer.create_topic("bills", 3)).code == REFUSED
    assert (await peer.create_topic("orders", 11)).code == REFUSED
    assert (await peer.create_topic("orders", 7)).code == 0
    assert (await peer.create_topic("bills", 3)).code == 0
    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
    assert (await peer.create_topic("more", 7)).code == 0
    assert await peer.refused() == {"maxQueues": "2"}


@pytest.mark.parametrize("code", [200, 225])
async def test_a_group_has_no_more_retry_queues_than_a_topic_may_have(bench: Bench, code: int) -> None:
    peer, config = bench.peer(), {"groupName": "G", "retryQueueNums": 2**31 - 1}
    value = config if code == 200 else {"groupConfigList": [config]}
    reply = await peer.ask(code, json.dumps(value).encode())
    told = (
        "retryQueueNums of group G: 2147483647 queues, at most 65535 are allowed; "
        "raise maxQueuesPerTopic if that is meant"
    )
    assert (reply.code, reply.remark) == (REFUSED, told)
    assert "G" not in bench.tables.groups


async def test_files_with_endless_queues_are_taken_with_as_many_as_may_be(
    bench: Bench, peer: Peer, tmp_path: Any, caplog: Any
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    group = {"groupName": "G", "retryQueueNums": 2**31 - 1}
    (folder / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"G": group}}))
    topic = {"topicName": "T", "readQueueNums": 2**31 - 1, "writeQueueNums": 4, "perm": 6}
    (folder / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))
    with caplog.at_level(logging.WARNING):
        files = StateFiles(bench.tables, folder)
        files.load()
    assert "topic T has more queues" in caplog.text
    assert "group G has too many retry queues" in caplog.text
    assert (await peer.heartbeat("c", "T", group="G")).code == 0
    assert bench.tables.topics.get("%RETRY%G").read_queue_nums == 65_535
    assert bench.tables.topics.get("T").read_queue_nums == 65_535
    assert bench.tables.topics.get("T").write_queue_nums == 4
    files.close()


@pytest.mark.parametrize("door", ["17", "18"])
@pytest.mark.parametrize(
    ("number", "accepted"), [(-1, False), (99_999_999, False), (2**31 - 1, False), (0, True), (1_000, True)]
)
@pytest.mark.parametrize("use", ["read", "write"])
async def test_a_number_of_queues_that_would_harm_is_refused_at_every_door(
    bench: Bench, door: str, number: int, accepted: bool, use: str
) -> None:
    peer = bench.peer()
    assert (await peer.create_topic("orders", 4)).code == 0
    if door == "17":
        reply = await peer.create_topic("orders", 4, **{f"{use}_queue_nums": number})
    else:
        config = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        body = json.dumps({"topicConfigList": [config | {f"{use}QueueNums": number}]}).encode()
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
    kept = bench.tables.topics.get("orders")
    assert (reply.code == 0) == accepted, reply.remark
    assert getattr(kept, f"{use}_queue_nums") == (number if accepted else 4)
    if not accepted:
        assert f"{use}QueueNums of topic orders: {number}" in reply.remark


@pytest.mark.parametrize("text", ["", " ", "four"])
async def test_a_number_of_queues_that_is_none_is_refused(bench: Bench, text: str) -> None:
    reply = await bench.peer().create_topic("orders", read_queue_nums=text)
    assert reply.code != 0
    assert "readQueueNums" in reply.remark
    assert "orders" not in bench.tables.topics
