"""A record damaged on one broker's disk is fetched from the other broker of the group and repaired."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from small_broker import ask, name_server, run, small_broker

from tianzhou.broker.server import Broker
from tianzhou.client.producer.producer import Producer
from tianzhou.model import Message, MessageQueue
from tianzhou.remoting.client import RemotingClient
from tianzhou.store.offline.check import check_store
from tianzhou.store.offline.scan import StoreScan
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_reply
from tianzhou.wire.pulled import decode_messages
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)
COUNT = 20


def broker(folder: Path, namesrv: str, role: str, broker_id: int) -> Broker:
    store = {
        "broker_role": role,
        "store_path_root_dir": str(folder / role),
        "max_index_num": 4000,
        "ha_slave_cut_max": 0,
    }
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=broker_id)


def break_message(folder: Path, number: int) -> None:
    (segment,) = (folder / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    data[data.index(b"body of %02d" % number)] ^= 1
    segment.write_bytes(data)


async def pull(client: RemotingClient, address: str, offset: int) -> Command:
    return await ask(
        client, address, RequestCode.PULL_MESSAGE, consumer_group="g", topic="orders", queue_id=0,
        queue_offset=offset, max_msg_nums=32, sys_flag=4, commit_offset=0, suspend_timeout_millis=0,
        subscription="*", sub_version=0,
    )  # fmt: skip


async def served(client: RemotingClient, address: str) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while offset < COUNT:
        reply = await pull(client, address, offset)
        if reply.code == ResponseCode.SUCCESS:
            found += [message.body for message in decode_messages(reply.body, "b")]
        offset = read_reply(RequestCode.PULL_MESSAGE, reply).next_begin_offset
    return found


@pytest.mark.parametrize("broken", ["SLAVE", "ASYNC_MASTER"])
async def test_broken_messages_are_fetched_from_the_other_broker(tmp_path: Path, broken: str) -> None:
    ids = {"ASYNC_MASTER": 0, "SLAVE": 1}
    whole = next(role for role in ids if role != broken)
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient())
        other = broker(tmp_path, namesrv, whole, ids[whole])
        one = broker(tmp_path, namesrv, broken, ids[broken])
        await stack.enter_async_context(other)
        async with one:
            await other.ready()
            await one.ready()
            slave = other if broken == "ASYNC_MASTER" else one
            async with Producer("p", namesrv) as producer:
                queue = (await producer.queues("TBW102"))[0]
                for number in range(COUNT):
                    body = b"body of %02d" % number
                    await producer.send(Message("orders", body), queue=MessageQueue("orders", queue.broker_name, 0))
            await until_async(lambda: slave.store.max_offset("orders", 0) == COUNT, "copied")
            await until_async(lambda: "orders" in slave.tables.topics, "the topic is known to the slave")
        for number in (4, 11):
            break_message(tmp_path / broken, number)
        async with broker(tmp_path, namesrv, broken, ids[broken]) as again:
            await again.ready()
            assert await served(client, again.address) == [b"body of %02d" % number for number in range(COUNT)]
            reply = await ask(client, again.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            figures = KV_TABLE.loads(reply.body)
            assert (figures["damagedLogStretches"], figures["damagedLogStretchesPutRight"]) == ("0", "2")
    assert check_store(StoreScan(tmp_path / broken)).problems == []


async def test_a_slave_has_its_master_put_right_what_it_has_whole(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as one, broker(tmp_path, namesrv, "SLAVE", 1) as other:
            await one.ready()
            await other.ready()
            async with Producer("p", namesrv) as producer:
                queue = (await producer.queues("TBW102"))[0]
                for number in range(COUNT):
                    body = b"body of %02d" % number
                    await producer.send(Message("orders", body), queue=MessageQueue("orders", queue.broker_name, 0))
            await until_async(lambda: other.store.max_offset("orders", 0) == COUNT, "copied")
        whole = next((tmp_path / "SLAVE" / "commitlog").iterdir()).read_bytes()
        for number in range(12, COUNT):
            break_message(tmp_path / "ASYNC_MASTER", number)
        async with broker(tmp_path, namesrv, "ASYNC_MASTER", 0) as one:
            await one.ready()
            async with broker(tmp_path, namesrv, "SLAVE", 1) as other:
                await other.ready()
                await until_async(lambda: one.store.damage.put_right and not one.store.damage.stretches, "put right")
                assert next((tmp_path / "SLAVE" / "commitlog").iterdir()).read_bytes() == whole
                assert other.store.end_offset == one.store.end_offset
    for role in ("SLAVE", "ASYNC_MASTER"):
        assert check_store(StoreScan(tmp_path / role)).problems == []


async def test_a_broker_gives_a_bounded_piece_of_its_log_and_nothing_behind_its_end(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        one = await stack.enter_async_context(broker(tmp_path, namesrv, "ASYNC_MASTER", 0))
        await one.ready()
        client = await stack.enter_async_context(RemotingClient())
        for offset, size, code in (
            (0, 0, ResponseCode.INVALID_PARAMETER),
            (0, (1 << 20) + 1, ResponseCode.INVALID_PARAMETER),
            (-1, 10, ResponseCode.INVALID_PARAMETER),
            (one.store.end_offset, 10, ResponseCode.QUERY_NOT_FOUND),
            (1 << 60, 1 << 20, ResponseCode.QUERY_NOT_FOUND),
        ):
            assert (await ask(client, one.address, RequestCode.READ_LOG, offset=offset, size=size)).code == code
