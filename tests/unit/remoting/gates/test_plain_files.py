"""Rule files of RocketMQ 4.x on the disk."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest

from tianzhou.access.requests import AccessDenied, AccessRequest
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


@pytest.mark.parametrize("content", [None, "", "# nothing yet\n", "accounts: []\n", "accounts:\n", "{}\n"])
def test_without_accounts_everybody_is_refused(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "plain_acl.yml"
    if content is not None:
        file.write_text(content)
        file.chmod(0o600)
    rules = files(file)
    with pytest.raises(AccessDenied, match="No acl config for appUser1"):
        rules.check(AccessRequest(10, {"AccessKey": "appUser1"}, ip="10.0.0.9"))
    assert "plain_acl.yml: no account: every peer is refused" in caplog.text


def test_a_white_list_without_accounts_lets_its_addresses_in(file: Path) -> None:
    file.write_text("globalWhiteRemoteAddresses: [10.0.0.*]\n")
    assert files(file).check(AccessRequest(10, {}, ip="10.0.0.9")) == ""
    with pytest.raises(AccessDenied):
        files(file).check(AccessRequest(10, {}, ip="10.0.1.9"))


def test_faults_of_all_files_are_named_at_once(file: Path, tmp_path: Path) -> None:
    file.write_text("accounts: 5\n")
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "a.yml").write_bytes(b"\xff")
    (tmp_path / "acl" / "b.yml").write_text("accounts: [{accessKey: appUser2, secretKey: hushhush, admin: maybe}]\n")
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
    for text in ("accounts: [{secretKey: hushhush", "", "# being written\n"):
        file.write_text(text)
        await rules.refresh()
        await rules.refresh()
        assert rules.rules.accounts == {"appUser2"}
        assert list(rules.faults) == [file]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [("no YAML" in text, "accounts: []" in text) for text in errors] == [(True, False), (False, True)]
    file.write_text(TWO)
    await rules.refresh()
    assert not rules.faults
    assert "can be read again" in caplog.text
    assert "hushhush" not in caplog.text


@pytest.mark.parametrize(
    "content", [None, "accounts: []\n", "accounts:\n", "accounts: null\nglobalWhiteRemoteAddresses: []\n", "{}\n"]
)
async def test_an_empty_list_and_a_deleted_file_revoke(
    file: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    rules = files(file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    await rules.refresh()
    assert rules.rules.accounts == frozenset()
    assert not rules.faults
    assert (content is None) == ("is deleted: its accounts and white list are revoked" in caplog.text)


async def test_a_broken_file_does_not_hold_up_the_revocation_in_another(file: Path, tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    other = tmp_path / "acl" / "a.yml"
    other.write_text(TWO)
    rules = files(file)
    other.write_text("accounts: [{")
    file.write_text("accounts: []\n")
    await rules.refresh()
    assert rules.rules.accounts == {"appUser2"}
    assert list(rules.faults) == [other]


async def test_a_file_that_must_not_be_read_keeps_its_rules(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = files(file)

    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    await rules.refresh()
    assert rules.rules.accounts == {"appUser1"}
    assert "let the server's user read it" in rules.faults[file]


async def test_a_directory_in_the_place_of_a_file_keeps_its_rules(file: Path) -> None:
    rules = files(file)
    file.unlink()
    file.mkdir()
    await rules.refresh()
    assert rules.rules.accounts == {"appUser1"}
    assert "no ordinary file" in rules.faults[file]


async def test_what_cannot_be_read_is_not_overwritten(file: Path) -> None:
    rules = files(file)
    file.write_text("accounts: [{accessKey: half-writ")
    with pytest.raises(ConfigError, match="no YAML"):
        await rules.update_account("appUser9", lambda account: msgspec.structs.replace(account, secret_key="hushhush"))
    assert file.read_text() == "accounts: [{accessKey: half-writ"


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
