"""How a master finds another living one of its name, and logs the pair (docs/adr/0024)."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.broker.registration.master_lookup import living_master, registered_master
from tianzhou.broker.registration.other_master import LOOK_S, OtherMaster
from tianzhou.errors import RequestTimeout
from tianzhou.model import BrokerData, TopicRoute
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

OWN, OTHER, SERVER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.9:9876"


class Peers:
    """A name server that gives the route to one master, as Apache's does, and brokers that live or do not."""

    def __init__(self, master: str, living: tuple[str, ...] = (), *, serves: bool = True) -> None:
        self.master = master
        self.living = living
        self.serves = serves
        self.asked: list[str] = []

    async def invoke(self, address: str, command: Command, _limit_ms: float) -> Command:
        self.asked.append(address)
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and self.serves:
            route = TopicRoute([], [BrokerData("broker-a", "c", {0: self.master} if self.master else {1: OTHER})])
            return command.reply(0, body=ROUTE.dumps(route))
        if address in self.living:
            return command.reply(1, "refused")
        raise RequestTimeout("no reply")


def other_master(peers: Peers) -> tuple[OtherMaster, Any, VirtualClock]:
    replication, clock = SimpleNamespace(other_master=""), VirtualClock()
    tables = SimpleNamespace(settings=SimpleNamespace(broker_name="broker-a"))
    services: Any = SimpleNamespace(tables=tables, replication=replication, address=OWN, clock=clock)
    return OtherMaster(services, peers), replication, clock  # type: ignore[arg-type]


def test_under_apaches_name_server_the_route_names_the_other_master(caplog: pytest.LogCaptureFixture) -> None:
    peers = Peers(OTHER)
    pair, replication, clock = other_master(peers)

    async def register(*, is_master: bool = True) -> None:
        clock.advance(LOOK_S)
        await pair.look(SERVER)
        pair.answered(SERVER, None, is_master=is_master)

    async def main() -> None:
        await register()
        # The first registration takes the place of whoever was the master before.
        assert (replication.other_master, peers.asked) == ("", [])
        for _ in range(3):
            await register()
            assert replication.other_master == OTHER
        peers.master = OWN
        await register()
        assert replication.other_master == ""
        peers.master = OTHER
        await register(is_master=False)
        assert replication.other_master == ""

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    first, again = caplog.messages
    assert OWN in first
    assert OTHER in first
    assert "has one master again" in again


def test_a_route_is_read_at_most_once_in_five_seconds() -> None:
    peers = Peers(OWN)
    pair, _, clock = other_master(peers)

    async def main() -> None:
        pair.answered(SERVER, None, is_master=True)
        for _ in range(10):
            await pair.look(SERVER)
            clock.advance(1)

    run_virtual(main())
    assert len(peers.asked) == 2


def test_the_route_of_a_name_server_that_names_other_masters_is_not_read() -> None:
    peers = Peers(OTHER)
    pair, replication, clock = other_master(peers)

    async def main() -> None:
        for named in ("", OTHER, ""):
            await pair.look(SERVER)
            pair.answered(SERVER, named, is_master=True)
            assert replication.other_master == named
            clock.advance(LOOK_S)
        assert peers.asked == []
        # An older name server takes the place of this one.
        pair.answered(SERVER, None, is_master=True)
        await pair.look(SERVER)
        pair.answered(SERVER, None, is_master=True)
        assert (replication.other_master, peers.asked) == (OTHER, [SERVER])

    run_virtual(main())


@pytest.mark.parametrize(
    ("peers", "found"),
    [
        (Peers(OTHER, (OTHER,)), (OTHER, SERVER)),
        (Peers(OTHER), ("", "")),  # the name server has not forgotten it yet
        (Peers(OWN, (OWN,)), ("", "")),
        (Peers(""), ("", "")),
        (Peers(OTHER, (OTHER,), serves=False), None),
    ],
    ids=["alive", "gone", "itself", "slaves-only", "no-name-server"],
)
def test_whether_another_master_lives(peers: Peers, found: tuple[str, str] | None) -> None:
    async def main() -> None:
        assert await living_master(peers, [SERVER], "broker-a", OWN) == found  # type: ignore[arg-type]

    run_virtual(main())


def test_every_broker_has_a_topic_of_its_own_name_by_which_it_is_found() -> None:
    async def main() -> None:
        async with AsyncCluster() as cluster, RemotingClient() as client:
            address = cluster.brokers["broker-a"].running.address
            assert await registered_master(client, cluster.namesrv_addr, "broker-a") == address
            assert await registered_master(client, cluster.namesrv_addr, "broker-z") == ""

    asyncio.run(main())
