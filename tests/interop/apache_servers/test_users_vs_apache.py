"""Our client, `Admin` and commands at Apache's 5.3.3 with users and policies, as a user with limited permissions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from client_suite import FIRST, fresh
from frames import Account
from guarded import ADMIN, APPLICATION, USERS, Guarded, guarded
from own import SOURCE
from toolchain import ToolchainMissingError

from tianzhou import ConsumeResult, Message, MessageExt, Producer, PushConsumer, TransactionProducer, TransactionState
from tianzhou.admin import Admin
from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from waiting import until_async

TOPIC, GROUP = "acl_ours", "acl_ours_g"
DELAYS = "1s 1s " + " ".join(["1s"] * 16)
CONF = {"messageDelayLevel": DELAYS, "transactionTimeOut": 500, "transactionCheckInterval": 1_000}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Yield Apache's broker with users and policies."""
    try:
        with guarded("apache", USERS, tmp_path_factory.mktemp("apache"), [TOPIC], [GROUP], CONF) as running:
            running.make_topic(TOPIC)
            running.make_topic("other")
            yield running
    except ToolchainMissingError as error:
        pytest.skip(str(error))


def keys(account: Account) -> dict[str, str]:
    return {"access_key": account.access_key, "secret_key": account.secret_key}


def run(body: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await body

    asyncio.run(main())


@pytest.mark.slow
def test_a_user_does_what_policies_allow(servers: Guarded) -> None:
    """Retries, dead letters and commits on a check are accepted; another topic is not."""

    async def body() -> None:
        seen: list[tuple[bytes, int]] = []

        def handle(message: MessageExt) -> ConsumeResult:
            seen.append((message.body, message.reconsume_times))
            return ConsumeResult.RECONSUME_LATER if message.body == b"poison" else ConsumeResult.SUCCESS

        who = keys(APPLICATION)
        consumer = PushConsumer(GROUP, servers.namesrv, consume_from_where=FIRST, max_reconsume_times=1, **who)
        consumer.subscribe(TOPIC, handler=handle)
        asked = TransactionProducer("acl_p", servers.namesrv, check=lambda _: TransactionState.COMMIT, **who)
        async with consumer, asked, Producer("acl_q", servers.namesrv, **who) as producer:
            await producer.send(Message(TOPIC, b"poison"))
            await producer.send_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
            await asked.send_in_transaction(Message(TOPIC, b"on a check"), lambda *_: TransactionState.UNKNOWN)
            wanted = {(b"poison", 0), (b"poison", 1), (b"1", 0), (b"2", 0), (b"on a check", 0)}
            await until_async(lambda: set(seen) >= wanted, "all is consumed")
            await until_async(lambda: asyncio.to_thread(lambda: servers.stored(f"%DLQ%{GROUP}") == 1), "a dead letter")
            with pytest.raises(BrokerError, match="User:application has no permission to access Topic:other"):
                await producer.send(Message("other", b"x"))
        async with Admin(servers.namesrv, **who) as admin:
            with pytest.raises(BrokerError, match="no permission to access"):
                await admin.topics.create(fresh("T"))
            with pytest.raises(BrokerError, match="no permission to access"):
                await admin.access.create_user("eve", "eve-secret", user_type="Super")

    run(body())


def test_users_and_policies_are_made_changed_and_deleted(servers: Guarded) -> None:
    """Apache's name server has no users, and is skipped."""

    async def body() -> None:
        async def sends() -> str:
            who = {"access_key": "alice", "secret_key": "alice-secret", "retry_times_when_send_failed": 0}
            async with Producer("acl_a", servers.namesrv, **who) as producer:  # type: ignore[arg-type]
                try:
                    await producer.send(Message(TOPIC, b"alice"))
                except TianzhouError as error:
                    return str(error)
                return "sent"

        async with Admin(servers.namesrv, **keys(ADMIN)) as admin:
            access = admin.access
            assert await access.create_user("alice", "alice-secret") == [servers.broker]
            found = await access.user("alice")
            assert found is not None
            assert (found.username, found.user_type, found.user_status) == ("alice", "Normal", "enable")
            assert "no matched policies" in await sends() or "no permission" in await sends()
            await access.set_acl("alice", [f"Topic:{TOPIC}"], ["Pub"])
            entry = PolicyEntryInfo(f"Topic:{TOPIC}", ["Pub"], None, "Allow")
            assert [one for one in await access.acls("alice") if one.subject == "User:alice"] == [
                AclInfo("User:alice", [PolicyInfo("Custom", [entry])])
            ]
            assert await sends() == "sent"
            assert {"alice", ADMIN.access_key} <= {one.username for one in await access.users()}
            await access.update_user("alice", status="disable")
            assert "User:alice is disabled." in await sends()
            await access.delete_acl("alice")
            await access.delete_user("alice")
            assert "User:alice is not found." in await sends()
            assert await access.user("alice") in (None, UserInfo())

    run(body())


def command(servers: Guarded, *arguments: str, **environment: str) -> Any:
    """Return the JSON output of a command of ours."""
    result = subprocess.run(
        [sys.executable, "-m", "tianzhou", *arguments, "-n", servers.namesrv, "-o", "json"],
        env={
            **os.environ, "PYTHONPATH": str(SOURCE), "TIANZHOU_ACCESS_KEY": ADMIN.access_key,
            "TIANZHOU_SECRET_KEY": ADMIN.secret_key, **environment,
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines() if line.strip()]


def test_commands_work_at_apaches_broker(servers: Guarded) -> None:
    command(servers, "users", "create", "bob", TIANZHOU_PASSWORD="bob-secret")
    assert "bob-secret" not in str(command(servers, "users", "list"))
    command(servers, "acl", "set", "bob", "--resource", f"Topic:{TOPIC}", "--action", "Sub")
    listed = str(command(servers, "acl", "list"))
    assert "bob" in listed
    assert f"Topic:{TOPIC}" in listed
    command(servers, "acl", "delete", "bob", "--yes")
    command(servers, "users", "delete", "bob", "--yes")
    assert "bob" not in str(command(servers, "users", "list"))
