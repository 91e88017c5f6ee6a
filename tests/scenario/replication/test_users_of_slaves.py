"""A slave has its master's users and policies, including those set while the slave was down."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from small_broker import ask, name_server, run, small_broker

from tianzhou.broker.server import Broker
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.signing import signing
from tianzhou.wire.bodies.access import USER_INFO, UserInfo
from tianzhou.wire.codes import RequestCode, ResponseCode

pytestmark = pytest.mark.runner.with_args(run)
AUTH = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": "root", "password": "root-secret"}),
    "inner_client_authentication_credentials": json.dumps({"accessKey": "root", "secretKey": "root-secret"}),
}


def broker(folder: Path, namesrv: str, role: str, number: int) -> Broker:
    store = {"broker_role": role, "store_path_root_dir": str(folder / role)}
    return small_broker(folder / role, store, namesrv_addr=namesrv, broker_id=number, **AUTH)


async def test_users_of_a_master_are_at_its_slave_and_are_caught_up(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(tmp_path))
        namesrv = f"127.0.0.1:{names.port}"
        client = await stack.enter_async_context(RemotingClient(hooks=[signing("root", "root-secret")]))
        master = await stack.enter_async_context(broker(tmp_path, namesrv, "ASYNC_MASTER", 0))
        await master.ready()

        async def create(name: str) -> None:
            user = USER_INFO.dumps(UserInfo(name, f"{name}-secret", "Normal", "enable"))
            reply = await ask(client, master.address, RequestCode.AUTH_CREATE_USER, user, username=name)
            assert reply.code == ResponseCode.SUCCESS, reply.remark

        async def knows(slave: Broker, name: str) -> bool:
            return bool((await ask(client, slave.address, RequestCode.AUTH_GET_USER, username=name)).body)

        async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
            await create("alice")
            while not await knows(slave, "alice"):
                pass
        await create("bob")
        await ask(client, master.address, RequestCode.AUTH_DELETE_USER, username="alice")
        async with broker(tmp_path, namesrv, "SLAVE", 1) as slave:
            while not await knows(slave, "bob"):
                pass
            while await knows(slave, "alice"):
                pass
            await ask(client, master.address, RequestCode.AUTH_DELETE_USER, username="bob")
            while await knows(slave, "bob"):
                pass
            assert await knows(slave, "root")


async def test_a_user_who_is_no_administrator_does_not_get_passwords(tmp_path: Path) -> None:
    async with (
        small_broker(tmp_path, **AUTH) as master,
        RemotingClient(hooks=[signing("root", "root-secret")]) as root,
        RemotingClient(hooks=[signing("alice", "alice-secret")]) as alice,
        RemotingClient() as nobody,
    ):
        user = USER_INFO.dumps(UserInfo("alice", "alice-secret", "Normal", "enable"))
        await ask(root, master.address, RequestCode.AUTH_CREATE_USER, user, username="alice")
        assert b"alice-secret" in (await ask(root, master.address, RequestCode.READ_USERS)).body
        for client in (alice, nobody):
            reply = await ask(client, master.address, RequestCode.READ_USERS)
            assert reply.code != ResponseCode.SUCCESS
            assert not reply.body
