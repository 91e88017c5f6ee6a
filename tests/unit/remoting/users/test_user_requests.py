"""Requests about users and policies get the same replies as from RocketMQ 5.3.3, and never a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.access.settings import AuthSettings
from tianzhou.access.signatures import signature
from tianzhou.errors import BrokerError, LimitExceeded
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.group import ConnectionGroup
from tianzhou.remoting.users.user_requests import UserRequests
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.memory import MemoryTransport
from tianzhou.wire.bodies.access import (
    ACL_INFO,
    USER_INFO,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    load_list,
)
from tianzhou.wire.command import Command

OPEN = AuthSettings()
CLOSED = AuthSettings(
    authentication_enabled=True, init_authentication_user='{"username":"root","password":"root-secret"}'
)


class Server:
    """A server of requests about the users of one store."""

    def __init__(self, folder: Path, settings: AuthSettings) -> None:
        self.store = UserStore(settings, folder, lambda _: ())
        self.requests = UserRequests(self.store)
        self.started = False
        group = ConnectionGroup(lambda *_: None, clock=VirtualClock(), idle_timeout_s=0)
        self.connection = Connection(group)
        self.transport = MemoryTransport(self.connection, ("10.0.0.6", 4000))

    async def ask(self, code: int, body: bytes = b"", by: str = "", **fields: str) -> Command:
        if not self.started:
            self.started = True
            await self.store.start()
        if by:
            fields["AccessKey"] = by
            fields["Signature"] = signature(fields, body, f"{by}-secret")
        reply = self.requests.routes()[code](self.connection, Command(code, 7, 0, fields=fields, body=body))
        return reply if isinstance(reply, Command) else await reply

    async def refusal(self, code: int, body: bytes = b"", by: str = "", **fields: str) -> tuple[int, str]:
        with pytest.raises(BrokerError) as refusal:
            await self.ask(code, body, by, **fields)
        return refusal.value.code, refusal.value.remark

    async def user(self, name: str, by: str = "", kind: str | None = None) -> Command:
        return await self.ask(3001, USER_INFO.dumps(UserInfo(None, f"{name}-secret", kind)), by, username=name)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path, OPEN)


@pytest.fixture
def closed(tmp_path: Path) -> Server:
    return Server(tmp_path, CLOSED)


def acl(resource: str, actions: str = "Pub", decision: str = "Allow", subject: str | None = None) -> bytes:
    entry = PolicyEntryInfo(resource, actions.split(","), None, decision)
    return ACL_INFO.dumps(AclInfo(subject, [PolicyInfo(None, [entry])]))


async def test_users_are_made_changed_shown_and_removed(server: Server) -> None:
    assert (await server.user("alice")).code == 0
    await server.user("bob", kind="Super")
    shown = USER_INFO.loads((await server.ask(3004, username="alice")).body)
    assert shown == UserInfo("alice", None, "Normal", "enable")
    found = load_list(USER_INFO, (await server.ask(3005, filter="")).body)
    assert [(one.username, one.user_type) for one in found] == [("alice", "Normal"), ("bob", "Super")]
    assert [one.username for one in load_list(USER_INFO, (await server.ask(3005, filter="lic")).body)] == ["alice"]
    assert bytes((await server.ask(3005, filter="zzz")).body) == b""
    body = USER_INFO.dumps(UserInfo(user_status="disable"))
    assert (await server.ask(3002, body, username="alice")).code == 0
    assert server.store.table.users["alice"].password == "alice-secret"
    assert USER_INFO.loads((await server.ask(3004, username="alice")).body).user_status == "disable"
    assert (await server.ask(3003, username="alice")).code == 0
    assert (await server.ask(3003, username="alice")).code == 0
    gone = await server.ask(3004, username="alice")
    assert (gone.code, bytes(gone.body)) == (0, b"")


async def test_no_answer_has_a_password(server: Server) -> None:
    await server.user("alice")
    for reply in (await server.ask(3004, username="alice"), await server.ask(3005)):
        assert b"password" not in bytes(reply.body)


async def test_requests_about_users_that_cannot_be_carried_out(server: Server) -> None:
    body = USER_INFO.dumps(UserInfo(None, "p"))
    await server.user("alice")
    assert await server.refusal(3001, body, username="") == (29, "The username is blank")
    assert await server.refusal(3001, body, username=" ") == (16, "username can not be blank")
    assert await server.refusal(3001, b"", username="bob") == (1, "The body of user is null")
    assert await server.refusal(3001, b"{}", username="bob") == (16, "password can not be blank")
    assert await server.refusal(3001, body, username="alice") == (16, "The user is existed")
    assert await server.refusal(3002, body, username="bob") == (16, "The user is not exist")
    assert await server.refusal(3003, username="") == (16, "username can not be blank")
    assert await server.refusal(3004, username="") == (29, "The username is blank")
    for broken in (b'{"password":["s3cret"]}', b'{"password":"s3cret', b'"s3cret"', b"\xff\xfe"):
        code, remark = await server.refusal(3001, broken, username="bob")
        assert (code, remark) == (1, "the body cannot be read: is no user in JSON")


async def test_policies_are_made_shown_and_removed(server: Server) -> None:
    await server.user("alice")
    await server.user("bob")
    assert (await server.ask(3006, acl("Topic:orders"), subject="User:alice")).code == 0
    assert (await server.ask(3007, acl("Topic:orders", "Sub"), subject="User:alice")).code == 0
    assert (await server.ask(3006, acl("Group:g*", subject="User:bob"), subject="User:alice")).code == 0
    shown = ACL_INFO.loads((await server.ask(3009, subject="User:alice")).body)
    entry = PolicyEntryInfo("Topic:orders", ["Sub"], None, "Allow")
    assert shown == AclInfo("User:alice", [PolicyInfo("Custom", [entry])])
    for fields, subjects in (
        ({}, ["User:alice", "User:bob"]),
        ({"subjectFilter": "ali"}, ["User:alice"]),
        ({"resourceFilter": "Group:"}, ["User:bob"]),
        ({"resourceFilter": "none"}, []),
    ):
        found = load_list(ACL_INFO, (await server.ask(3010, b"", **fields)).body)
        assert [one.subject for one in found] == subjects
    assert (await server.ask(3008, subject="User:alice", resource="Topic:orders")).code == 0
    assert bytes((await server.ask(3009, subject="User:alice")).body) == b""
    assert (await server.ask(3008, subject="User:bob")).code == 0
    assert server.store.table.acls == {}


async def test_a_removed_user_takes_its_policies_along(server: Server) -> None:
    await server.user("alice")
    await server.ask(3006, acl("*"), subject="User:alice")
    await server.ask(3003, username="alice")
    await server.user("alice")
    assert bytes((await server.ask(3009, subject="User:alice")).body) == b""


async def test_requests_about_policies_that_cannot_be_carried_out(server: Server) -> None:
    await server.user("alice")
    assert await server.refusal(3006, b"", subject="User:alice") == (1, "The body of acl is null")
    assert await server.refusal(3006, acl("*"), subject="") == (16, "The subject is null.")
    assert await server.refusal(3006, acl("*"), subject="alice") == (29, "subject alice: expected User:NAME")
    assert await server.refusal(3006, acl("*"), subject="User:bob") == (16, "The subject of User:bob is not exist.")
    assert await server.refusal(3008, subject="User:bob") == (16, "The subject is not exist.")
    assert await server.refusal(3008, subject="User:alice") == (16, "The acl is not exist.")
    assert await server.refusal(3009, subject="User:bob") == (16, "The subject is not exist.")
    await server.ask(3006, acl("*"), subject="User:alice")
    code, remark = await server.refusal(3008, subject="User:alice", resource="Topics:a")
    assert (code, remark) == (29, "resource Topics:a: expected one such as Topic:orders, Group:readers* or *")
    assert "alice" in server.store.table.acls


@pytest.mark.over_limit("maxAccessBodyBytes")
async def test_bodies_are_bounded(server: Server) -> None:
    for code, fields in ((3001, {"username": "a"}), (3006, {"subject": "User:a"})):
        with pytest.raises(LimitExceeded, match="262145 bytes, at most 262144"):
            await server.ask(code, b" " * 262_145, **fields)


async def test_only_super_users_touch_super_users(closed: Server) -> None:
    assert (await closed.user("alice", by="root")).code == 0
    update = USER_INFO.dumps(UserInfo(None, "stolen"))
    promote = USER_INFO.dumps(UserInfo(None, "p", "super"))
    for by in ("alice", ""):
        assert await closed.refusal(3001, promote, by, username="eve") == (
            1, "The super user can only be create by super user",
        )  # fmt: skip
        assert await closed.refusal(3002, promote, by, username="alice") == (
            1, "The super user can only be update by super user",
        )  # fmt: skip
        for code, body in ((3002, update), (3003, b"")):
            assert await closed.refusal(code, body, by, username="root") == (
                16, "The super user can only be update by super user",
            )  # fmt: skip
    # A request in the name of a super user needs that user's secret.
    fields = {"username": "root", "AccessKey": "root", "Signature": "forged"}
    assert (await closed.refusal(3002, update, **fields))[0] == 16
    assert (await closed.user("second", by="root", kind="Super")).code == 0
    assert (await closed.ask(3002, update, "second", username="root")).code == 0
    assert (await closed.ask(3003, b"", "second", username="root")).code == 0
