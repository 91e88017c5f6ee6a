"""Users and policies created over the wire, at a broker and a name server with access control."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tianzhou.admin import Admin
from tianzhou.cli.mqadmin.failures import failure
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import BrokerError, ClientError, TianzhouError
from tianzhou.model import Message
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

VALUES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


PREPARES = {
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider"
    ".LocalAuthenticationMetadataProvider"
}
"""Settings of a server that stores users while it does not check them yet."""


@asynccontextmanager
async def served(folder: Path, values: Mapping[str, str] = VALUES) -> AsyncIterator[EmbeddedServer]:
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=dict(values))
    async with EmbeddedServer(settings) as server:
        yield server


def admin(server: EmbeddedServer, name: str = "root") -> Admin:
    return Admin(server.namesrv_address, access_key=name, secret_key=f"{name}-secret")


async def test_a_user_does_what_it_was_allowed_and_that_outlives_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as server, admin(server) as root:
        await root.topics.create("orders")
        await root.topics.create("audit")
        servers = await root.access.create_user("alice", "alice-secret")
        assert servers == [server.broker_address, server.namesrv_address]
        await root.access.set_acl("alice", ["Topic:ord*"], ["Pub"])
        assert await root.access.users() == [
            UserInfo("alice", None, "Normal", "enable"), UserInfo("root", None, "Super", "enable"),
        ]  # fmt: skip
        assert await root.access.user("nobody") is None
        entry = PolicyEntryInfo("Topic:ord*", ["Pub"], None, "Allow")
        assert await root.access.acls("alice") == [AclInfo("User:alice", [PolicyInfo("Custom", [entry])])]
    async with served(tmp_path) as server:
        who = {"access_key": "alice", "secret_key": "alice-secret"}
        async with Producer("g", server.namesrv_address, **who) as producer:
            assert (await producer.send(Message("orders", b"1"))).msg_id
            with pytest.raises(TianzhouError, match="User:alice has no permission to access Topic:audit from 127"):
                await producer.send(Message("audit", b"1"))
        async with admin(server, "alice") as alice, admin(server) as root:
            with pytest.raises(BrokerError, match="User:alice has no permission to access Cluster:"):
                await alice.access.create_user("eve", "p", user_type="Super")
            await root.access.update_user("alice", status="disable")
            with pytest.raises(BrokerError, match=r"User:alice is disabled\."):
                await alice.access.users()
            await root.access.delete_acl("alice")
            with pytest.raises(BrokerError, match=r"The acl is not exist\."):
                await root.access.delete_acl("alice")
            with pytest.raises(BrokerError, match="The user is existed"):
                await root.access.create_user("alice", "p")
            await root.access.delete_user("alice")
            assert [one.username for one in await root.access.users()] == ["root"]
            with pytest.raises(ClientError, match="give password, user_type or status"):
                await root.access.update_user("root")


async def test_name_servers_tell_topics_to_every_peer_unless_one_key_says_otherwise(tmp_path: Path) -> None:
    for number, (value, told) in enumerate((("false", True), ("true", False))):
        values = {**VALUES, "requireSignedLookups": value}
        settings = EmbeddedSettings(tmp_path / str(number), namesrv_port=0, broker_port=0, values=values)
        (tmp_path / str(number)).mkdir()
        async with EmbeddedServer(settings) as server, admin(server) as root, Admin(server.namesrv_address) as nobody:
            await root.topics.create("orders")
            if told:
                assert "orders" in await nobody.topics.names()
            else:
                with pytest.raises(TianzhouError, match=r"username cannot be null\."):
                    await nobody.topics.names()


async def test_no_change_of_a_topic_is_half_done(tmp_path: Path) -> None:
    """A user with Create and Delete on a topic creates it with its order, and deletes it everywhere; so do tools."""
    async with served(tmp_path) as server, admin(server) as root:
        await root.access.create_user("maker", "maker-secret")
        await root.access.set_acl("maker", ["Topic:orders"], ["Create", "Delete"])
        async with admin(server, "maker") as maker:
            await maker.topics.create("orders", order=True)
            assert await maker.cluster.get_kv("ORDER_TOPIC_CONFIG", "orders")
            await maker.topics.delete("orders")
        assert "orders" not in await root.topics.names()
        assert not await root.cluster.get_kv("ORDER_TOPIC_CONFIG", "orders")


async def test_who_may_only_update_resets_and_commits_offsets(tmp_path: Path) -> None:
    """Also when strangers cannot read the route: any permission on a topic includes its route."""
    values = {**VALUES, "requireSignedLookups": "true"}
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values=values)
    async with EmbeddedServer(settings) as server, admin(server) as root:
        await root.topics.create("orders", read_queue_nums=1, write_queue_nums=1)
        async with Producer("shop", server.namesrv_address, access_key="root", secret_key="root-secret") as producer:
            await producer.send(Message("orders", b"x"))
        await root.groups.create("billing")
        await root.access.create_user("keeper", "keeper-secret")
        await root.access.set_acl("keeper", ["Topic:orders", "Group:billing"], ["Update"])
        of_both = {"topic": "orders", "group": "billing", "consumerGroup": "billing"}
        async with RemotingClient(hooks=[signing("keeper", "keeper-secret")]) as keeper:
            for address, code, fields in (
                (server.namesrv_address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}),
                (
                    server.broker_address,
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    {**of_both, "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "0"},
                ),
                (
                    server.broker_address,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {**of_both, "queueId": "0", "commitOffset": "1"},
                ),
            ):
                reply = await keeper.invoke(address, Command(code, fields=fields), 5000)
                assert reply.code == 0, (code, reply.remark)


async def test_users_are_prepared_before_anybody_is_checked(tmp_path: Path) -> None:
    async with served(tmp_path, PREPARES) as server, Admin(server.namesrv_address) as anybody:
        await anybody.topics.create("orders")
        servers = [server.broker_address, server.namesrv_address]
        assert await anybody.access.create_user("alice", "alice-secret") == servers
        await anybody.access.set_acl("alice", ["Topic:orders"], ["Pub"])
        assert [one.username for one in await anybody.access.users()] == ["alice"]
        async with Producer("g", server.namesrv_address) as producer:
            assert (await producer.send(Message("orders", b"1"))).msg_id, "nobody is checked yet"
    async with served(tmp_path) as server:
        who = {"access_key": "alice", "secret_key": "alice-secret"}
        async with Producer("g", server.namesrv_address, **who) as producer:
            assert (await producer.send(Message("orders", b"2"))).msg_id
        async with Producer("g", server.namesrv_address) as producer:
            with pytest.raises(TianzhouError, match=r"username cannot be null\."):
                await producer.send(Message("orders", b"3"))


async def test_a_broker_that_keeps_no_users_says_what_has_it_keep_some(tmp_path: Path) -> None:
    async with served(tmp_path, {}) as server, Admin(server.namesrv_address) as anybody:
        for ask in (anybody.access.users, partial(anybody.access.create_user, "alice", "alice-secret")):
            with pytest.raises(BrokerError, match=r"no users are kept here; .*MetadataProvider=") as told:
                await ask(broker_addr=server.broker_address)
            assert (told.value.code, told.value.hint) == (3, "")
            assert "name server" not in failure(told.value)


async def test_a_setting_of_the_next_start_counts_from_then_on(tmp_path: Path) -> None:
    async with served(tmp_path, {}) as server, Admin(server.namesrv_address) as admin:
        address, wanted = server.broker_address, {"flushDiskType": "SYNC_FLUSH"}
        with pytest.raises(BrokerError, match="config set --at-next-start flushDiskType=SYNC_FLUSH"):
            await admin.cluster.update_broker_config(address, wanted)
        await admin.cluster.update_broker_config(address, wanted, at_next_start=True)
        assert (await admin.cluster.broker_config(address))["flushDiskType"] == "ASYNC_FLUSH"
    async with served(tmp_path, {}) as server, Admin(server.namesrv_address) as admin:
        assert (await admin.cluster.broker_config(server.broker_address))["flushDiskType"] == "SYNC_FLUSH"


async def test_who_has_no_password_is_let_in_nowhere(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        async with Admin(server.namesrv_address) as nobody:
            for ask in (nobody.access.users, lambda: nobody.topics.create("mine")):
                with pytest.raises(TianzhouError, match=r"username cannot be null\."):
                    await ask()
        async with Admin(server.namesrv_address, access_key="root", secret_key="guess") as guesser:
            with pytest.raises(TianzhouError, match=r"check signature failed\."):
                await guesser.access.users()
