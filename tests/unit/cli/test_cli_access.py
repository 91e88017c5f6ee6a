"""Commands about users and policies: their requests, their output, and sources of passwords."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.cli import access
from tianzhou.wire.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

Run = Callable[..., tuple[int, str, str]]
SECRET = "s3cret-of-alice"


class Cluster:
    """A fake cluster; `calls` are the requests it got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.users = [UserInfo("alice", SECRET, "Normal", "enable")]
        entry = PolicyEntryInfo("Topic:ord*", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow")
        self.acls = [AclInfo("User:alice", [PolicyInfo("Custom", [entry])])]

    def __getattribute__(self, name: str) -> Any:
        if name in ("calls", "__class__", "__dict__"):
            return super().__getattribute__(name)
        found = {"users": self.__dict__.get("users"), "acls": self.__dict__.get("acls")}.get(name, ["h:1"])

        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, args, {key: value for key, value in options.items() if value is not None}))
            return found

        return call


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(access, "with_admin", lambda _, __, work: asyncio.run(work(SimpleNamespace(access=cluster))))
    monkeypatch.delenv(access.PASSWORD, raising=False)
    return cluster


def test_a_password_comes_from_a_file_or_the_environment_and_is_not_printed(
    cluster: Cluster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alice.secret"
    file.write_text(SECRET + "\n")
    created = run("users", "create", "alice", "--password-file", file, "--type", "Super")
    assert created == (0, "user alice created on h:1\n", "")
    monkeypatch.setenv(access.PASSWORD, SECRET)
    changed = run("users", "update", "alice", "-o", "json")
    assert (changed[0], json.loads(changed[1])) == (0, {"user": "alice", "done": "changed", "servers": ["h:1"]})
    assert cluster.calls == [
        ("create_user", ("alice", SECRET), {"user_type": "Super"}),
        ("update_user", ("alice",), {"password": SECRET}),
    ]
    assert SECRET not in str(created) + str(changed)


def test_a_state_is_changed_without_a_password(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.PASSWORD, SECRET)
    assert run("users", "update", "alice", "--status", "disable")[0] == 0
    assert cluster.calls == [("update_user", ("alice",), {"status": "disable"})]


def test_without_a_password_and_a_terminal_it_is_said_how_to_give_one(cluster: Cluster, run: Run) -> None:
    code, out, err = run("users", "create", "alice")
    assert (code, out, cluster.calls) == (2, "", [])
    assert "no password: give --password-file FILE, or set TIANZHOU_PASSWORD" in err


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"\xff\xfe", b"x" * 5000])
def test_a_file_without_a_password_is_refused_by_name(
    cluster: Cluster, run: Run, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "alice.secret"
    file.write_bytes(content)
    code, _, err = run("users", "create", "alice", "--password-file", file)
    assert code == 2
    assert "alice.secret: expected one line of text, the password" in " ".join(err.split())
    assert cluster.calls == []


def test_lists_show_no_password(cluster: Cluster, run: Run) -> None:
    assert run("users", "list")[1].split() == ["user", "type", "status", "alice", "Normal", "enable"]
    assert json.loads(run("users", "list", "-o", "json")[1]) == [
        {"user": "alice", "type": "Normal", "status": "enable"}
    ]
    assert json.loads(run("acl", "list", "-o", "json")[1]) == [
        {"user": "alice", "policy": "Custom", "resource": "Topic:ord*", "decision": "Allow", "actions": "Pub,Sub",
         "source_ips": "10.0.0.0/8"}
    ]  # fmt: skip


def test_policies_are_set_and_deleted(cluster: Cluster, run: Run) -> None:
    set_ = ("acl", "set", "alice", "-r", "Topic:a", "-r", "Group:*", "-a", "Pub", "--decision", "Deny")
    assert run(*set_, "--source-ip", "10.0.0.1", "--policy", "Default")[0] == 0
    assert run("acl", "delete", "alice", "-r", "Topic:a", "--yes")[0] == 0
    assert run("users", "delete", "alice", "--yes", "-b", "h:1")[1] == "user alice deleted on h:1\n"
    assert cluster.calls == [
        ("set_acl", ("alice", ["Topic:a", "Group:*"], ["Pub"]),
         {"decision": "Deny", "source_ips": ["10.0.0.1"], "policy_type": "Default"}),
        ("delete_acl", ("alice", "Topic:a"), {"policy_type": "Custom"}),
        ("delete_user", ("alice",), {"broker_addr": "h:1"}),
    ]  # fmt: skip
    assert run("users", "delete", "alice")[0] == 2
