"""A broker as a whole, over loopback: start, registration, restart, stop."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_broker import ask, name_server, pull, run, send, small_broker

from tianzhou.errors import ConfigError, ConnectionLost, StoreLocked
from tianzhou.model import HeartbeatData
from tianzhou.model.subscription import ConsumerData, SubscriptionData
from tianzhou.namesrv.server import NameServer
from tianzhou.records.codec import decode_records
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


async def brokers_of(client: RemotingClient, namesrv: str, topic: str) -> list[str]:
    reply = await ask(client, namesrv, 105, topic=topic)
    return [] if reply.code else [data.master or "" for data in ROUTE.loads(reply.body).broker_datas]


async def test_ready_means_that_topics_can_be_made_at_once(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, RemotingClient() as client:
        where = f"127.0.0.1:{names.port}"
        async with small_broker(tmp_path, namesrv_addr=where) as broker:
            await broker.ready()
            assert await brokers_of(client, where, "DefaultCluster") == [broker.address]
            reply = await ask(
                client, broker.address, 17, topic="made", default_topic="DefaultCluster", read_queue_nums=2,
                write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
            )  # fmt: skip
            assert reply.code == 0
            assert await brokers_of(client, where, "made") == [broker.address], "answered means known"
            await send(client, broker.address, topic="sent")
            await until_async(lambda: brokers_of(client, where, "sent"), within_s=1)
        assert await brokers_of(client, where, "made") == []


async def test_messages_topics_offsets_and_groups_survive_a_restart(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        async with small_broker(tmp_path) as broker:
            await send(client, broker.address, b"kept", default_topic_queue_nums=4)
            await send(client, broker.address, b"later", topic="T", properties="UNIQ_KEY\x01U\x02DELAY\x011\x02")
            await pull(client, broker.address)
            await ask(client, broker.address, 15, consumer_group="G", topic="T", queue_id=0, commit_offset=1)
        config = tmp_path / "broker-a" / "config"
        topics = json.loads((config / "topics.json").read_text())
        assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 4
        async with small_broker(tmp_path) as broker:
            assert "T" in broker.tables.topics
            assert "G" in broker.tables.groups
            found = await ask(client, broker.address, 14, consumer_group="G", topic="T", queue_id=0)
            assert read_reply(14, found).offset == 1
            reply = await pull(client, broker.address, queue_offset=1, sys_flag=6, suspend_timeout_millis=10_000)
            assert [record.body for record in decode_records(reply.body)] == [b"later"]
        async with small_broker(tmp_path) as broker:
            assert broker.tables.delays.offset(1) == 1
            assert (await pull(client, broker.address, queue_offset=2)).code == 19


async def test_offsets_are_written_while_running(tmp_path: Path) -> None:
    async with (
        RemotingClient() as client,
        small_broker(tmp_path, flush_consumer_offset_interval=20) as broker,
    ):
        await send(client, broker.address)
        await pull(client, broker.address)
        await ask(client, broker.address, 15, consumer_group="G", topic="T", queue_id=0, commit_offset=1)
        file = tmp_path / "broker-a" / "config" / "consumerOffset.json"

        async def written() -> bool:
            return file.exists() and '"T@G":{0:1' in file.read_text()

        await until_async(written)


async def test_a_broker_is_not_ready_before_a_name_server_knows_it(tmp_path: Path) -> None:
    async with name_server(tmp_path) as probe:
        port = probe.port
    async with small_broker(tmp_path, namesrv_addr=f"127.0.0.1:{port}") as broker:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await broker.ready()


async def test_one_name_server_that_is_away_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, name_server(tmp_path) as away, RemotingClient() as client:
        here, gone = f"127.0.0.1:{names.port}", f"127.0.0.1:{away.port}"
        await away.close()
        async with small_broker(tmp_path, namesrv_addr=f"{gone};{here}") as broker:
            await broker.ready()
            assert await brokers_of(client, here, "TBW102") == [broker.address]


async def test_a_name_server_that_comes_back_gets_registrations_at_once(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        names = name_server(tmp_path)
        await names.start()
        where = f"127.0.0.1:{names.port}"
        async with small_broker(tmp_path, namesrv_addr=where) as broker:
            await broker.ready()
            again = NameServer(replace(names.settings, listen_port=names.port))
            await names.close()
            await again.start()
            await until_async(lambda: brokers_of(client, where, "TBW102"), within_s=5)
            await again.close()


async def test_two_brokers_share_a_topic(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names, RemotingClient() as client:
        where = f"127.0.0.1:{names.port}"
        async with (
            small_broker(tmp_path, namesrv_addr=where) as one,
            small_broker(tmp_path, name="broker-b", namesrv_addr=where) as two,
        ):
            for broker in (one, two):
                await broker.ready()
                await send(client, broker.address)

            async def both() -> bool:
                return set(await brokers_of(client, where, "T")) == {one.address, two.address}

            await until_async(both)


def test_the_fast_port_serves_all_but_pulls(tmp_path: Path) -> None:
    from tianzhou.broker.server import free_port_pair

    async def served(port: int) -> None:
        async with RemotingClient() as client, small_broker(tmp_path, listen_port=port) as broker:
            fast = f"127.0.0.1:{port - 2}"
            assert broker.port == port
            assert (await send(client, fast)).code == 0
            assert (await pull(client, fast)).code == 3
            assert (await pull(client, broker.address)).code == 0

    async def main() -> None:
        for attempt in range(5):
            try:
                await served(free_port_pair("127.0.0.1"))
            except ConfigError:
                # Another process may take one of the two ports before the broker.
                if attempt == 4:
                    raise
            else:
                return

    run(main())


async def test_members_hear_of_each_other(tmp_path: Path) -> None:
    heard: list[int] = []
    async with (
        RemotingClient(lambda _, command: heard.append(command.code)) as first,
        RemotingClient() as second,
        small_broker(tmp_path) as broker,
    ):
        for client, name in ((first, "c1"), (second, "c2")):
            consumer = ConsumerData("G", subscription_data_set=[SubscriptionData("T")])
            body = HEARTBEAT.dumps(HeartbeatData(name, consumers=[consumer]))
            assert (await ask(client, broker.address, RequestCode.HEART_BEAT, body)).code == 0
        await second.close()

        async def told() -> bool:
            return heard == [40, 40, 40]

        await until_async(told)


async def test_a_pull_that_waits_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        async with small_broker(tmp_path) as broker:
            await send(client, broker.address)
            waiting = asyncio.ensure_future(
                pull(client, broker.address, queue_offset=1, sys_flag=6, suspend_timeout_millis=10_000)
            )
            await asyncio.sleep(0.05)
        with pytest.raises(ConnectionLost):
            await waiting


async def test_a_store_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with small_broker(tmp_path):
        with pytest.raises(StoreLocked):
            await small_broker(tmp_path).__aenter__()


async def test_an_address_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"brokerIP1=no\.such\.host\.invalid"):
        await small_broker(tmp_path, broker_ip1="no.such.host.invalid").__aenter__()
