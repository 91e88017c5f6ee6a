"""A master and its slave behind one name server, and our client before them: what holds while the master is away."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from small_broker import ask, name_server, run, send, small_broker

from tianzhou.admin import Admin
from tianzhou.admin.replicas import Lag
from tianzhou.broker.replication.metadata_sync import WORK as MASTER_TABLES
from tianzhou.broker.replication.metadata_sync import MetadataSync
from tianzhou.broker.server import Broker
from tianzhou.broker.zero_loss import with_profile
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.producer.producer import Producer
from tianzhou.client.producer.transactions import TransactionProducer
from tianzhou.errors import BrokerError, ConnectFailed
from tianzhou.model import Message, MessageExt, MessageQueue, SendStatus, TransactionState
from tianzhou.remoting.client import RemotingClient
from tianzhou.replication import ha_client
from tianzhou.settings import bind
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


def broker(folder: Path, namesrv: str, role: str, broker_id: int, **more: object) -> Broker:
    store = {"broker_role": role, "store_path_root_dir": str(folder / role), "max_index_num": 4000, **more}
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
    """The slave has never received the topic, only its message."""
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
        topic = slave.tables.topics.get("orders")
        # Should it become the master, nothing is sent to a queue that nobody reads.
        assert topic is not None
        assert topic.write_queue_nums == topic.read_queue_nums == 8


async def test_too_few_in_sync_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(
            broker(tmp_path, namesrv, "SYNC_MASTER", 0, min_in_sync_replicas=2, slave_timeout=200)
        )
        await master.ready()
        client = await stack.enter_async_context(RemotingClient())
        producer = await stack.enter_async_context(Producer("p", namesrv))
        begin = master.store.end_offset
        for message in (Message("orders", b"body"), Message("orders", b"x" * 5000)):
            with pytest.raises(BrokerError, match="in-sync replicas not enough 1 of this broker's group are in sync"):
                await producer.send(message)
        with pytest.raises(BrokerError, match="in-sync replicas not enough"):
            await producer.send_batch([Message("orders", b"one"), Message("orders", b"two")])
        assert master.store.end_offset == begin
        patient = Message("orders", b"nobody is waited for", wait_store_ok=False)
        assert (await producer.send(patient)).status is SendStatus.SEND_OK
        async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
            await until_async(lambda: slave.replication.near_master, "copying")
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            assert (await producer.send(Message("orders", b"body"))).status is SendStatus.SEND_OK
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"inSyncReplicas=3\n")
            assert (await client.invoke(master.address, change)).code == ResponseCode.SUCCESS
            assert (await producer.send(Message("orders", b"body"))).status is SendStatus.SLAVE_NOT_AVAILABLE
            change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"enableAutoInSyncReplicas=true\n")
            assert (await client.invoke(master.address, change)).code == ResponseCode.SUCCESS
            assert (await producer.send(Message("orders", b"body"))).status is SendStatus.SEND_OK
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"minInSyncReplicas=1\n")
        assert (await client.invoke(master.address, change)).code == ResponseCode.SUCCESS
        assert (await producer.send(Message("orders", b"body"))).status is SendStatus.SEND_OK


async def test_zero_loss_refuses_before_it_stores_and_a_durable_producer_waits_for_the_slave(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        profile = bind(StoreSettings, with_profile({"durability": "zero-loss"}))
        store = {
            "broker_role": profile.broker_role, "flush_disk_type": profile.flush_disk_type, "max_index_num": 4000,
            "in_sync_replicas": profile.in_sync_replicas, "min_in_sync_replicas": profile.min_in_sync_replicas,
        }  # fmt: skip
        master = await stack.enter_async_context(small_broker(tmp_path / "master", store, namesrv_addr=namesrv))
        await master.ready()
        producer = await stack.enter_async_context(Producer("p", namesrv, durable=True))
        sending = asyncio.ensure_future(producer.send(Message("orders", b"one")))
        await until_async(lambda: "orders" in master.tables.topics, "the message has come")
        assert master.store.end_offset == 0
        assert not sending.done()
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        result = await sending
        assert result.status is SendStatus.SEND_OK
        assert result.queue_offset == 0
        assert slave.store.end_offset == master.store.end_offset > 0
        assert await bodies_of_orders(namesrv, 1) == {b"one"}


async def test_a_slave_cuts_off_what_its_master_lost_while_clients_go_on(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1, ha_send_heartbeat_interval=200))
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
            await master.ready()
            async with Producer("p", namesrv) as producer:
                for i in range(200):
                    await producer.send(Message("orders", b"%d" % i))
            agreed = master.store.end_offset
        backup = tmp_path / "backup"
        shutil.copytree(tmp_path / "ASYNC_MASTER", backup)
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
            await master.ready()
            async with Producer("p", namesrv) as producer:
                for i in range(200, 250):
                    await producer.send(Message("orders", b"%d" % i))
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
        shutil.rmtree(tmp_path / "ASYNC_MASTER")
        shutil.move(backup, tmp_path / "ASYNC_MASTER")
        port, store = slave.port, slave.store
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
            await master.ready()
            assert master.store.end_offset == agreed
            await until_async(lambda: slave.store is not store, "reopened")
            async with Producer("p", namesrv) as producer:
                for i in range(300, 350):
                    await producer.send(Message("orders", b"%d" % i))
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied again")
            assert slave.port == port
        await until_async(lambda: not slave.replication.near_master, "the master is away")
        assert await bodies_of_orders(namesrv, 250) == {b"%d" % i for i in [*range(200), *range(300, 350)]}


async def test_a_slave_says_once_that_its_master_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_client, "AGAIN_S", 0.01)
    caplog.set_level(logging.INFO)
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await until_async(lambda: slave.replication.near_master, "copying")
            await until_async(lambda: "log is copied" in caplog.text, "it is said")
            address = f"127.0.0.1:{master.port}"
        # The name server would say so; a killed master's address stays for a while.
        slave.replication.master_named(address, slave.replication.ha_address)
        attempts = slave.troubles.totals
        await until_async(lambda: attempts["copying the log"] > 20, "tried often")
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await until_async(lambda: caplog.text.count("the log is copied from") == 2, "copied again")
    lines = [record for record in caplog.records if "the log is not copied" in record.message]
    assert len(lines) == 3  # the address that it had, the one that it was told, and when the last one stopped
    assert not any(record.exc_info for record in caplog.records)


async def test_a_slave_started_as_the_master_goes_on_with_transactions_and_delays(tmp_path: Path) -> None:
    short = {"transaction_check_interval": 100, "transaction_time_out": 300}
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        answers = {b"committed": TransactionState.COMMIT, b"rolled back": TransactionState.ROLLBACK}
        asked: list[bytes] = []

        async def check(message: MessageExt) -> TransactionState:
            asked.append(message.body)
            return TransactionState.COMMIT if message.body == b"asked, committed" else TransactionState.ROLLBACK

        async with TransactionProducer("p", namesrv, check=check) as producer:
            async with broker(tmp_path, namesrv, "SYNC_MASTER", 0) as master:
                await master.ready()
                await until_async(lambda: slave.replication.near_master, "copying")
                for body in (b"committed", b"rolled back", b"asked, committed", b"asked, rolled back"):
                    local = lambda message, _: answers.get(message.body, TransactionState.UNKNOWN)  # noqa: E731
                    sent = await producer.send_in_transaction(Message("orders", body), local, None)
                    assert sent.result.status is SendStatus.SEND_OK
                for level in (1, 2):
                    late = Message("orders", b"delayed %d" % level, delay_level=level)
                    assert (await producer.send(late)).status is SendStatus.SEND_OK
                await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            store = {"broker_role": "ASYNC_MASTER", "store_path_root_dir": str(tmp_path / "SLAVE")}
            await stack.aclose()
            names = await stack.enter_async_context(name_server(tmp_path))
            namesrv = f"127.0.0.1:{names.port}"
            master = await stack.enter_async_context(small_broker(tmp_path, store, namesrv_addr=namesrv, **short))
            await master.ready()
        async with TransactionProducer("p", namesrv, check=check) as producer:
            await producer.queues("orders")
            wanted = {b"committed", b"asked, committed", b"delayed 1", b"delayed 2"}
            assert await bodies_of_orders(namesrv, 4) == wanted
            await until_async(lambda: len(master.tables.transactions) == 0, "all are decided")
        assert sorted(set(asked)) == [b"asked, committed", b"asked, rolled back"]
        assert sum(master.store.max_offset("orders", queue) for queue in range(8)) == len(wanted)


async def test_members_and_administrators_learn_who_follows_whom(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(broker(tmp_path, namesrv, "ASYNC_MASTER", 0))
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        await until_async(lambda: slave.replication.near_master, "copying")
        producer = await stack.enter_async_context(Producer("p", namesrv))
        for i in range(10):
            await producer.send(Message("orders", b"%d" % i))
        await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
        client = await stack.enter_async_context(RemotingClient())
        admin = await stack.enter_async_context(Admin(namesrv))

        async def reported() -> bool:
            found = await admin.cluster.copies(master.address)
            return [one.slave_ack_offset for one in found.ha_connection_info] == [master.store.end_offset]

        await until_async(reported, "the slave has reported")
        first, second = await admin.cluster.status()
        assert (first.role, second.role) == ("master", "slave")
        assert second.follows == master.replication.ha_address
        assert second.lag == Lag(0, 0, 0.0)
        assert first.copies is not None
        assert (first.copies.in_sync_slave_nums, first.copies.ha_connection_info[0].diff) == (1, 0)

        asked = await ask(client, master.address, RequestCode.EXCHANGE_BROKER_HA_INFO)
        answer = read_reply(RequestCode.EXCHANGE_BROKER_HA_INFO, asked)
        assert (answer.master_ha_address, answer.master_address, answer.master_flush_offset) == (
            master.replication.ha_address, master.address, 0,
        )  # fmt: skip
        told = {"master_ha_address": "127.0.0.1:1", "master_address": "127.0.0.1:2", "master_flush_offset": 77}
        assert (await ask(client, slave.address, RequestCode.EXCHANGE_BROKER_HA_INFO, **told)).code == 0
        # It does not believe a stranger, but asks its name servers.
        assert slave.replication.master == master.address
        status = slave.replication.status().ha_client_runtime_info
        assert (status.master_flush_offset, status.max_offset) == (77, master.store.end_offset)
        assert (
            await ask(client, slave.address, RequestCode.RESET_MASTER_FLUSH_OFFSET, master_flush_offset=5)
        ).code == 0
        assert slave.replication.status().ha_client_runtime_info.master_flush_offset == 5
        modes = await ask(client, master.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert modes.body == b'{"messageRequestModeMap":{}}'


async def test_what_groups_committed_at_the_slave_is_handed_to_the_master_that_returns(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient())
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))

        async def commit(address: str, group: str, offset: int) -> None:
            fields = {"consumer_group": group, "topic": "orders", "queue_id": 0, "commit_offset": offset}
            assert (await ask(client, address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)).code == 0

        def committed(of: Broker) -> list[int | None]:
            return [of.tables.offsets.committed(group, "orders", 0) for group in ("one", "two", "three")]

        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await master.ready()
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
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await until_async(lambda: committed(master) == [20, 10, 7], "handed over")
            await until_async(lambda: committed(slave) == [20, 10, 7], "taken over")
            # From now on the master's word counts, backwards, too.
            await commit(master.address, "one", 3)
            await until_async(lambda: committed(slave) == [3, 10, 7], "taken over")


async def test_who_stops_after_its_master_has_left_nothing_undone(tmp_path: Path) -> None:
    async with small_broker(tmp_path) as stopped:
        stopped.troubles.failed(MASTER_TABLES, ConnectFailed("refused"), 0, 0)
    assert stopped.left_undone == []


async def test_a_slave_that_becomes_master_lets_no_group_pass_over_what_comes_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its master's table of offsets came further than its master's log."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        async with (
            broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master,
            broker(tmp_path, namesrv, "SLAVE", 1) as slave,
            Producer("p", namesrv) as producer,
        ):
            await master.ready()
            await slave.ready()
            await producer.send(Message("orders", b"before"), queue=MessageQueue("orders", "broker-a", 0))
            await until_async(lambda: slave.store.max_offset("orders", 0) == 1, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
            slave.tables.offsets.commit("g", "orders", 0, 3, 1)
        caplog.set_level(logging.WARNING)
        store = {"broker_role": "ASYNC_MASTER", "store_path_root_dir": str(tmp_path / "SLAVE"), "max_index_num": 4000}
        promoted = small_broker(tmp_path / "SLAVE", store, namesrv_addr=namesrv, broker_id=0)
        await stack.enter_async_context(promoted)
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
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient())
        master = await stack.enter_async_context(broker(tmp_path, namesrv, "ASYNC_MASTER", 0))
        await master.ready()
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
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


async def test_a_configured_ha_address_goes_before_what_name_servers_answer(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        # Start a master that is registered at no name server.
        master = await stack.enter_async_context(broker(tmp_path, "", "ASYNC_MASTER", 0))
        client = await stack.enter_async_context(RemotingClient())
        await send(client, master.address, b"before", topic="orders")
        fixed = master.replication.ha_address
        slave = await stack.enter_async_context(broker(tmp_path, namesrv, "SLAVE", 1, ha_master_address=fixed))
        await slave.ready()
        await until_async(lambda: slave.store.end_offset == master.store.end_offset > 0, "copied")
        other = tmp_path / "other"
        async with broker(other, namesrv, "ASYNC_MASTER", 0) as named:
            await named.ready()
            told = {"master_ha_address": named.replication.ha_address, "master_address": named.address}
            await ask(client, slave.address, RequestCode.EXCHANGE_BROKER_HA_INFO, **told)
            await until_async(lambda: slave.replication.master == named.address, "the slave knows the other master")
            await send(client, master.address, b"after", topic="orders")
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied from the same master")
            status = slave.replication.status().ha_client_runtime_info
            assert status is not None
            assert status.master_addr == fixed
            assert named.replication.status().ha_connection_info == []
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"haMasterAddress=127.0.0.1:1\n")
        refused = await client.invoke(slave.address, change, 5000)
        assert (refused.code, "haMasterAddress" in str(refused.remark)) == (ResponseCode.NO_PERMISSION, True)
