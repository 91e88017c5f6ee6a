"""A master and its slave behind one name server, and our client before them: what holds while the master is away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from small_broker import ask, name_server, run, small_broker

from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.server import Broker
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.producer.producer import Producer
from tianzhou.model import Message, MessageQueue, SendStatus
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


def broker(folder: Path, namesrv: str, role: str, broker_id: int) -> Broker:
    store = {"broker_role": role, "store_path_root_dir": str(folder / role), "max_index_num": 4000}
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id)


async def bodies_of_orders(namesrv: str, count: int) -> set[bytes]:
    """What a consumer reads of the topic, until it has so many different bodies."""
    found: set[bytes] = set()
    async with PullConsumer("g", namesrv) as consumer:
        queues = await consumer.queues("orders")
        consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, 0)
        while len(found) < count:
            found |= {message.body for message in await consumer.poll(timeout_ms=1000)}
    return found


async def test_a_group_is_served_by_the_slave_while_the_master_is_away(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await master.ready()
            slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
            await slave.ready()
            async with Producer("p", namesrv) as producer:
                for i in range(100):
                    await producer.send(Message("orders", b"%d" % i))
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            client = await stack.enter_async_context(RemotingClient())
            reply = await ask(client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            assert ROUTE.loads(reply.body).broker_datas[0].broker_addrs == {0: master.address, 1: slave.address}
        assert await bodies_of_orders(namesrv, 100) == {b"%d" % i for i in range(100)}


async def test_a_sync_master_acknowledges_what_its_slave_has(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(broker(tmp_path, namesrv, "SYNC_MASTER", 0))
        await master.ready()
        producer = await stack.enter_async_context(Producer("p", namesrv))
        assert (await producer.send(Message("orders", b"alone"))).status is SendStatus.SLAVE_NOT_AVAILABLE
        async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
            await slave.ready()
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            for i in range(50):
                result = await producer.send(Message("orders", b"%d" % i))
                assert result.status is SendStatus.SEND_OK
                assert slave.store.end_offset == master.store.end_offset
            batch = await producer.send_batch([Message("orders", b"%d" % i) for i in range(20)])
            assert batch.status is SendStatus.SEND_OK
        assert (await producer.send(Message("orders", b"alone again"))).status is SendStatus.SLAVE_NOT_AVAILABLE


async def test_a_slave_sends_readers_back_to_its_master_and_serves_them_without_it(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient())

        async def pull(offset: int, suspend_ms: int = 0) -> Command:
            return await ask(
                client, slave.address, RequestCode.PULL_MESSAGE, consumer_group="g", topic="orders", queue_id=0,
                queue_offset=offset, max_msg_nums=32, sys_flag=6, commit_offset=0, suspend_timeout_millis=suspend_ms,
                subscription="*", sub_version=0,
            )  # fmt: skip

        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await master.ready()
            slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
            await slave.ready()
            async with Producer("p", namesrv) as producer:
                queue = (await producer.queues("TBW102"))[0]
                await producer.send(Message("orders", b"one"), queue=MessageQueue("orders", queue.broker_name, 0))
            await until_async(lambda: slave.store.max_offset("orders", 0) == 1, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            assert (await pull(0)).code == ResponseCode.SUCCESS
            assert (await pull(1, suspend_ms=20_000)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        await until_async(lambda: not slave.replication.near_master, "the master is away")
        assert (await pull(1, suspend_ms=50)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_slave_that_was_first_finds_its_master_when_that_comes(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        for _ in range(2):
            # The second time at another port, as it is any free one.
            async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
                await master.ready()
                async with Producer("p", namesrv) as producer:
                    await producer.send(Message("orders", b"body"))
                await until_async(lambda m=master: slave.store.end_offset == m.store.end_offset, "copied")


async def test_a_topic_of_the_masters_last_moment_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slave has never been told of the topic, only of its message."""
    monkeypatch.setattr(MetadataSync, "round", lambda self: asyncio.sleep(0))
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv, "SYNC_MASTER", 0) as master:
            await master.ready()
            slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
            await slave.ready()
            await until_async(lambda: slave.replication.near_master, "copying")
            async with Producer("p", namesrv) as producer:
                for i in range(8):
                    assert (await producer.send(Message("orders", b"%d" % i))).status is SendStatus.SEND_OK
        assert await bodies_of_orders(namesrv, 8) == {b"%d" % i for i in range(8)}
