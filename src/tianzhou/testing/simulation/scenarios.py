"""The simulated clusters and their guarantees: a table by name. Pure; a seed draws the variants.

The guarantees depend on the possible faults, so both are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tianzhou.wire.codes import DLedgerRequestCode, RequestCode

ANY_STATUS: Final = frozenset({"SEND_OK", "FLUSH_DISK_TIMEOUT", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"})
SEND_OK: Final = frozenset({"SEND_OK"})
_ALL_CODES: Final = ",".join(str(int(code)) for code in (*RequestCode, *DLedgerRequestCode))
_GROUP: Final[dict[str, Any]] = {"enable_d_leger_commit_log": True, "d_leger_group": "broker-a"}
"""Settings of a member of a group."""
_FAST: Final[dict[str, Any]] = {
    "d_leger_heart_beat_time_interval_ms": 200,
    "d_leger_min_vote_interval_ms": 50,
    "d_leger_max_vote_interval_ms": 200,
}
"""Timers with which a group elects a leader within a second."""


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker of the cluster.

    Attributes:
        machine: where it runs.
        name: its name for clients, which a master and its slaves share.
        store: settings of its store.
        broker_id: 0 for a master.
        member: its id in the DLedger group of that name, `n0`; empty without one.
    """

    machine: str
    name: str
    store: dict[str, Any] = field(default_factory=dict)
    broker_id: int = 0
    member: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """A cluster, its possible faults, and its guarantees.

    Attributes:
        title: the drawn variant as text.
        brokers: the brokers.
        name_servers: number of name servers.
        powerless: machines that may lose their power.
        gone: the master, or member of a group, that dies for good, if any.
        rots: whether bits flip in logs while a broker is down.
        promised: statuses of `SendStatus` whose messages are never lost.
        weak: the only brokers that faults strike; empty for all.
        exchanges: whether an operator exchanges whole folders of members.
        load_s: duration of the load and of the faults, seconds.
        messages: number of messages of each of the two producers.
    """

    title: str
    brokers: tuple[BrokerPlan, ...]
    name_servers: int
    powerless: tuple[str, ...]
    gone: str
    promised: frozenset[str]
    rots: bool = False
    weak: tuple[str, ...] = ()
    exchanges: bool = False
    load_s: float = 9.0
    messages: int = 60

    @property
    def grouped(self) -> bool:
        """Whether the brokers are members of a DLedger group."""
        return any(one.member for one in self.brokers)

    @property
    def access(self) -> dict[str, Any]:
        """Settings with which members of a group have users; their requests need no signature."""
        return {"authentication_enabled": True, "authentication_whitelist": _ALL_CODES} if self.grouped else {}

    @property
    def wait_s(self) -> float:
        """Seconds that members of a group wait for a silent leader."""
        return 3 * float(self.brokers[0].store.get("d_leger_heart_beat_time_interval_ms", 2_000)) / 1_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of cluster.

    Attributes:
        name: for `--scenario`.
        about: description for `--list`.
        draw: returns the layout of a seed.
    """

    name: str
    about: str
    draw: Callable[[Random], ClusterLayout]


def _standalone(rng: Random) -> ClusterLayout:
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync = flush == "SYNC_FLUSH"
    return ClusterLayout(
        flush,
        (BrokerPlan("broker-a", "broker-a", {"flush_disk_type": flush}),),
        1,
        # Without SYNC_FLUSH there is no guarantee for a machine that loses its power.
        ("broker-a",) if sync else (),
        "",
        SEND_OK if sync else ANY_STATUS,
    )


def _bit_rot(_rng: Random) -> ClusterLayout:
    return ClusterLayout("ASYNC_FLUSH", (BrokerPlan("broker-a", "broker-a"),), 1, (), "", ANY_STATUS, rots=True)


def _two_masters(rng: Random) -> ClusterLayout:
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync = flush == "SYNC_FLUSH"
    names = ("broker-a", "broker-b")
    return ClusterLayout(
        flush,
        tuple(BrokerPlan(name, name, {"flush_disk_type": flush}) for name in names),
        2,
        names if sync else (),
        "",
        SEND_OK if sync else ANY_STATUS,
    )


def _master_slave(rng: Random) -> ClusterLayout:
    role = rng.choice(("ASYNC_MASTER", "SYNC_MASTER"))
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    gone = rng.random() < 0.3
    power = flush == "SYNC_FLUSH" and not gone
    # Records that no slave has are lost with the master.
    promised = SEND_OK if gone or power else ANY_STATUS
    if gone and role == "ASYNC_MASTER":
        promised = frozenset()
    store = {"flush_disk_type": flush}
    return ClusterLayout(
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


def _folders(rng: Random) -> ClusterLayout:
    size = 5 if rng.random() < 0.1 else 3
    names = tuple(f"member-{number}" for number in range(size))
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    store = {"flush_disk_type": flush} | _GROUP | _FAST
    return ClusterLayout(
        f"{size} members, {flush}, folders are exchanged",
        _members(names, store),
        1,
        # A member that has lost unsynced data, together with one with another folder, may be a majority.
        names if flush == "SYNC_FLUSH" else (),
        "",
        SEND_OK,
        exchanges=True,
        messages=30,
    )


def _members(names: tuple[str, ...], store: dict[str, Any]) -> tuple[BrokerPlan, ...]:
    return tuple(BrokerPlan(name, "broker-a", store, member=f"n{number}") for number, name in enumerate(names))


def _dledger(rng: Random) -> ClusterLayout:
    size = 5 if rng.random() < 0.15 else 3
    names = tuple(f"member-{number}" for number in range(size))
    fast = rng.random() < 0.6
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    gone = rng.choice(names) if rng.random() < 0.15 else ""
    weak: tuple[str, ...] = ()
    if flush == "ASYNC_FLUSH" and rng.random() < 0.5:
        # Unsynced entries are only safe as long as most members keep their power.
        weak = (gone or rng.choice(names),)
        if size > 3:
            weak += (rng.choice([name for name in names if name not in weak]),)
    store: dict[str, Any] = {"flush_disk_type": flush} | _GROUP | (_FAST if fast else {})
    preferred = rng.choice(names) if rng.random() < 0.2 else ""
    if preferred:
        store["preferred_leader_id"] = f"n{names.index(preferred)}"
    title = [f"{size} members", flush, "fast timers" if fast else "default timers"]
    title += [f"{preferred} is preferred"] * bool(preferred)
    title += [f"only {' and '.join(sorted(weak))} in trouble"] * bool(weak)
    title += [f"{gone} dies for good"] * bool(gone)
    return ClusterLayout(
        ", ".join(title),
        _members(names, store),
        rng.choice((1, 2)),
        weak or (names if flush == "SYNC_FLUSH" else ()),
        gone,
        SEND_OK,
        weak=weak,
        load_s=9.0 if fast else 25.0,
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
        Scenario(
            "dledger",
            "a DLedger group of three or five members, with either flush; leaders die, are cut off and stopped",
            _dledger,
        ),
        Scenario(
            "folders",
            "a DLedger group whose members restart with older, empty and foreign folders, and die in between",
            _folders,
        ),
    )
}
"""All scenarios, in the order of `--list`."""
