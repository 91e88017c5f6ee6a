"""The consumer groups of `tianzhou bench` at a broker that creates deleted ones again, and at one that does not."""

from __future__ import annotations

import asyncio

import pytest
from own_server import own_server

from tianzhou.admin import Admin
from tianzhou.bench import run_groups
from tianzhou.bench.run_groups import RunGroups
from tianzhou.model import BrokerData, ClusterInfo
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.codes import LanguageCode, RequestCode
from tianzhou.wire.fields import read_header

pytestmark = pytest.mark.usefixtures("shared_loop")


class MakesAnew:
    """A name server and broker in one that identifies as Apache's, and creates a deleted group again after `held_s`."""

    def __init__(self, held_s: float) -> None:
        self.groups: set[str] = set()
        self.deleted: list[str] = []
        self._held_s = held_s
        self._pulled: set[str] = set()
        self.server = RemotingServer("127.0.0.1", 0, self._serve)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def pull(self, group: str) -> None:
        """Hold a pull of a group whose client has disconnected."""
        self._pulled.add(group)
        self.groups.add(group)

    def _serve(self, connection, command):
        reply = command.reply(0)
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            broker = BrokerData("b", "c", {0: self.address})
            reply = command.reply(0, body=CLUSTER_INFO.dumps(ClusterInfo({"b": broker}, {"c": ["b"]})))
        elif command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            reply = command.reply(17, "no such topic")
        elif command.code == RequestCode.DELETE_SUBSCRIPTIONGROUP:
            group = read_header(command).group_name
            self.groups.discard(group)
            self.deleted.append(group)
            if group in self._pulled:
                self._pulled.discard(group)
                asyncio.get_running_loop().call_later(self._held_s, self.groups.add, group)
        reply.language = LanguageCode.JAVA
        return reply


async def test_groups_that_a_held_pull_creates_again_are_deleted_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_groups, "HELD_LIMIT_S", 1.0)

    broker = MakesAnew(held_s=0.1)
    async with broker.server:
        for group in ("G0", "G1"):
            broker.pull(group)
        groups = RunGroups(["G0", "G1"])
        async with Admin(broker.address) as admin:
            assert await groups.forget(admin) == ""
        assert not broker.groups
        assert 0 < groups.left_s <= 1
        assert await groups.forget_again(broker.address, None) == ""
        assert not broker.groups
        assert sorted(broker.deleted) == ["G0", "G0", "G1", "G1"]
        assert groups.left_s == 0


async def test_a_broker_of_ours_creates_none_again_and_nobody_waits(tmp_path) -> None:
    async with own_server(tmp_path) as address, Admin(address) as admin:
        groups = RunGroups(["G0", "G1"])
        await groups.make(admin)
        assert {"G0", "G1"} <= set(await admin.groups.names())
        assert await groups.forget(admin) == ""
        assert not {"G0", "G1"} & set(await admin.groups.names())
        assert groups.left_s == 0


async def test_groups_that_cannot_be_deleted_are_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_groups, "HELD_LIMIT_S", 0.1)

    broker = MakesAnew(held_s=0.1)
    groups = RunGroups(["G0"])
    async with broker.server:
        address = broker.address
        async with Admin(address) as admin:
            assert await groups.forget(admin) == ""
    assert "cannot connect to" in await groups.forget_again(address, None)
