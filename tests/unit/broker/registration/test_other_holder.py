"""How a broker finds another living one of its name and id, and logs the pair (docs/adr/0024)."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tianzhou.broker.registration.master_lookup import living_master, registered_broker
from tianzhou.broker.registration.other_holder import LOOK_S, OtherHolder
from tianzhou.errors import RequestTimeout
from tianzhou.model import BrokerData, TopicRoute
from tianzhou.remoting.client import RemotingClient
from tianzhou.testing import AsyncCluster, run_virtual
from tianzhou.testing.clock import VirtualClock
from tianzhou.wire.bodies.route import ROUTE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command
from tianzhou.wire.mastership import Mastership

OWN, OTHER, SERVER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.9:9876"


PLAIN = Mastership()


class Peers:
    """A name server that routes to one broker, like Apache's, and brokers that live or do not."""

    def __init__(self, master: str, living: tuple[str, ...] = (), *, serves: bool = True, broker_id: int = 0) -> None:
        self.master = master
        self.broker_id = broker_id
        self.living = living
        self.serves = serves
        self.asked: list[str] = []

    async def invoke(self, address: str, command: Command, _limit_ms: float) -> Command:
        self.asked.append(address)
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and self.serves:
            route = TopicRoute(
                [], [BrokerData("broker-a", "c", {self.broker_id: self.master} if self.master else {9: OTHER})]
            )
            return command.reply(0, body=ROUTE.dumps(route))
        if address in self.living:
            return command.reply(1, "refused")
        raise RequestTimeout("no reply")


def other_holder(peers: Peers, mastership: Mastership = PLAIN) -> tuple[OtherHolder, Any, VirtualClock]:
    replication = SimpleNamespace(other_holder="", broker_id=peers.broker_id, mastership=mastership)
    clock = VirtualClock()
    tables = SimpleNamespace(settings=SimpleNamespace(broker_name="broker-a"))
    services: Any = SimpleNamespace(tables=tables, replication=replication, address=OWN, clock=clock)
    return OtherHolder(services, peers), replication, clock  # type: ignore[arg-type]


async def register(holder: OtherHolder, clock: VirtualClock, *, named: str | None = None, broker_id: int = 0) -> None:
    """Register after the time that two reads of a route are apart."""
    clock.advance(LOOK_S)
    await holder.look(SERVER)
    holder.answered(SERVER, named, accepted=True, broker_id=broker_id)


@pytest.mark.parametrize("broker_id", [0, 1])
def test_under_apaches_name_server_the_route_names_the_other_broker(
    caplog: pytest.LogCaptureFixture, broker_id: int
) -> None:
    peers = Peers(OTHER, broker_id=broker_id)
    holder, replication, clock = other_holder(peers)

    async def main() -> None:
        await register(holder, clock, broker_id=broker_id)
        # A broker that restarts at another address finds its predecessor, which has ended.
        assert (replication.other_holder, peers.asked) == ("", [SERVER, OTHER])
        for _ in range(3):
            await register(holder, clock, broker_id=broker_id)
            assert replication.other_holder == OTHER
        peers.master = OWN
        await register(holder, clock, broker_id=broker_id)
        assert replication.other_holder == ""

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    first, again = caplog.messages
    assert ("two masters of broker broker-a" if broker_id == 0 else "two brokers broker-a with brokerId=1") in first
    assert OWN in first
    assert OTHER in first
    assert "again" in again


def test_the_later_one_names_a_living_holder_at_its_first_registration() -> None:
    peers = Peers(OTHER, (OTHER,))
    holder, replication, clock = other_holder(peers)

    async def main() -> None:
        await register(holder, clock)
        assert replication.other_holder == OTHER

    run_virtual(main())


def test_the_next_leader_of_a_group_is_no_second_master_of_the_former_leader() -> None:
    peers = Peers(OTHER, (OTHER,))
    holder, replication, clock = other_holder(peers, Mastership("g", frozenset({"n0", "n1", "n2"}), 4))

    async def main() -> None:
        await register(holder, clock)
        assert (replication.other_holder, peers.asked) == ("", [])
        await register(holder, clock)
        assert replication.other_holder == OTHER

    run_virtual(main())


def test_the_first_one_names_the_other_before_its_next_registration() -> None:
    peers = Peers(OWN)
    holder, replication, clock = other_holder(peers)

    async def main() -> None:
        watching = asyncio.ensure_future(holder.watch(lambda: [SERVER]))
        await register(holder, clock)
        await asyncio.sleep(LOOK_S + 0.1)
        assert replication.other_holder == ""
        peers.master = OTHER
        await asyncio.sleep(LOOK_S)
        assert replication.other_holder == OTHER
        # Its own registration takes the route back, without further effect.
        peers.master = OWN
        await asyncio.sleep(LOOK_S)
        assert replication.other_holder == OTHER
        watching.cancel()

    run_virtual(main())


def test_a_route_is_read_at_most_once_in_five_seconds() -> None:
    peers = Peers(OWN)
    holder, _, clock = other_holder(peers)

    async def main() -> None:
        for _ in range(10):
            await holder.look(SERVER)
            holder.answered(SERVER, None, accepted=True, broker_id=0)
            clock.advance(1)

    run_virtual(main())
    assert len(peers.asked) == 2


def test_the_route_of_a_name_server_that_names_other_brokers_is_not_read() -> None:
    peers = Peers(OTHER)
    holder, replication, clock = other_holder(peers)

    async def main() -> None:
        await register(holder, clock, named="")
        peers.asked.clear()
        for named in ("", OTHER, ""):
            await register(holder, clock, named=named)
            assert replication.other_holder == named
        assert peers.asked == []
        # An older name server replaces this one.
        await register(holder, clock)
        await register(holder, clock)
        assert (replication.other_holder, peers.asked) == (OTHER, [SERVER])

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
            assert await registered_broker(client, cluster.namesrv_addr, "broker-a") == address
            assert await registered_broker(client, cluster.namesrv_addr, "broker-z") == ""

    asyncio.run(main())
