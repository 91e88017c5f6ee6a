"""Which clusters are simulated, and what is promised of each: a table by name. Pure; a seed draws what varies.

What is promised depends on what may go wrong, so both are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

ANY_STATUS: Final = frozenset({"SEND_OK", "FLUSH_DISK_TIMEOUT", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"})
SEND_OK: Final = frozenset({"SEND_OK"})


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker of the cluster.

    Attributes:
        machine: where it runs.
        name: as clients know it; a master and its slaves share it.
        store: settings of its store.
        broker_id: 0 of a master.
    """

    machine: str
    name: str
    store: dict[str, Any] = field(default_factory=dict)
    broker_id: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster, what may go wrong with it, and what holds all the same.

    Attributes:
        title: what the seed has drawn, in words.
        brokers: the brokers.
        name_servers: how many name servers.
        powerless: machines that may lose their power.
        gone: the master that dies for good, if any.
        rots: whether bits flip in logs while a broker is down.
        promised: statuses of `SendStatus` whose messages are never lost.
    """

    title: str
    brokers: tuple[BrokerPlan, ...]
    name_servers: int
    powerless: tuple[str, ...]
    gone: str
    promised: frozenset[str]
    rots: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of cluster.

    Attributes:
        name: for `--scenario`.
        about: what it is, for `--list`.
        draw: makes the layout of a seed; None while it cannot be run.
    """

    name: str
    about: str
    draw: Callable[[Random], Layout] | None


def _standalone(rng: Random) -> Layout:
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync = flush == "SYNC_FLUSH"
    return Layout(
        flush,
        (BrokerPlan("broker-a", "broker-a", {"flush_disk_type": flush}),),
        1,
        # Without SYNC_FLUSH nothing is promised of a machine that loses its power.
        ("broker-a",) if sync else (),
        "",
        SEND_OK if sync else ANY_STATUS,
    )


def _bit_rot(_rng: Random) -> Layout:
    return Layout("ASYNC_FLUSH", (BrokerPlan("broker-a", "broker-a"),), 1, (), "", ANY_STATUS, rots=True)


def _two_masters(rng: Random) -> Layout:
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync = flush == "SYNC_FLUSH"
    names = ("broker-a", "broker-b")
    return Layout(
        flush,
        tuple(BrokerPlan(name, name, {"flush_disk_type": flush}) for name in names),
        2,
        names if sync else (),
        "",
        SEND_OK if sync else ANY_STATUS,
    )


def _master_slave(rng: Random) -> Layout:
    role = rng.choice(("ASYNC_MASTER", "SYNC_MASTER"))
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    gone = rng.random() < 0.3
    power = flush == "SYNC_FLUSH" and not gone
    # What no slave has goes with the master.
    promised = SEND_OK if gone or power else ANY_STATUS
    if gone and role == "ASYNC_MASTER":
        promised = frozenset()
    store = {"flush_disk_type": flush}
    return Layout(
        f"{role}, {flush}{', the master dies for good' if gone else ''}",
        (
            BrokerPlan("master", "broker-a", store | {"broker_role": role}),
            BrokerPlan("slave", "broker-a", store | {"broker_role": "SLAVE"}, 1),
        ),
        1,
        ("master", "slave") if power else (),
        "master" if gone else "",
        promised,
    )


SCENARIOS: Final[dict[str, Scenario]] = {
    one.name: one
    for one in (
        Scenario("standalone", "one broker, with either flush; machines lose their power with SYNC_FLUSH", _standalone),
        Scenario("bit-rot", "one broker whose log has bits that flip while it is down", _bit_rot),
        Scenario(
            "master-slave",
            "a master of either kind and its slave; the master dies for good in three of ten seeds",
            _master_slave,
        ),
        Scenario("two-masters", "two masters and two name servers; producers go on at the other one", _two_masters),
        Scenario("dledger", "a DLedger group of three members; not built yet", None),
    )
}
"""All scenarios, in the order of `--list`."""
