"""Replies that grow with the data are built in slices, and other requests are served in between."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from broker_bench import Bench, OpenBench

from tianzhou.broker.tables.clients import RegisteredClient
from tianzhou.model import ConsumerData, MessageQueue, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from tianzhou.remoting import turns
from tianzhou.wire.bodies.clients import LOCK_REQUEST, LockRequest
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUPS
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS
from tianzhou.wire.codes import RequestCode

MANY = 600
GROUPS = SUBSCRIPTION_GROUPS.dumps(SubscriptionGroupConfig(f"N{n}") for n in range(MANY))
TOPICS = TOPIC_CONFIGS.dumps(TopicConfig(f"N{n}", 1, 1) for n in range(MANY))
LOCK = LOCK_REQUEST.dumps(LockRequest("c", "G", [MessageQueue("W", "b", n) for n in range(MANY)]))

ASKED: dict[str, tuple[int, bytes, dict[str, Any]]] = {
    "41": (RequestCode.LOCK_BATCH_MQ, LOCK, {}),
    "225": (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, GROUPS, {}),
    "18": (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, TOPICS, {}),
    "328": (RequestCode.GET_ALL_PRODUCER_INFO, b"", {}),
    "204": (RequestCode.GET_PRODUCER_CONNECTION_LIST, b"", {"producer_group": "P"}),
    "203": (RequestCode.GET_CONSUMER_CONNECTION_LIST, b"", {"consumer_group": "C"}),
    "201": (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b"", {}),
    "43": (RequestCode.GET_ALL_CONSUMER_OFFSET, b"", {}),
    "343": (RequestCode.QUERY_TOPICS_BY_CONSUMER, b"", {"group": "G0"}),
    "300": (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, b"", {"topic": "T0"}),
    "21": (RequestCode.GET_ALL_TOPIC_CONFIG, b"", {}),
    "202": (RequestCode.GET_TOPIC_STATS_INFO, b"", {"topic": "W"}),
    "208": (RequestCode.GET_CONSUME_STATS, b"", {"consumer_group": "G0", "topic": "W"}),
    "317": (RequestCode.GET_BROKER_CONSUME_STATS, b"", {}),
    "303": (RequestCode.QUERY_CONSUME_TIME_SPAN, b"", {"topic": "W", "group": "G0"}),
    "308": (RequestCode.QUERY_CORRECTION_OFFSET, b"", {"topic": "W", "filter_groups": "", "compare_group": "G0"}),
    "222": (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        b"",
        {"topic": "W", "group": "G0", "timestamp": -1, "is_force": True},
    ),
    "314": (RequestCode.CLONE_GROUP_OFFSET, b"", {"src_group": "G0", "dest_group": "G1", "topic": "W"}),
}


def fill(bench: Bench) -> None:
    """Create many topics, groups and messages."""
    tables, connection = bench.tables, bench.peer().connection
    tables.topics.put_all([TopicConfig(f"T{n}", 1, 1) for n in range(MANY)] + [TopicConfig("W", MANY, MANY)], 1)
    tables.groups.put_all([SubscriptionGroupConfig(f"G{n}") for n in range(MANY)], 1)
    for number in range(MANY):
        tables.offsets.commit(f"G{number}", "T0", 0, 1, 1)
        tables.offsets.commit("G0", f"T{number}", 0, 1, 1)
        tables.offsets.commit("G0", "W", number, 1, 1)
        client = RegisteredClient(bench.peer().connection, f"c{number}", 0, 479, 1, 0.0)
        tables.clients.add_producer("P", client)
        tables.clients.add_producer(f"P{number}", RegisteredClient(connection, "p", 0, 479, 1, 0.0))
        said = ConsumerData("C", subscription_data_set=[SubscriptionData("T0", f"a{number % 2}")])
        tables.clients.add_consumer(said, client)


@pytest.mark.parametrize("kind", ASKED)
async def test_a_large_answer_is_made_in_slices(broker: OpenBench, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, body, header = ASKED[kind]

    async with broker(max_groups_per_connection=1_000_000) as bench:
        fill(bench)
        whole = await bench.peer().ask(code, body, **header)
        # Every slice ends immediately, so all work that can pause does.
        monkeypatch.setattr(turns, "SLICE_S", 0.0)
        peer, other = bench.peer(), bench.peer()
        asked, waited = peer.post(code, body, **header), 0
        while (reply := peer.peek(asked)) is None:
            assert (await other.ask(RequestCode.GET_MAX_OFFSET, topic="W", queue_id=0)).code == 0
            waited += 1
            await asyncio.sleep(0)
        assert waited > 2
        assert (reply.code, bytes(reply.body)) == (whole.code, bytes(whole.body)) == (0, bytes(whole.body))


async def test_all_that_a_large_heartbeat_does_is_counted(broker: OpenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    spend = turns.Turns.spend

    def noted(self: turns.Turns, seconds: float) -> None:
        spent.append(seconds)
        spend(self, seconds)

    monkeypatch.setattr(turns.Turns, "spend", noted)

    async with broker() as bench:
        clients = bench.tables.clients
        add = clients.add_producer

        def slowly(group: str, client: RegisteredClient) -> None:
            bench.clock.advance(0.0001)
            add(group, client)

        monkeypatch.setattr(clients, "add_producer", slowly)
        groups = [{"groupName": f"P{n}"} for n in range(1_000)]
        said = json.dumps({"clientID": "c", "producerDataSet": groups}).encode()
        assert (await bench.peer().ask(RequestCode.HEART_BEAT, said)).code == 0
        assert sum(spent) == pytest.approx(0.1)
        assert max(spent) < 0.005


async def test_a_key_that_is_looked_for_long_lets_others_be_served(
    broker: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)

    async with broker(store={"max_hash_slot_num": 1, "max_index_num": 10_000}) as bench:
        bench.tables.topics.put(TopicConfig("T", 1, 1), 1)
        peer, other = bench.peer(), bench.peer()
        for number in range(2_000):
            assert (await peer.send("T", properties={"KEYS": f"K{number}"})).code == 0
        asked = peer.post(
            RequestCode.QUERY_MESSAGE, topic="T", key="K3", max_num=1, begin_timestamp=0, end_timestamp=1 << 60
        )
        waited = 0
        while (reply := peer.peek(asked)) is None:
            assert (await other.ask(RequestCode.GET_MAX_OFFSET, topic="T", queue_id=0)).code == 0
            waited += 1
        assert (waited > 4, reply.code) == (True, 0)


async def test_few_locks_wait_for_nobody(broker: OpenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)

    async with broker() as bench:
        peer = bench.peer()
        wish = LockRequest("c", "G", [MessageQueue("T", "b", n) for n in range(8)])
        reply = peer.peek(peer.post(RequestCode.LOCK_BATCH_MQ, LOCK_REQUEST.dumps(wish)))
        assert len(json.loads(bytes(reply.body))["lockOKMQSet"]) == 8
