"""A master and its slave with one name server, and our client: guarantees while the master is down."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from small_broker import ask, bodies_of_orders, name_server, pair_broker, run, send, small_broker

from tianzhou.admin import Admin
from tianzhou.admin.replicas import Lag
from tianzhou.broker.replication.metadata_sync import WORK as MASTER_TABLES
from tianzhou.broker.zero_loss import with_profile
from tianzhou.client.producer.producer import Producer
from tianzhou.client.producer.transactions import TransactionProducer
from tianzhou.errors import BrokerError, ConnectFailed
from tianzhou.model import Message, MessageExt, SendStatus, TransactionState
from tianzhou.remoting.client import RemotingClient
from tianzhou.replication import ha_client
from tianzhou.settings import bind
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)


async def test_a_sync_master_acknowledges_what_its_slave_has(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SYNC_MASTER", 0))
        await master.ready()
        producer = await stack.enter_async_context(Producer("p", namesrv))
        assert (await producer.send(Message("orders", b"alone"))).status is SendStatus.SLAVE_NOT_AVAILABLE
        async with pair_broker(tmp_path, namesrv, "SLAVE", 1) as slave:
            await slave.ready()
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
            for i in range(50):
                result = await producer.send(Message("orders", b"%d" % i))
                assert result.status is SendStatus.SEND_OK
                assert slave.store.end_offset == master.store.end_offset
            batch = await producer.send_batch([Message("orders", b"%d" % i) for i in range(20)])
            assert batch.status is SendStatus.SEND_OK
        assert (await producer.send(Message("orders", b"alone again"))).status is SendStatus.SLAVE_NOT_AVAILABLE


async def test_a_slave_that_was_first_finds_its_master_when_that_comes(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1))
        await slave.ready()
        for _ in range(2):
            # The second time at another port, because it is any free one.
            async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
                await master.ready()
                async with Producer("p", namesrv) as producer:
                    await producer.send(Message("orders", b"body"))
                await until_async(lambda m=master: slave.store.end_offset == m.store.end_offset, "copied")


async def test_too_few_in_sync_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        master = await stack.enter_async_context(
            pair_broker(tmp_path, namesrv, "SYNC_MASTER", 0, min_in_sync_replicas=2, slave_timeout=200)
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
        async with pair_broker(tmp_path, namesrv, "SLAVE", 1) as slave:
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
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1))
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
        slave = await stack.enter_async_context(
            pair_broker(tmp_path, namesrv, "SLAVE", 1, ha_send_heartbeat_interval=200)
        )
        async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
            await master.ready()
            async with Producer("p", namesrv) as producer:
                for i in range(200):
                    await producer.send(Message("orders", b"%d" % i))
            agreed = master.store.end_offset
        backup = tmp_path / "backup"
        shutil.copytree(tmp_path / "ASYNC_MASTER", backup)
        async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
            await master.ready()
            async with Producer("p", namesrv) as producer:
                for i in range(200, 250):
                    await producer.send(Message("orders", b"%d" % i))
            await until_async(lambda: slave.store.end_offset == master.store.end_offset, "copied")
        shutil.rmtree(tmp_path / "ASYNC_MASTER")
        shutil.move(backup, tmp_path / "ASYNC_MASTER")
        port, store = slave.port, slave.store
        async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0, ha_send_heartbeat_interval=200) as master:
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
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1))
        async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await until_async(lambda: slave.replication.near_master, "copying")
            await until_async(lambda: "log is copied" in caplog.text, "it is said")
            address = f"127.0.0.1:{master.port}"
        # The name server would name it; a killed master's address stays for a while.
        slave.replication.master_named(address, slave.replication.ha_address)
        attempts = slave.troubles.totals
        await until_async(lambda: attempts["copying the log"] > 20, "tried often")
        async with pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as master:
            await until_async(lambda: caplog.text.count("the log is copied from") == 2, "copied again")
    lines = [record for record in caplog.records if "the log is not copied" in record.message]
    assert len(lines) == 3  # its old address, the one it got, and the stop of the last one
    assert not any(record.exc_info for record in caplog.records)


async def test_a_slave_started_as_the_master_goes_on_with_transactions_and_delays(tmp_path: Path) -> None:
    short = {"transaction_check_interval": 100, "transaction_time_out": 300}
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1))
        answers = {b"committed": TransactionState.COMMIT, b"rolled back": TransactionState.ROLLBACK}
        asked: list[bytes] = []

        async def check(message: MessageExt) -> TransactionState:
            asked.append(message.body)
            return TransactionState.COMMIT if message.body == b"asked, committed" else TransactionState.ROLLBACK

        async with TransactionProducer("p", namesrv, check=check) as producer:
            async with pair_broker(tmp_path, namesrv, "SYNC_MASTER", 0) as master:
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
        master = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "ASYNC_MASTER", 0))
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1))
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
        # It does not trust a stranger, but queries its name servers.
        assert slave.replication.master == master.address
        status = slave.replication.status().ha_client_runtime_info
        assert (status.master_flush_offset, status.max_offset) == (77, master.store.end_offset)
        assert (
            await ask(client, slave.address, RequestCode.RESET_MASTER_FLUSH_OFFSET, master_flush_offset=5)
        ).code == 0
        assert slave.replication.status().ha_client_runtime_info.master_flush_offset == 5
        modes = await ask(client, master.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert modes.body == b'{"messageRequestModeMap":{}}'


async def test_who_stops_after_its_master_has_left_nothing_undone(tmp_path: Path) -> None:
    async with small_broker(tmp_path) as stopped:
        for work in (MASTER_TABLES, ha_client.WORK):
            stopped.troubles.failed(work, ConnectFailed("refused"), 0, 0)
    assert stopped.left_undone == []


async def test_a_configured_ha_address_goes_before_what_name_servers_answer(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        # Start a master that is registered at no name server.
        master = await stack.enter_async_context(pair_broker(tmp_path, "", "ASYNC_MASTER", 0))
        client = await stack.enter_async_context(RemotingClient())
        await send(client, master.address, b"before", topic="orders")
        fixed = master.replication.ha_address
        slave = await stack.enter_async_context(pair_broker(tmp_path, namesrv, "SLAVE", 1, ha_master_address=fixed))
        await slave.ready()
        await until_async(lambda: slave.store.end_offset == master.store.end_offset > 0, "copied")
        other = tmp_path / "other"
        async with pair_broker(other, namesrv, "ASYNC_MASTER", 0) as named:
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
