"""Users and policies survive the process, count once the disk has them, and are never read from a damaged file."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tianzhou.access.acl_changes import read_policies
from tianzhou.access.plain_config import Account
from tianzhou.access.settings import AuthSettings
from tianzhou.errors import BrokerError, ConfigError, LimitExceeded
from tianzhou.remoting.users import user_store
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.wire.bodies.access import PolicyEntryInfo, PolicyInfo, UserInfo

SECRET = "s3cret-of-alice"
ON = AuthSettings(authentication_enabled=True, authorization_enabled=True)
POLICIES = read_policies([PolicyInfo("Custom", [PolicyEntryInfo("Topic:orders*", ["Pub"], ["10.0.0.0/8"], "Allow")])])


async def started(folder: Path, settings: AuthSettings = ON, accounts: list[Account] | None = None) -> UserStore:
    store = UserStore(settings, folder, lambda _: (), accounts=lambda: accounts or [])
    await store.start()
    return store


async def put_alice(store: UserStore, secret: str = SECRET) -> None:
    await store.change(lambda table: table.create_user(UserInfo("alice", secret), store.bounds))
    await store.change(lambda table: table.put_acl("alice", POLICIES, store.bounds))


async def test_what_was_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    first = await started(tmp_path / "config")
    await put_alice(first)
    second = await started(tmp_path / "config")
    assert second.table == first.table
    assert second.table.users["alice"].password == SECRET
    await second.change(lambda table: table.delete_user("alice"))
    third = await started(tmp_path / "config")
    assert (third.table.users, third.table.acls) == ({}, {})


async def test_the_files_are_for_their_owner_only(tmp_path: Path) -> None:
    await put_alice(await started(tmp_path))
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "users.json": 0o600, "users.json.bak": 0o600,
    }  # fmt: skip


async def test_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    store = await started(tmp_path)
    await store.change(lambda table: table.delete_user("nobody"))
    assert list(tmp_path.iterdir()) == []


async def test_a_damaged_file_is_refused_by_name_and_without_what_is_in_it(tmp_path: Path) -> None:
    await put_alice(await started(tmp_path))
    file = tmp_path / "users.json"
    whole = file.read_bytes()
    for damaged in (
        whole[: len(whole) // 2], b"", b"[]", b"{}", b'{"version":2}', whole.replace(b'"Normal"', b'"Norml"'),
        whole.replace(b"User:alice", b"User:bob"), whole.replace(b'"Allow"', b'"Maybe"'),
        whole.replace(b'"password":"s3cret', b'"password":["s3cret'), b"[" * 200_000,
    ):  # fmt: skip
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"users\.json.*copy users\.json\.bak to users\.json") as refusal:
            await started(tmp_path)
        assert "s3cret" not in str(refusal.value)
    file.unlink()
    with pytest.raises(ConfigError, match=r"users\.json is gone.*copy users\.json\.bak"):
        await started(tmp_path)


async def test_a_change_that_the_disk_refuses_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await started(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(user_store, "replace_file", full)
    with pytest.raises(ConfigError, match=r"cannot write .*users\.json: No space left on device"):
        await put_alice(store)
    assert store.table.users == {}
    monkeypatch.undo()
    await put_alice(store)
    assert store.table == (await started(tmp_path)).table


async def test_changes_come_one_after_another_and_a_lost_peer_does_not_stop_one(tmp_path: Path) -> None:
    store = await started(tmp_path)
    tasks = [
        asyncio.ensure_future(
            store.change(lambda table, name=name: table.create_user(UserInfo(name, SECRET), store.bounds))
        )
        for name in ("a", "b", "c")
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await store.close()
    assert sorted(store.table.users) == sorted((await started(tmp_path)).table.users) == ["a", "b", "c"]


@pytest.mark.over_limit("maxAccessBytes")
async def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await started(tmp_path)
    small = type("Limit", (), {"default": 100, "error": user_store.ACCESS_BYTES.error})
    monkeypatch.setattr("tianzhou.access.user_table.ACCESS_BYTES", small)
    with pytest.raises(LimitExceeded, match="at most 100 are allowed"):
        await put_alice(store)
    assert store.table.users == {}


async def test_the_user_of_the_settings_is_made_once(tmp_path: Path) -> None:
    settings = replace(
        ON,
        init_authentication_user='{"username":"root","password":"first"}',
        inner_client_authentication_credentials='{"accessKey":"broker","secretKey":"inner"}',
    )
    store = await started(tmp_path, settings)
    assert {name: (user.password, user.type) for name, user in store.table.users.items()} == {
        "root": ("first", "Super"), "broker": ("inner", "Super"),
    }  # fmt: skip
    await store.change(lambda table: table.update_user(UserInfo("root", "second")))
    assert (await started(tmp_path, settings)).table.users["root"].password == "second"


@pytest.mark.parametrize(
    "text", ["root:s3cret", '{"username":"root"}', '{"username":"root","password":" "}', "[s3cret]"]
)
async def test_a_user_of_the_settings_that_is_none_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser") as refusal:
        await started(tmp_path, replace(ON, init_authentication_user=text))
    assert "s3cret" not in str(refusal.value)


async def test_accounts_become_users_that_are_not_there_yet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(ON, migrate_auth_from_v1_enabled=True)
    accounts = [
        Account("alice", "another", topic_perms=("T=PUB",)),
        Account("appUser", "appSecret", "10.0.0.1", topic_perms=("T=PUB",)),
        Account("no\nname", "x"),
    ]
    await put_alice(await started(tmp_path))
    with caplog.at_level(logging.WARNING):
        store = await started(tmp_path, settings, accounts)
    assert sorted(store.table.users) == ["alice", "appUser"]
    assert store.table.users["alice"].password == SECRET
    assert [str(entry.resource) for entry in store.table.acls["appUser"]["Custom"]] == ["Topic:T"]
    assert "account no\\nname cannot become a user" in caplog.text
    assert "no white lists of addresses: requests of appUser" in caplog.text
    assert (await started(tmp_path, ON, accounts)).table == store.table


async def test_the_log_says_who_was_changed_and_no_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        store = await started(tmp_path)
        await put_alice(store)
        await store.change(lambda table: table.delete_user("alice"))
        with pytest.raises(BrokerError):
            await store.change(lambda table: table.delete_acl("alice", "Custom", None))
    lines = [record.message for record in caplog.records if record.name == user_store.__name__]
    assert lines == ["users: alice created", "users: alice changed", "users: alice removed"]
    assert SECRET not in caplog.text


CHANGES = """
import asyncio, sys
from pathlib import Path
from tianzhou.access.settings import AuthSettings
from tianzhou.remoting.users.user_store import UserStore
from tianzhou.wire.bodies.access import UserInfo

async def main():
    store = UserStore(AuthSettings(), Path(sys.argv[1]), lambda _: ())
    await store.start()
    for number in range(100_000):
        info = UserInfo(f"u{number}", "p")
        await store.change(lambda table: table.create_user(info, store.bounds))
        print(number, flush=True)

asyncio.run(main())
"""


async def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", CHANGES, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(25)]
        os.kill(process.pid, signal.SIGKILL)
        answered += [int(line) for line in process.stdout if line.strip()]
    users = (await started(tmp_path)).table.users
    assert {f"u{number}" for number in answered} <= users.keys()
    assert len(users) <= len(answered) + 1


async def test_a_follower_confirms_no_change_that_it_made_as_a_former_leader(tmp_path: Path) -> None:
    store = await started(tmp_path)
    await put_alice(store)
    store.follows, store.agrees = lambda: True, lambda: False
    with pytest.raises(BrokerError, match="this broker does not lead; send the request to the leader"):
        await store.change(lambda table: table.update_user(UserInfo("alice", SECRET)))
    store.agrees = lambda: True
    await store.change(lambda table: table.update_user(UserInfo("alice", SECRET)))
