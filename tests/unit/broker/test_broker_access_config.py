"""Accounts of RocketMQ 4.x changed by administrators."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tianzhou.access.requests import AccessRequest
from tianzhou.access.resources import PlainNeed
from tianzhou.broker.handlers.access_config import AccessConfigHandler
from tianzhou.errors import BrokerError
from tianzhou.remoting.gates.plain_files import PlainFiles
from tianzhou.wire.command import Command
from tianzhou.wire.fields import write_header


def nothing(request: AccessRequest) -> PlainNeed:
    return PlainNeed({})


class Talk:
    def __init__(self, folder: Path) -> None:
        file = folder / "plain_acl.yml"
        file.write_text("accounts: [{accessKey: theAdmin, secretKey: hushhush, admin: true}]")
        file.chmod(0o600)
        self.files = PlainFiles(file, folder / "acl", nothing)
        settings = SimpleNamespace(broker_name="b", broker_cluster_name="c")
        services: Any = SimpleNamespace(
            tables=SimpleNamespace(settings=settings), store=None, stats=None, clock=None, turns=None,
            replication=None, address="h:1", host=None,
        )  # fmt: skip
        self._routes = AccessConfigHandler(services, self.files).routes()

    async def ask(self, code: int, **values: Any) -> Any:
        found: Any = self._routes[code](cast("Any", None), Command(code, fields=write_header(code, **values)))
        return await found if asyncio.iscoroutine(found) else found


async def test_account_is_made_changed_and_deleted(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    await talk.ask(50, access_key="appUser1", secret_key="hushhush", topic_perms="a=PUB,b=SUB", admin=False)
    await talk.ask(50, access_key="appUser1", secret_key="hushhush2", admin=True)
    account = talk.files.configs[talk.files.file].accounts[-1]
    assert (account.topic_perms, account.secret_key) == (("a=PUB", "b=SUB"), "hushhush2")
    assert talk.files.is_admin("appUser1")
    await talk.ask(53, global_white_addrs="10.0.0.1,10.0.0.*")
    reply = await talk.ask(52)
    assert json.loads(reply.fields["version"])["counter"] == 3
    assert json.loads(reply.fields["allAclFileVersion"])[str(talk.files.file)]["counter"] == 3
    assert reply.fields["clusterName"] == "c"
    await talk.ask(51, access_key="appUser1")
    assert talk.files.rules.accounts == {"theAdmin"}


async def test_accounts_are_shown_without_their_secrets(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    further = tmp_path / "acl" / "more.yml"
    further.write_text(
        "globalWhiteRemoteAddresses: [10.0.0.*]\n"
        "accounts: [{accessKey: appUser1, secretKey: hushhush, topicPerms: [a=PUB], defaultGroupPerm: SUB},"
        " {accessKey: theAdmin, secretKey: hushhush2}]"
    )
    reply = await Talk(tmp_path).ask(54)
    assert b"hush" not in reply.body
    assert json.loads(reply.body) == {
        "globalWhiteAddrs": ["10.0.0.*"],
        "plainAccessConfigs": [
            {
                "accessKey": "appUser1", "admin": False, "defaultGroupPerm": "SUB", "defaultTopicPerm": "",
                "groupPerms": [], "secretKey": "******", "topicPerms": ["a=PUB"], "whiteRemoteAddress": "",
            },
            {
                "accessKey": "theAdmin", "admin": False, "defaultGroupPerm": "", "defaultTopicPerm": "",
                "groupPerms": [], "secretKey": "******", "topicPerms": [], "whiteRemoteAddress": "",
            },
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "values", "refused"),
    [
        (50, {"access_key": "appUser1"}, 209),
        (50, {"access_key": "appUser1", "secret_key": "hush"}, 209),
        (50, {"access_key": "appUser1", "secret_key": "hushhush", "topic_perms": "a=PUBB"}, 209),
        (51, {"access_key": "appUser1"}, 210),
        (51, {"access_key": "theAdmin"}, 210),
        (53, {"global_white_addrs": "x"}, 211),
        (53, {"global_white_addrs": "*", "acl_file_full_path": "/etc/passwd"}, 211),
    ],
)
async def test_wrong_changes_are_refused_without_secrets(
    tmp_path: Path, code: int, values: dict[str, str], refused: int
) -> None:
    talk = Talk(tmp_path)
    with pytest.raises(BrokerError) as caught:
        await talk.ask(code, **values)
    assert caught.value.code == refused
    assert "hush" not in caught.value.remark
