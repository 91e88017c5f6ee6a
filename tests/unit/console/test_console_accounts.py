"""Accounts, actions and the audit log of the console."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import string
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.console.accounts import ConsoleRole, check_password, load_accounts, make_account, save_accounts
from tianzhou.console.actions import DEFECT, OVER, VIEWER, Actions
from tianzhou.console.audit import AuditLog
from tianzhou.console.sessions import Visitor
from tianzhou.console.texts import TEXTS, choose, text
from tianzhou.errors import ConfigError, TianzhouError

PASSWORD = "correct horse battery"


def test_passwords_are_hashed_and_the_file_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "console" / "accounts.json"
    save_accounts(path, {"alice": make_account("alice", PASSWORD, ConsoleRole.ADMIN)})
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    accounts = load_accounts(path)
    assert PASSWORD not in repr(accounts)
    found = check_password(accounts, "alice", PASSWORD)
    assert found is not None
    assert found.role is ConsoleRole.ADMIN
    assert check_password(accounts, "alice", PASSWORD + "!") is None
    assert check_password(accounts, "bob", PASSWORD) is None


@pytest.mark.parametrize(
    ("name", "password", "says"),
    [("", PASSWORD, "is no name"), ("a b", PASSWORD, "is no name"), ("alice", "short", "10 or more")],
)
def test_names_and_passwords_that_cannot_be(name: str, password: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_account(name, password, ConsoleRole.VIEWER)


@pytest.mark.parametrize("content", [b"{}", b"[{}]", b"\xff", b"[" * 100])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "accounts.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"accounts\.json"):
        load_accounts(path)


async def act(
    tmp_path: Path, role: ConsoleRole, open_: bool = True, error: Exception | None = None
) -> tuple[str, list[str], int]:
    """Return the error of an action, the outcomes in the audit log, and the number of its runs."""
    log, done = AuditLog(tmp_path / "audit.log"), []

    async def work() -> None:
        done.append(1)
        if error is not None:
            raise error

    actions = Actions(log, lambda _: open_, lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    outcome = await actions.run(Visitor("alice", role), "10.0.0.6", "delete topic", "orders", work)
    return outcome.error, [entry["outcome"] for entry in log.tail(10)], len(done)


async def test_what_an_admin_does_is_written_down_before_and_after(tmp_path: Path) -> None:
    assert await act(tmp_path, ConsoleRole.ADMIN) == ("", ["done", "begun"], 1)


async def test_what_fails_is_said_and_written_down(tmp_path: Path) -> None:
    found = await act(tmp_path, ConsoleRole.ADMIN, error=TianzhouError("no such topic"))
    assert found == ("no such topic", ["failed: no such topic", "begun"], 1)


async def test_a_defect_is_logged_and_said_to_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert (await act(tmp_path, ConsoleRole.ADMIN, error=AttributeError("no such thing")))[0] == DEFECT
    assert "no such thing" in caplog.text


async def test_viewers_and_ended_sessions_change_nothing(tmp_path: Path) -> None:
    assert await act(tmp_path, ConsoleRole.VIEWER) == (VIEWER, [f"refused: {VIEWER}"], 0)
    assert (await act(tmp_path, ConsoleRole.ADMIN, open_=False))[::2] == (OVER, 0)


async def test_without_its_line_in_the_audit_log_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    log, done = AuditLog(tmp_path / "audit.log"), []
    actions = Actions(log, lambda _: True, lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    async def work() -> None:
        done.append(1)

    outcome = await actions.run(Visitor("alice", ConsoleRole.ADMIN), "", "delete topic", "orders", work)
    assert "audit log" in outcome.error
    assert not done


def test_the_audit_log_is_bounded_and_one_line_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.console.audit.MOST_BYTES", 2_000)
    log = AuditLog(tmp_path / "audit.log")
    for number in range(40):
        log.write("2026-01-01", "alice\n", "::1", "create topic", "x" * 10_000, str(number))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6_000
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert all(line.startswith("{") and line.endswith("}") for line in path.read_text().splitlines())


async def test_details_of_a_change_are_in_its_first_line_whole_and_its_id_in_both(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    actions = Actions(log, lambda _: True, lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    details = {"id": "c1", "offsets": {"broker-a": {str(number): [number, 0] for number in range(5_000)}}, "who": "eve"}

    async def work() -> None:
        return None

    assert (await actions.run(Visitor("alice", ConsoleRole.ADMIN), "::1", "reset offsets", "g", work, details)).done
    refused = Visitor("vic", ConsoleRole.VIEWER)
    await actions.run(refused, "::1", "reset offsets", "g", work, details)
    last, end, first = log.tail(10)
    assert (first["outcome"], first["id"], first["who"]) == ("begun", "c1", "alice")
    assert first["offsets"] == details["offsets"]
    assert (end["outcome"], end["id"], "offsets" in end) == ("done", "c1", False)
    assert (last["who"], "id" in last) == ("vic", False)


def test_a_line_that_the_disk_takes_in_part_is_refused_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.write("t", "alice", "::1", "reset offsets", "g", "first")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr("tianzhou.console.audit.os.write", lambda fd, data: write(fd, data[: len(data) // 2]))
        with pytest.raises(OSError, match="bytes of the line were written"):
            log.write("t", "alice", "::1", "reset offsets", "g", "torn")
    log.write("t", "alice", "::1", "reset offsets", "g", "last")
    assert [entry["outcome"] for entry in log.tail(10)] == ["last", "first"]


def test_the_last_lines_are_read_from_the_former_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tianzhou.console.audit.MOST_BYTES", 2_000_000)
    log = AuditLog(tmp_path / "audit.log")
    long = {"id": "x", "offsets": "y" * 400_000}
    for number in range(6):
        log.write("2026-01-01", "alice", "::1", "reset offsets", "g", str(number), long)
    assert [entry["outcome"] for entry in log.tail(3)] == ["5", "4", "3"]
    assert [entry["outcome"] for entry in log.tail(100)] == ["5", "4", "3", "2", "1", "0"]
    assert log.path.stat().st_size < 500_000, "the first five lines are in the former file"


def test_every_text_has_the_same_blanks_in_both_languages() -> None:
    for key, (english, chinese) in TEXTS.items():
        blanks = [{name for _, name, _, _ in string.Formatter().parse(one) if name} for one in (english, chinese)]
        assert blanks[0] == blanks[1], key
        assert text("zh", key, **dict.fromkeys(blanks[0], "1")), key


def test_the_language_is_what_was_chosen_or_what_the_browser_prefers() -> None:
    assert choose("zh", "en-US") == "zh"
    assert choose(None, "zh-CN,zh;q=0.9") == "zh"
    assert choose("xx", "de,zh;q=0.5") == "en"
    assert choose(None, "") == "en"


async def test_many_actions_at_once_are_all_written(tmp_path: Path) -> None:
    await asyncio.gather(*(act(tmp_path, ConsoleRole.ADMIN) for _ in range(20)))
    assert len(AuditLog(tmp_path / "audit.log").tail(100)) == 40
