"""Rule files that change while the servers run, and the display of files that are not in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from tianzhou.admin import Admin
from tianzhou.client import ClientInstance
from tianzhou.doctor.looks.address import see_address
from tianzhou.doctor.observations import PortKind
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.gates import plain_files
from tianzhou.remoting.gates.access_control import READING
from tianzhou.remoting.signing import signing
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from waiting import until_async

ADMIN = {"access_key": "administrator", "secret_key": "admin-secret"}
ACCOUNTS = "accounts:\n- {accessKey: administrator, secretKey: admin-secret, admin: true}\n"
VALUES = {"aclEnable": "true"}


async def test_a_file_that_cannot_be_read_is_seen_by_operators_and_an_empty_list_revokes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_files, "WATCH_S", 0.05)
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    async with (
        EmbeddedServer(EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values=VALUES)) as server,
        Admin(server.namesrv_address, **ADMIN) as admin,
        RemotingClient(hooks=[signing(*ADMIN.values())]) as client,
    ):

        async def troubles() -> list[str]:
            (status,) = await admin.cluster.status()
            return [f"{one.task}: {one.why}" for one in status.troubles]

        async def is_failing() -> bool:
            return any(READING in text and "plain_acl.yml: line 1" in text for text in await troubles())

        async def is_well() -> bool:
            return await troubles() == []

        async def code_of(address: str) -> int:
            return (await client.invoke(address, Command(RequestCode.GET_NAMESRV_CONFIG, fields={}), 5000)).code

        file.write_text("accounts: [{")
        await until_async(is_failing, "status names the file")
        assert await code_of(server.namesrv_address) == 0, "the rules from before are in force"
        file.write_text(ACCOUNTS)
        await until_async(is_well, "status is well again")
        file.write_text("accounts: []\n")

        async def is_refused() -> bool:
            return [await code_of(address) for address in (server.namesrv_address, server.broker_address)] == [1, 1]

        await until_async(is_refused, "the account is refused")


async def test_doctor_does_not_take_open_look_ups_for_a_server_without_access_control(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    for values, is_open in ((VALUES, False), ({}, True)):
        settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values=values)
        async with EmbeddedServer(settings) as server, ClientInstance(server.namesrv_address) as stranger:
            seen = await see_address(stranger, server.namesrv_address, PortKind.NAME_SERVER, 3000)
            other = await see_address(stranger, server.broker_address, PortKind.NAME_SERVER, 3000)
        assert (seen.kind, seen.unsigned) == (PortKind.NAME_SERVER, is_open)
        assert other.unsigned is is_open
