"""Readiness: whether clients should use a broker, and the reasons if not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.metrics.readiness import Readiness


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that decide readiness.

    Attributes:
        serving: whether the ports are open.
        registered: whether a name server has registered the broker.
        name_servers: whether the broker has name servers.
        refusal: reason for refusing messages; None when the store accepts them.
        permission: the broker's permission, 2 for writing and 4 for reading.
        master: whether this is a master.
        failing: names of failing tasks.
    """

    serving: bool
    registered: bool
    name_servers: bool
    refusal: str | None
    permission: int
    master: bool
    failing: tuple[str, ...] = ()


def judge(facts: Facts) -> Readiness:
    """Return whether a broker is ready; a slave is ready when it serves reads."""
    reasons = []
    if not facts.serving:
        reasons.append("it does not serve: it is starting or stopping")
    if facts.name_servers and not facts.registered:
        reasons.append("no name server knows it yet: clients cannot find it")
    if facts.master and facts.refusal is not None:
        reasons.append(f"it takes no messages: {facts.refusal}")
    if facts.master and not facts.permission & 2:
        reasons.append(f"brokerPermission={facts.permission}: it is drained of writers; 6 lets them in again")
    if not facts.permission & 4:
        reasons.append(f"brokerPermission={facts.permission}: it may not be read from; 6 lets readers in again")
    return Readiness(
        tuple(reasons), {"role": "master" if facts.master else "slave", "failingTasks": list(facts.failing)}
    )
