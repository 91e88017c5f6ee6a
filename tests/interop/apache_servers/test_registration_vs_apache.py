"""Our brokers at Apache's name servers: registrations of changed topics alone, and two brokers of one name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from apache import ApacheNamesrv
from toolchain import SERVERS, ToolchainMissingError

from broker_probe import BrokerProbe, register_by
from tianzhou.broker.registration.server_registration import ServerRegistration
from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.model import DataVersion, TopicConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.bodies.register import REGISTER_BODY
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.bodies.topics import DATA_VERSION
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header
from waiting import WITHIN_S, until_async

TIMEOUT_MS = 60_000


async def each_of_two_names_the_other(folder: Path, where: str) -> None:
    """Start a second master of a name beside the first one: Apache's name server refuses neither of them."""
    settings = replace(
        BrokerSettings(), broker_name="broker-twice", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0,
        namesrv_addr=where, register_name_server_period=60_000,
    )  # fmt: skip
    stores = (
        replace(
            StoreSettings(),
            store_path_root_dir=str(folder / name),
            mapped_file_size_commit_log=1 << 20,
            disk_max_used_space_ratio=99,
        )
        for name in ("first", "second")
    )
    async with Broker(replace(settings), next(stores)) as first:
        await asyncio.wait_for(first.ready(), WITHIN_S)
        async with Broker(replace(settings), next(stores)) as second:
            await asyncio.wait_for(second.ready(), WITHIN_S)
            await until_async(lambda: second.replication.other_holder == first.address, "the second names the first")
            began = asyncio.get_running_loop().time()
            await until_async(lambda: first.replication.other_holder == second.address, "the first names the second")
            assert asyncio.get_running_loop().time() - began < 30  # long before its next registration


@pytest.mark.parametrize("version", SERVERS)
def test_apaches_name_server_takes_changed_topics_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("tianzhou.broker.registration.server_registration.MANY_TOPICS", 10)
    told: list[set[str]] = []

    async def noted(self: ServerRegistration, body: bytes) -> bool:
        told.append(set(REGISTER_BODY.loads(body).table.topic_config_table))
        return await register(self, body)

    register = register_by(monkeypatch, noted)

    async def check(where: str) -> None:
        settings = replace(
            BrokerSettings(), broker_name="broker-a", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0,
            namesrv_addr=where, register_name_server_period=60_000,  # the whole table is registered again then
        )  # fmt: skip
        store = replace(
            StoreSettings(), store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1 << 20,
            disk_max_used_space_ratio=99,
        )  # fmt: skip
        async with Broker(settings, store) as broker, RemotingClient() as client:
            async with asyncio.timeout(WITHIN_S):
                await broker.ready()
            topics, registrar = broker.tables.topics, BrokerProbe.of(broker).registrar
            assert await registrar.settled(WITHIN_S)
            told.clear()

            async def queues(topic: str) -> int:
                command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": topic})
                reply = await client.invoke(where, command, TIMEOUT_MS)
                assert reply.code == ResponseCode.SUCCESS, (topic, reply.remark)
                return ROUTE.loads(reply.body).queue_datas[0].read_queue_nums

            async def known() -> DataVersion:
                fields = write_header(
                    RequestCode.QUERY_DATA_VERSION, broker_name="broker-a", broker_addr=broker.address,
                    cluster_name=settings.broker_cluster_name, broker_id=0,
                )  # fmt: skip
                body = DATA_VERSION.dumps(topics.version)
                command = Command(RequestCode.QUERY_DATA_VERSION, fields=fields, body=body)
                return DATA_VERSION.loads((await client.invoke(where, command, TIMEOUT_MS)).body)

            for name, count in (("new", 3), ("newer", 5), ("new", 7)):
                topics.put(TopicConfig(name, count, count), 1)
                assert await registrar.settled(WITHIN_S)
                assert await queues(name) == count
            assert told == [{"new"}, {"newer"}, {"new"}]
            assert await queues("TBW102") == 8
            assert await queues("newer") == 5
            assert (await known()).counter == topics.version.counter
            # Several that change together are registered together.
            topics.put_all([TopicConfig("a", 1, 1), TopicConfig("b", 2, 2)], 2)
            assert await registrar.settled(WITHIN_S)
            assert told[-1] == {"a", "b"}
            assert (await queues("a"), await queues("b")) == (1, 2)

    try:
        server = ApacheNamesrv(version=version)
        with server:
            asyncio.run(check(f"127.0.0.1:{server.port}"))
            asyncio.run(each_of_two_names_the_other(tmp_path, f"127.0.0.1:{server.port}"))
    except ToolchainMissingError as error:
        pytest.skip(str(error))
