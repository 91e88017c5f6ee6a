"""Rule files of RocketMQ 4.x on the disk."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest

from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import PlainNeed
from tianzhou.errors import ConfigError
from tianzhou.remoting.gates.plain_files import PlainFiles

ONE = "accounts: [{accessKey: appUser1, secretKey: hushhush, admin: true}]\n"
TWO = "accounts: [{accessKey: appUser2, secretKey: hushhush}]\n"


def nothing(request: AccessRequest) -> PlainNeed:
    return PlainNeed({})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ONE)
    path.chmod(0o600)
    return path


def files(file: Path) -> PlainFiles:
    return PlainFiles(file, file.parent / "acl", nothing)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl\.yml.*admin: true"):
        files(tmp_path / "plain_acl.yml")


def test_faults_of_all_files_are_named_at_once(file: Path, tmp_path: Path) -> None:
    file.write_text("accounts: 5\n")
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "a.yml").write_bytes(b"\xff")
    (tmp_path / "acl" / "b.yml").write_text("accounts: [{accessKey: appUser2, secretKey: hushhush, admin: 7}]\n")
    with pytest.raises(ConfigError) as caught:
        files(file)
    assert sorted(text.partition(":")[0].rpartition("/")[2] for text in caught.value.texts) == [
        "a.yml", "b.yml", "plain_acl.yml",
    ]  # fmt: skip


def test_files_of_the_folder_count_but_no_links_out_of_it(file: Path, tmp_path: Path) -> None:
    below = tmp_path / "acl" / "team"
    below.mkdir(parents=True)
    (below / "a.yaml").write_text(TWO)
    (tmp_path / "secret.yml").write_text(TWO.replace("appUser2", "appUser3"))
    (tmp_path / "acl" / "b.yml").symlink_to(tmp_path / "secret.yml")
    assert files(file).rules.accounts == {"appUser1", "appUser2"}


async def test_changed_file_is_in_force_and_a_broken_one_is_logged_once(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = files(file)
    file.write_text(TWO)
    await rules.refresh()
    assert rules.rules.accounts == {"appUser2"}
    for text in ("accounts: [{secretKey: hushhush", "", "accounts: []"):
        file.write_text(text)
        await rules.refresh()
        await rules.refresh()
        assert rules.rules.accounts == {"appUser2"}
        assert rules.broken
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    file.write_text(TWO)
    await rules.refresh()
    assert not rules.broken
    assert "can be read again" in caplog.text
    assert "hushhush" not in caplog.text


async def test_accounts_are_changed_where_they_are(file: Path, tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    other = tmp_path / "acl" / "a.yml"
    other.write_text(TWO)
    rules = files(file)
    await rules.update_account("appUser2", lambda account: msgspec.structs.replace(account, admin=True))
    assert rules.is_admin("appUser2")
    assert "admin: true" in other.read_text()
    await rules.update_account("appUser9", lambda account: msgspec.structs.replace(account, secret_key="hushhush"))
    assert "appUser9" in file.read_text()
    assert rules.versions()[str(file)].counter == 1
    assert await rules.delete_account("appUser9")
    assert not await rules.delete_account("appUser9")
    assert await rules.update_white_list(("10.0.0.*",))
    assert not await rules.update_white_list(("10.0.0.*",), "/etc/passwd")
    assert files(file).check(AccessRequest(10, {}, ip="10.0.0.9")) == ""
    assert file.stat().st_mode & 0o777 == 0o600


async def test_wrong_changes_leave_the_file(file: Path) -> None:
    rules = files(file)
    with pytest.raises(ConfigError, match="longer than 6"):
        await rules.update_account("appUser9", lambda account: account)
    with pytest.raises(ConfigError, match="no account"):
        await rules.delete_account("appUser1")
    with pytest.raises(ConfigError, match="address pattern"):
        await rules.update_white_list(("x",))
    assert file.read_text() == ONE


def test_open_file_is_warned_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.chmod(0o644)
    files(file)
    assert "chmod 600" in caplog.text


def test_pipe_is_not_waited_for(file: Path, tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    os.mkfifo(tmp_path / "acl" / "a.yml")
    with pytest.raises(ConfigError, match="no ordinary file"):
        files(file)
