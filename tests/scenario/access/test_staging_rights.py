"""Writing exactly once with the right to do that alone, at servers of both kinds of access control."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tianzhou.admin import Admin
from tianzhou.client.staging import KV_NAMESPACE, Staging, StagingTask
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import BrokerError, ConnectFailed, TianzhouError
from tianzhou.model import Message
from tianzhou.wire.bodies.staging import BatchDecision

WRITER, TOPIC = "batch:nightly", "orders"
ROOT = {"access_key": "administrator", "secret_key": "admin-secret"}
JOB = {"access_key": "nightly-job", "secret_key": "job-secret"}
OTHER = {"access_key": "other-job", "secret_key": "other-secret"}
ACCOUNTS = f"""
accounts:
- {{accessKey: administrator, secretKey: admin-secret, admin: true}}
- accessKey: nightly-job
  secretKey: job-secret
  topicPerms: [{TOPIC}=PUB]
  groupPerms: ["{WRITER}=SUB", {KV_NAMESPACE}=SUB]
- accessKey: other-job
  secretKey: other-secret
  topicPerms: [{TOPIC}=PUB]
  groupPerms: ["{WRITER}=SUB"]
"""


@asynccontextmanager
async def with_accounts(folder: Path) -> AsyncIterator[EmbeddedServer]:
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server, Admin(server.namesrv_address, **ROOT) as admin:
        await admin.topics.create(TOPIC, read_queue_nums=1, write_queue_nums=1)
        yield server


@asynccontextmanager
async def with_users(folder: Path) -> AsyncIterator[EmbeddedServer]:
    values = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"administrator","password":"admin-secret"}',
    }
    settings = EmbeddedSettings(folder, namesrv_port=0, broker_port=0, values=values)
    async with EmbeddedServer(settings) as server, Admin(server.namesrv_address, **ROOT) as admin:
        await admin.topics.create(TOPIC, read_queue_nums=1, write_queue_nums=1)
        for who, more in ((JOB, [f"Group:{KV_NAMESPACE}"]), (OTHER, [])):
            await admin.access.create_user(who["access_key"], who["secret_key"])
            await admin.access.set_acl(who["access_key"], [f"Topic:{TOPIC}"], ["Pub"])
            await admin.access.set_acl(who["access_key"], [f"Group:{WRITER}", *more], ["Sub"])
        yield server


BOTH = pytest.mark.parametrize("served", [with_accounts, with_users], ids=["accounts", "users"])


async def write(server: EmbeddedServer, who: dict[str, str], batch: int = 0) -> None:
    staging = Staging(server.namesrv_address, timeout_ms=10_000, **who)  # type: ignore[arg-type]
    await staging.start()
    try:
        coordinator = await staging.coordinator(WRITER)
        task = StagingTask(staging, WRITER, batch, coordinator, f"attempt-{batch}")
        await task.add([(Message(TOPIC, b"%d" % number), None) for number in range(5)])
        decision = await staging.decide(BatchDecision(WRITER, batch, coordinator, [await task.finish()]))
        await task.close()
        await staging.publish(decision)
    finally:
        await staging.stop()


async def bodies(server: EmbeddedServer) -> int:
    async with Admin(server.namesrv_address, **ROOT) as admin:
        return (await admin.topics.describe(TOPIC)).message_count


@BOTH
async def test_the_first_batch_of_a_cluster_needs_that_right_and_no_administrator(served: Any, tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        with pytest.raises(ConnectFailed, match=rf"no name server keeps which broker decides .*{KV_NAMESPACE}"):
            await write(server, OTHER)
        await write(server, JOB)
        assert await bodies(server) == 5
        # Once the coordinator is chosen, writing as this writer needs no further permission.
        await write(server, OTHER, batch=1)
        assert await bodies(server) == 10


@BOTH
async def test_that_right_is_none_for_other_entries_and_replaces_no_choice(served: Any, tmp_path: Path) -> None:
    async with served(tmp_path) as server, Admin(server.namesrv_address, **JOB) as job:
        refused = r"Need admin permission|has no permission to access"
        for namespace, key in (("ORDER_TOPIC_CONFIG", "orders"), (KV_NAMESPACE, "other"), ("x", "coordinator-1")):
            with pytest.raises(TianzhouError, match=refused):
                await job.cluster.put_kv(namespace, key, "broker-b")
        await job.cluster.put_kv(KV_NAMESPACE, "coordinator-1", "broker-a")
        assert await job.cluster.get_kv(KV_NAMESPACE, "coordinator-1") == "broker-a"
        with pytest.raises(BrokerError, match=r"coordinator-1 is broker-a and is not replaced; delete it first"):
            await job.cluster.put_kv(KV_NAMESPACE, "coordinator-1", "broker-b")
        await job.cluster.put_kv(KV_NAMESPACE, "coordinator-1", "broker-a")
        with pytest.raises(TianzhouError, match=refused):
            await job.cluster.delete_kv(KV_NAMESPACE, "coordinator-1")
        async with Admin(server.namesrv_address, **ROOT) as root:
            await root.cluster.delete_kv(KV_NAMESPACE, "coordinator-1")
            await root.cluster.put_kv(KV_NAMESPACE, "coordinator-1", "broker-b")


async def test_a_user_who_may_change_the_cluster_needs_no_group(tmp_path: Path) -> None:
    async with with_users(tmp_path) as server, Admin(server.namesrv_address, **ROOT) as root:
        await root.access.create_user("operator", "operator-secret")
        await root.access.set_acl("operator", ["Cluster:*"], ["Update"])
        async with Admin(server.namesrv_address, access_key="operator", secret_key="operator-secret") as operator:
            await operator.cluster.put_kv(KV_NAMESPACE, "coordinator-2", "broker-a")
        assert await root.cluster.get_kv(KV_NAMESPACE, "coordinator-2") == "broker-a"
