"""Users and policies are made over the wire, at a broker and a name server that check who asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tianzhou.admin import Admin
from tianzhou.client import Producer
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import BrokerError, ClientError, TianzhouError
from tianzhou.model import Message
from tianzhou.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

VALUES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[EmbeddedServer]:
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=VALUES)
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


async def test_who_has_no_password_is_let_in_nowhere(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        async with Admin(server.namesrv_address) as nobody:
            for ask in (nobody.access.users, nobody.topics.names):
                with pytest.raises(TianzhouError, match=r"username cannot be null\."):
                    await ask()
        async with Admin(server.namesrv_address, access_key="root", secret_key="guess") as guesser:
            with pytest.raises(TianzhouError, match=r"check signature failed\."):
                await guesser.access.users()
