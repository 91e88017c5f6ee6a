"""Tables of a group: the next leader has every acknowledged change, whatever folder a member starts with."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from small_broker import ask, run, send, small_broker

from server_ports import server_ports
from tianzhou.broker.server import Broker
from tianzhou.model import SubscriptionGroupConfig
from tianzhou.model.topic import PERM_READ, PERM_WRITE
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.wire.bodies.access import USER_INFO, UserInfo
from tianzhou.wire.bodies.groups import SUBSCRIPTION_GROUP
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(run)
ROOT = {"accessKey": "root", "secretKey": "root-secret"}
AUTH = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": "root", "password": "root-secret"}),
    "inner_client_authentication_credentials": json.dumps(ROOT),
}


class Group:
    """Three members that are started and stopped one by one."""

    def __init__(self, folder: Path, store: dict[str, Any], settings: dict[str, Any]) -> None:
        peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(server_ports() for _ in range(3)))
        self._folder = folder
        self._settings = settings
        self._store = {
            "enable_d_leger_commit_log": True, "d_leger_group": "broker-a", "d_leger_peers": peers,
            "d_leger_heart_beat_time_interval_ms": 500, "d_leger_min_vote_interval_ms": 50,
            "d_leger_max_vote_interval_ms": 200, **store,
        }  # fmt: skip
        self.members: dict[int, Broker] = {}

    def folder(self, number: int) -> Path:
        return self._folder / f"n{number}" / "store"

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            store = {**self._store, "d_leger_self_id": f"n{number}", "store_path_root_dir": str(self.folder(number))}
            broker = small_broker(self._folder / f"n{number}", store, **self._settings)
            self.members[number] = await broker.__aenter__()

    async def stop(self, *numbers: int) -> None:
        for number in numbers:
            await self.members.pop(number).__aexit__(None, None, None)

    async def leader(self) -> int:
        def leading() -> list[int]:
            return [number for number, one in self.members.items() if not one.replication.is_slave]

        await until_async(lambda: len(leading()) == 1, "a leader")
        return leading()[0]

    async def ask(self, client: RemotingClient, code: RequestCode, body: bytes = b"", **header: Any) -> None:
        """Send a request to the leader, and expect OK."""
        broker = self.members[await self.leader()]
        reply = await ask(client, broker.address, code, body, **header)
        assert reply.code == ResponseCode.SUCCESS, reply.remark


@asynccontextmanager
async def group(folder: Path, store: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Group]:
    found = Group(folder, store or {}, settings)
    try:
        await found.start(0, 1, 2)
        yield found
    finally:
        for number in list(found.members):
            with suppress(Exception):
                await found.stop(number)


async def create_topic(group: Group, client: RemotingClient, name: str) -> None:
    await group.ask(
        client, RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, default_topic="TBW102", read_queue_nums=3,
        write_queue_nums=3, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip


async def create_group(group: Group, client: RemotingClient, name: str) -> None:
    body = SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig(name))
    await group.ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def commit(group: Group, client: RemotingClient, offset: int) -> None:
    await group.ask(
        client, RequestCode.UPDATE_CONSUMER_OFFSET, consumer_group="G", topic="orders", queue_id=0, commit_offset=offset
    )


async def send_orders(group: Group, client: RemotingClient, count: int, body: bytes = b"x") -> None:
    address = group.members[await group.leader()].address
    for _ in range(count):
        reply = await send(client, address, body, topic="orders")
        assert reply.code == ResponseCode.SUCCESS, reply.remark


def committed(broker: Broker) -> int | None:
    return broker.tables.offsets.committed("G", "orders", 0)


async def test_members_have_the_limits_of_senders_of_their_leader(tmp_path: Path) -> None:
    def limits(broker: Broker) -> dict[str, float]:
        return {key: limit.rate for key, limit in broker.tables.send_limits.all().items()}

    async with group(tmp_path) as members, RemotingClient() as client:

        async def change(broker: Broker, **fields: str) -> int:
            command = Command(int(RequestCode.UPDATE_SEND_LIMITS), fields=fields)
            return (await client.invoke(broker.address, command, 5_000)).code

        async def all_have(wanted: dict[str, float]) -> None:
            await until_async(lambda: all(limits(one) == wanted for one in members.members.values()), "all have them")

        first = await members.leader()
        leader = members.members[first]
        for key, rate in (("topic:orders", "5"), ("group:*", "0.5"), ("client:::1", "3")):
            assert await change(leader, limit=key, rate=rate, burst="7") == 0
        assert await change(leader, limit="group:*", delete="true") == 0
        await all_have({"topic:orders": 5, "client:::1": 3})
        follower = next(one for number, one in members.members.items() if number != first)
        assert await change(follower, limit="topic:orders", rate="9", burst="9") != 0
        await members.stop(first)
        leader = members.members[await members.leader()]
        assert limits(leader) == {"topic:orders": 5, "client:::1": 3}
        assert await change(leader, limit="topic:orders", rate="8", burst="7") == 0
        await members.start(first)
        await all_have({"topic:orders": 8, "client:::1": 3})


async def test_changes_that_were_answered_ok_are_at_the_next_leader(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await create_topic(members, client, "bills")
        await create_group(members, client, "G")
        await members.ask(client, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, group="G", topic="orders", readable=False)
        await members.ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic="bills")
        await members.ask(client, RequestCode.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n")
        await members.stop(await members.leader())
        broker = members.members[await members.leader()]
        tables = broker.tables
        assert "bills" not in tables.topics
        config = tables.topics.get("orders")
        assert config is not None
        assert (config.read_queue_nums, config.perm) == (3, PERM_READ | PERM_WRITE)
        assert "G" in tables.groups
        assert not tables.groups.may_read("G", "orders")
        assert tables.settings.broker_permission == PERM_READ


async def test_a_leader_with_an_empty_folder_gets_everything_and_deletes_nothing(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await create_group(members, client, "G")
        await send_orders(members, client, 30)
        await commit(members, client, 25)
        for one in list(members.members.values()):
            await until_async(lambda one=one: committed(one) == 25, "offset")  # type: ignore[misc]
        former = await members.leader()
        await members.stop(former)
        shutil.rmtree(members.folder(former))
        await members.start(former)
        empty = members.members[former]
        await until_async(lambda: committed(empty) == 25, "offset")
        assert {"orders"} <= empty.tables.topics.all().keys()
        assert "G" in empty.tables.groups
        for one in members.members.values():
            assert committed(one) == 25
            assert "orders" in one.tables.topics
        # The member that was empty may lead now.
        others = [number for number in members.members if number != former]
        await members.stop(others[0])
        await members.leader()
        for one in members.members.values():
            assert committed(one) == 25
            assert "orders" in one.tables.topics


async def test_a_kept_older_folder_moves_no_offset_back_and_brings_no_deleted_topic(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await create_topic(members, client, "bills")
        await create_group(members, client, "G")
        await commit(members, client, 5)
        away = next(number for number in (0, 1, 2) if number != 0)
        await until_async(lambda: committed(members.members[away]) == 5, "offset")
        await members.stop(away)
        await members.ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic="bills")
        await commit(members, client, 25)
        others = list(members.members.values())
        for one in others:
            await until_async(lambda one=one: committed(one) == 25, "offset")  # type: ignore[misc]
        await members.start(away)
        late = members.members[away]
        await until_async(lambda: committed(late) == 25 and "bills" not in late.tables.topics, "caught up")
        assert all(committed(one) == 25 for one in others)


async def test_a_reset_that_was_answered_ok_is_at_the_next_leader(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await create_group(members, client, "G")
        await send_orders(members, client, 10)
        await commit(members, client, 10)
        for one in members.members.values():
            await until_async(lambda one=one: committed(one) == 10, "offset")  # type: ignore[misc]
        await members.ask(
            client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="G", timestamp=-1, queue_id=0,
            offset=3, is_force=True,
        )  # fmt: skip
        await members.stop(await members.leader())
        broker = members.members[await members.leader()]
        assert committed(broker) == 3
        assert broker.tables.offsets.reset_waits("G", "orders", 0)


async def test_a_follower_refuses_a_change_and_names_the_leader(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        leader = await members.leader()
        address = members.members[leader].address
        follower = next(one for number, one in members.members.items() if number != leader)
        await until_async(lambda: follower.replication.near_master, "it knows its leader")
        body = SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig("G"))
        reply = await ask(client, follower.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert f"send the request to the leader, {address}" in (reply.remark or "")
        assert "G" not in follower.tables.groups


async def test_a_change_without_a_majority_is_not_answered_ok(tmp_path: Path) -> None:
    async with group(tmp_path) as members, RemotingClient() as client:
        leader = await members.leader()
        address = members.members[leader].address
        await members.stop(*[number for number in members.members if number != leader])
        body = SUBSCRIPTION_GROUP.dumps(SubscriptionGroupConfig("G"))
        reply = await ask(client, address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert reply.code != ResponseCode.SUCCESS
        assert "does not lead" in (reply.remark or "") or "not known whether the group keeps it" in (reply.remark or "")


async def test_a_send_without_a_majority_is_refused_in_words(tmp_path: Path) -> None:
    """The reply to a send that the leader has accepted is an error; later ones are refused."""
    async with group(tmp_path) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await send_orders(members, client, 1)
        leader = await members.leader()
        last = members.members[leader]
        await members.stop(*[number for number in members.members if number != leader])
        replies = [await send(client, last.address, b"too late", topic="orders") for _ in range(3)]
        assert all(reply.code != ResponseCode.SUCCESS for reply in replies)
        taken = next(reply.remark for reply in replies if reply.code == ResponseCode.SYSTEM_ERROR)
        assert "no majority of the DLedger group has confirmed this message" in (taken or "")
        await until_async(lambda: last.replication.is_slave, "the leader has noticed that it is alone")
        reply = await send(client, last.address, b"refused", topic="orders")
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "this broker is not the master of broker-a: nobody leads" in (reply.remark or "")


async def test_users_that_were_created_while_a_member_was_away_are_there_when_it_leads(tmp_path: Path) -> None:
    async with group(tmp_path, **AUTH) as members, RemotingClient(hooks=[signing("root", "root-secret")]) as client:
        leader = await members.leader()
        away = next(number for number in members.members if number != leader)
        await members.stop(away)
        user = USER_INFO.dumps(UserInfo("alice", "alice-secret", "Normal", "enable"))
        await members.ask(client, RequestCode.AUTH_CREATE_USER, user, username="alice")
        follower = next(one for number, one in members.members.items() if number != leader)
        # Tools send the change to every broker of the cluster.
        reply = await ask(client, follower.address, RequestCode.AUTH_CREATE_USER, user, username="alice")
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        await members.start(away)
        back = members.members[away]

        async def knows_alice() -> bool:
            reply = await ask(client, back.address, RequestCode.AUTH_GET_USER, username="alice")
            return bool(reply.body)

        while not await knows_alice():
            pass
        await members.ask(client, RequestCode.AUTH_DELETE_USER, username="alice")
        while await knows_alice():
            pass
        root = await ask(client, back.address, RequestCode.AUTH_GET_USER, username="root")
        assert root.body


async def test_each_segment_of_the_log_brings_all_tables(tmp_path: Path) -> None:
    """A member whose folder is empty gets the tables from a log whose first segments have expired."""
    store = {"mapped_file_size_commit_log": 64 << 10}
    async with group(tmp_path, store) as members, RemotingClient() as client:
        await create_topic(members, client, "orders")
        await create_group(members, client, "G")
        await commit(members, client, 7)
        leader = await members.leader()
        await send_orders(members, client, 40, b"x" * 8_000)
        for broker in members.members.values():
            await until_async(lambda broker=broker: broker.store.max_offset("orders", 0) == 40)  # type: ignore[misc]
        away = next(number for number in members.members if number != leader)
        await members.stop(away)
        shutil.rmtree(members.folder(away))
        # The other members lose the first segments, which contain the changes.
        rest = list(members.members)
        await members.stop(*rest)
        for number in rest:
            segments = sorted(members.folder(number).glob("dledger-*/data/*"))
            assert len(segments) > 3
            for segment in segments[:-1]:
                segment.unlink()
        await members.start(*rest)
        await members.leader()
        await members.start(away)
        back = members.members[away]
        await until_async(lambda: committed(back) == 7 and "orders" in back.tables.topics, "tables")
