"""Consumers at a slave: pulls, topics and offsets while the master runs, while it is down, and when it returns."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from small_broker import ask, bodies_of_orders, pair_site, run, small_broker

from tianzhou.admin import Admin
from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.server import Broker
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.producer.producer import Producer
from tianzhou.model import Message, MessageQueue, SendStatus
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


async def test_a_group_is_served_by_the_slave_while_the_master_is_away(tmp_path: Path) -> None:
    async with pair_site(tmp_path) as site:
        namesrv = site.namesrv
        async with site.running("ASYNC_MASTER") as master:
            slave = await site.slave()
            async with Producer("p", namesrv) as producer:
                for i in range(100):
                    await producer.send(Message("orders", b"%d" % i))
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            reply = await ask(site.client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            assert ROUTE.loads(reply.body).broker_datas[0].broker_addrs == {0: master.address, 1: slave.address}
        assert await bodies_of_orders(namesrv, 100) == {b"%d" % i for i in range(100)}


async def test_a_slave_sends_readers_back_to_its_master_and_serves_them_without_it(tmp_path: Path) -> None:
    async with pair_site(tmp_path) as site:
        client, namesrv = site.client, site.namesrv

        async def pull(offset: int, suspend_ms: int = 0) -> Command:
            return await ask(
                client, slave.address, RequestCode.PULL_MESSAGE, consumer_group="g", topic="orders", queue_id=0,
                queue_offset=offset, max_msg_nums=32, sys_flag=6, commit_offset=0, suspend_timeout_millis=suspend_ms,
                subscription="*", sub_version=0,
            )  # fmt: skip

        async with site.running("ASYNC_MASTER"):
            slave = await site.slave()
            async with Producer("p", namesrv) as producer:
                queue = (await producer.queues("TBW102"))[0]
                await producer.send(Message("orders", b"one"), queue=MessageQueue("orders", queue.broker_name, 0))
            await until_async(lambda: slave.store.max_offset("orders", 0) == 1, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            assert (await pull(0)).code == ResponseCode.SUCCESS
            assert (await pull(1, suspend_ms=20_000)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        await until_async(lambda: not slave.replication.near_master, "the master is away")
        assert (await pull(1, suspend_ms=50)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_topic_of_the_masters_last_moment_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slave has never received the topic, only its message."""
    monkeypatch.setattr(MetadataSync, "round", lambda self: asyncio.sleep(0))
    async with pair_site(tmp_path) as site:
        namesrv = site.namesrv
        async with site.running("SYNC_MASTER"):
            slave = await site.slave()
            await until_async(lambda: slave.replication.near_master, "copying")
            async with Producer("p", namesrv) as producer:
                for i in range(8):
                    assert (await producer.send(Message("orders", b"%d" % i))).status is SendStatus.SEND_OK
        assert await bodies_of_orders(namesrv, 8) == {b"%d" % i for i in range(8)}
        topic = slave.tables.topics.get("orders")
        # If it becomes the master, no message goes to a queue without a reader.
        assert topic is not None
        assert topic.write_queue_nums == topic.read_queue_nums == 8


async def test_what_groups_committed_at_the_slave_is_handed_to_the_master_that_returns(tmp_path: Path) -> None:
    async with pair_site(tmp_path) as site:
        client, namesrv = site.client, site.namesrv
        slave = await site.slave()

        async def commit(address: str, group: str, offset: int) -> None:
            fields = {"consumer_group": group, "topic": "orders", "queue_id": 0, "commit_offset": offset}
            assert (await ask(client, address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0

        def committed(of: Broker) -> list[int | None]:
            return [of.tables.offsets.committed(group, "orders", 0) for group in ("one", "two", "three")]

        async with site.running("ASYNC_MASTER") as master:
            async with Producer("p", namesrv) as producer:
                for _ in range(20):
                    await producer.send(Message("orders", b"body"), queue=MessageQueue("orders", "broker-a", 0))
            async with Admin(namesrv) as admin:
                for group in ("one", "two", "three"):
                    await admin.groups.create(group)
            await commit(master.address, "one", 10)
            await commit(master.address, "two", 10)
            await until_async(lambda: committed(slave) == [10, 10, None], "taken over")
        await until_async(lambda: not slave.replication.near_master, "the master is away")
        await commit(slave.address, "one", 20)
        await commit(slave.address, "two", 5)
        await commit(slave.address, "three", 7)
        async with site.running("ASYNC_MASTER") as master:
            await until_async(lambda: committed(master) == [20, 10, 7], "handed over")
            await until_async(lambda: committed(slave) == [20, 10, 7], "taken over")
            # From now on the master's offsets count, also smaller ones.
            await commit(master.address, "one", 3)
            await until_async(lambda: committed(slave) == [3, 10, 7], "taken over")


async def test_a_slave_that_becomes_master_lets_no_group_pass_over_what_comes_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its master's table of offsets was ahead of its master's log."""
    async with pair_site(tmp_path) as site:
        namesrv = site.namesrv
        async with (
            site.running("ASYNC_MASTER"),
            site.running("SLAVE", 1) as slave,
            Producer("p", namesrv) as producer,
        ):
            await producer.send(Message("orders", b"before"), queue=MessageQueue("orders", "broker-a", 0))
            await until_async(lambda: slave.store.max_offset("orders", 0) == 1, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            slave.tables.offsets.commit("g", "orders", 0, 3, 1)
        caplog.set_level(logging.WARNING)
        store = {"broker_role": "ASYNC_MASTER", "store_path_root_dir": str(tmp_path / "SLAVE"), "max_index_num": 4000}
        promoted = small_broker(tmp_path / "SLAVE", store, namesrv_addr=namesrv, broker_id=0)
        await site.stack.enter_async_context(promoted)
        await promoted.ready()
        assert "1 offsets of consumer groups were committed beyond the ends" in caplog.text
        async with Producer("p", namesrv) as producer, PullConsumer("g", namesrv) as consumer:
            for body in (b"one", b"two", b"three"):
                await producer.send(Message("orders", body), queue=MessageQueue("orders", "broker-a", 0))
            consumer.assign(await consumer.queues("orders"))
            found: list[bytes] = []
            while len(found) < 3:
                found += [message.body for message in await consumer.poll(timeout_ms=1000)]
            assert found == [b"one", b"two", b"three"]


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
async def test_slave_read_enable_is_applied_at_once(tmp_path: Path, role: str) -> None:
    """Slaves of Apache 5.3.3 answer pulls with code 2 while the key is false; a master always serves them."""
    async with pair_site(tmp_path) as site:
        client, namesrv = site.client, site.namesrv
        master = await site.start("ASYNC_MASTER")
        slave = await site.slave()
        async with Producer("p", namesrv) as producer:
            queue = (await producer.queues("TBW102"))[0]
            await producer.send(Message("orders", b"one"), queue=MessageQueue("orders", queue.broker_name, 0))
        await until_async(lambda: slave.store.max_offset("orders", 0) == 1, "copied")
        await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
        changed = slave if role == "SLAVE" else master

        async def set_reading(value: str) -> None:
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"slaveReadEnable={value}\n".encode())
            assert (await client.invoke(changed.address, change, 5000)).code == ResponseCode.SUCCESS

        async def codes(code: RequestCode = RequestCode.PULL_MESSAGE) -> set[tuple[int, str]]:
            """Pull several times, and return the codes and remarks of the replies."""
            pulls = [
                ask(
                    client, changed.address, code, consumer_group="g", topic="orders", queue_id=0, queue_offset=0,
                    max_msg_nums=32, sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*",
                    sub_version=0,
                )
                for _ in range(4)
            ]  # fmt: skip
            return {(reply.code, reply.remark or "") for reply in await asyncio.gather(*pulls)}

        found = {(ResponseCode.SUCCESS, "FOUND")}
        assert await codes() == await codes() == found
        await set_reading("false")
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            ((answer, remark),) = await codes(code)
            if role == "SLAVE":
                assert answer == ResponseCode.SYSTEM_BUSY
                assert "slaveReadEnable=false" in remark
            else:
                assert (answer, remark) == (ResponseCode.SUCCESS, "FOUND")
        await set_reading("true")
        assert await codes() == await codes() == found
