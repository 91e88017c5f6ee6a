"""The state that brokers and tools create at a name server is bounded, and a bad topic does not affect the others."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from name_server_desk import Desk

from broker_probe import NamesrvProbe
from tianzhou.model import DataVersion, QueueData, TopicConfig, TopicRoute
from tianzhou.remoting.side_thread import WeightedSemaphore
from tianzhou.wire.bodies.register import REGISTER_BODY, RegisterBody, RegisterCodec
from tianzhou.wire.bodies.route import CLUSTER_INFO, STANDARD_ROUTE
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import TopicTable
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import write_header

REFUSED, NO_TOPIC = 29, 17


async def register(desk: Desk, *topics: TopicConfig, broker: str = "broker-a", **header: Any) -> Any:
    """Register topics with the queues they have."""
    table = TopicTable({topic.topic_name: topic for topic in topics}, DataVersion(1, 1))
    body = REGISTER_BODY.dumps(RegisterBody(table, header.pop("filter_servers", [])))
    return await send(desk, body, broker, **header)


async def send(desk: Desk, body: bytes, broker: str, **header: Any) -> Any:
    fields: dict[str, Any] = {
        "broker_name": broker, "broker_addr": f"{broker}:1", "cluster_name": "C", "ha_server_addr": "",
        "broker_id": 0, "compressed": False, "body_crc32": 0, "enable_acting_master": False,
    }  # fmt: skip
    return await desk.ask(
        RequestCode.REGISTER_BROKER, body, **write_header(RequestCode.REGISTER_BROKER, **fields | header)
    )


def topic(name: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(name, queues, queues)


def put(desk: Desk, key: str, value: str, namespace: str = "ORDER_TOPIC_CONFIG") -> Any:
    return desk.ask(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)


def refused(desk: Desk) -> dict[str, int]:
    return NamesrvProbe(desk.server).refusals


@pytest.mark.over_limit("maxQueuesPerTopic")
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_topic_with_endless_queues_is_left_out_and_the_others_are_taken(
    desk: Desk, compressed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = TopicTable({"A": topic("A"), "B": topic("B", 2**31 - 1), "C": topic("C", 65_535)}, DataVersion(1, 1))
    data = RegisterCodec(compressed=compressed).dumps(RegisterBody(table))
    with caplog.at_level(logging.WARNING):
        replies = [await send(desk, data, "broker-a", compressed=compressed) for _ in range(2)]
    assert [reply.code for reply in replies] == [0, 0]
    assert await desk.route("B") == NO_TOPIC
    assert [(await desk.route(name)).queue_datas[0].read_queue_nums for name in "AC"] == [4, 65_535]
    assert (
        sum("broker broker-a registers 1 topics or mappings that limits leave out" in line for line in caplog.messages)
        == 1
    )
    assert refused(desk) == {"maxQueuesPerTopic": 2}


async def test_a_route_that_a_tool_registers_keeps_to_the_limits(tmp_path: Path) -> None:
    async with Desk(tmp_path, max_topics=3) as desk:
        await register(desk, topic("A"), topic("B"))

        async def add(name: str, queues: int) -> int:
            route = TopicRoute(queue_datas=[QueueData("broker-a", queues, queues, 6, 0)])
            data = STANDARD_ROUTE.dumps(route)
            return (await desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, data, topic=name)).code

        assert [await add("N", 65_536), await add("N", 8), await add("M", 8), await add("A", 8)] == [
            REFUSED,
            0,
            REFUSED,
            0,
        ]
        assert await desk.route("M") == NO_TOPIC
        assert refused(desk) == {"maxQueuesPerTopic": 1, "maxTopics": 1}


@pytest.mark.over_limit("maxTopics")
@pytest.mark.over_limit("maxRoutes")
@pytest.mark.parametrize("key", ["max_topics", "max_routes"])
async def test_topics_beyond_the_limit_are_left_out(tmp_path: Path, key: str) -> None:
    async with Desk(tmp_path, **{key: 3}) as desk:
        assert (await register(desk, topic("A"), topic("B"))).code == 0
        assert (await register(desk, topic("X"), topic("Y"), broker="broker-b")).code == 0
        assert await desk.route("X") != NO_TOPIC
        assert await desk.route("Y") == NO_TOPIC
        assert (await register(desk, topic("A", 8), topic("B"))).code == 0
        await desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="A")
        assert (await register(desk, topic("X"), topic("Y"), broker="broker-b")).code == 0
        assert await desk.route("Y") != NO_TOPIC


@pytest.mark.over_limit("maxBrokers")
@pytest.mark.parametrize("how", ["names", "ids", "clusters"])
async def test_brokers_come_to_an_end_and_who_is_there_stays(tmp_path: Path, how: str) -> None:
    async with Desk(tmp_path, max_brokers=2) as desk:

        def come(number: int) -> Any:
            if how == "names":
                return register(desk, topic("A"), topic("B"), broker=f"broker-{number}")
            if how == "ids":
                return register(desk, topic("A"), topic("B"), broker_id=number, broker_addr=f"10.0.0.{number}:1")
            return register(desk, topic("A"), topic("B"), cluster_name=f"C{number}")

        replies = [await come(number) for number in range(3)]
        assert [reply.code for reply in replies] == [0, 0, REFUSED]
        assert "raise maxBrokers" in replies[2].remark
        assert (await come(1)).code == 0
        info = CLUSTER_INFO.loads((await desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert "C2" not in info.cluster_addr_table
        assert "broker-2" not in info.broker_addr_table


@pytest.mark.over_limit("maxFilterServers")
async def test_a_broker_has_a_number_of_filter_servers(tmp_path: Path) -> None:
    async with Desk(tmp_path, max_filter_servers=2) as desk:
        servers = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
        assert (await register(desk, topic("A"), topic("B"), filter_servers=servers)).code == REFUSED
        assert (await register(desk, topic("A"), topic("B"), filter_servers=servers[:2])).code == 0


@pytest.mark.over_limit("maxQueueMappings")
async def test_mappings_of_static_topics_come_to_an_end(tmp_path: Path) -> None:
    async with Desk(tmp_path, max_queue_mappings=2) as desk:
        mappings = {name: {"topic": name, "bname": "broker-a", "totalQueues": 1} for name in "ABC"}
        assert (await desk.register("A", "B", "C", mappings=mappings)).code == 0
        routes = [await desk.route(name) for name in "ABC"]
        assert [bool(route.topic_queue_mapping_by_broker) for route in routes] == [True, True, False]
        again = {"A": {"topic": "A", "bname": "somebody", "totalQueues": 1}}
        assert (await desk.register("A", "B", "C", mappings=again, counter=2)).code == 0
        assert "somebody" not in (await desk.route("A")).topic_queue_mapping_by_broker
        # A mapping of another broker's queues is refused in any case.
        assert refused(desk) == {"maxQueueMappings": 1}


@pytest.mark.over_limit("maxRegistrationBytes")
@pytest.mark.parametrize("noise", [0, 100_000])
async def test_a_registration_that_unpacks_too_large_is_refused(tmp_path: Path, noise: int) -> None:
    async with Desk(tmp_path, max_registration_bytes=1_000_000) as desk:
        data = zlib.compress(random.Random(1).randbytes(noise) + bytes(2_000_000))
        reply = await send(desk, data, "broker-a", compressed=True)
        assert reply.code == REFUSED
        assert reply.remark.startswith("registration of broker broker-a: 1000001 bytes, at most 1000000 are allowed")
        assert (await register(desk, topic("A"), topic("B"))).code == 0
        assert refused(desk) == {"maxRegistrationBytes": 1}


@pytest.mark.over_limit("maxRegistrationsBytes")
async def test_large_registrations_wait_for_each_other_and_are_not_all_remembered(tmp_path: Path) -> None:
    async with Desk(tmp_path, max_registrations_bytes=600_000) as desk:
        topics = [topic(f"topic-{number:05}") for number in range(2_000)]
        replies = await asyncio.gather(*(register(desk, *topics, broker=f"broker-{n}") for n in range(6)))
        assert [reply.code for reply in replies] == [0] * 6
        assert len((await desk.route("topic-01999")).queue_datas) == 6
        remembered = NamesrvProbe(desk.server).remembered_registrations
        assert 0 < remembered < 6
        assert refused(desk) == {"maxRegistrationsBytes": 6 - remembered}
        # A forgotten broker is registered again, and stays.
        assert (await register(desk, *topics, broker="broker-5")).code == 0


async def test_the_semaphore_lets_in_what_fits_in_order_and_the_largest_alone() -> None:
    semaphore, log = WeightedSemaphore(), []

    async def work(name: str, size: int) -> None:
        async with semaphore.acquired(size, 10):
            log.append(name)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            log.append(name.lower())

    tasks = [asyncio.ensure_future(work(name, size)) for name, size in (("A", 6), ("B", 6), ("C", 3), ("D", 99))]
    await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(work("E", 1)))
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    text = "".join(log)
    assert text.startswith("A")
    assert "Dd" in text, "alone"
    assert sorted(text) == sorted("AaCcDdEe")
    assert semaphore._used == 0


@pytest.mark.over_limit("maxKvValueBytes")
@pytest.mark.over_limit("maxKvEntries")
@pytest.mark.over_limit("maxKvBytes")
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_kv_value_bytes": 12}, "maxKvValueBytes"),
        ({"max_kv_entries": 3}, "maxKvEntries"),
        ({"max_kv_bytes": 45}, "maxKvBytes"),
    ],
)
async def test_the_kv_configuration_comes_to_an_end(tmp_path: Path, settings: dict[str, int], name: str) -> None:
    async with Desk(tmp_path, **settings) as desk:
        assert (await put(desk, "A", "1234567890")).code == 0
        assert (await put(desk, "B", "1")).code == 0
        long = "12345678901" if name == "maxKvValueBytes" else "123456789"
        reply = await put(desk, "C", long)
        assert (reply.code, f"raise {name}" in reply.remark) == (REFUSED, True)
        assert reply.remark.startswith("KV configuration ORDER_TOPIC_CONFIG/C:") or name != "maxKvValueBytes"
        assert (await desk.ask(RequestCode.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="C")).code == 22
        assert (await put(desk, "A", "1")).code == 0
        await desk.ask(RequestCode.DELETE_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A")
        assert (await put(desk, "C", "12345")).code == 0
        assert refused(desk) == {name: 1}


async def test_an_order_configuration_too_long_in_the_file_does_not_stop_routes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"ORDER_TOPIC_CONFIG": {"A": "x" * 9_000_000, "B": "broker-a:4", "C": "y" * 9_000_000}}
    (tmp_path / "kvConfig.json").write_text(json.dumps({"configTable": table}))

    async with Desk(tmp_path, order_message_enable=True) as desk:
        with caplog.at_level(logging.WARNING):
            reply = await register(desk, topic("A"), topic("B"))
            assert (reply.code, bytes(reply.body)) == (0, b"")
            assert (await desk.route("A")).order_topic_conf is None
        assert (await desk.route("B")).order_topic_conf == "broker-a:4"
        assert "it is not sent to brokers" in caplog.text
        listed = await desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
        assert (listed.code, listed.remark[:31]) == (REFUSED, "the reply to request 219: 18000")
        for key in "AC":
            await desk.ask(RequestCode.DELETE_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key=key)
        reply = await register(desk, topic("A"), topic("B"))
        assert KV_TABLE.loads(reply.body) == {"B": "broker-a:4"}
