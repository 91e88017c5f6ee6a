"""Replication state of brokers: masters, slaves and their lag, from the brokers' reports (907). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tianzhou.wire.bodies.replication import HaStatus


@dataclass(slots=True, frozen=True)
class Lag:
    """A slave's distance behind its master's log.

    Attributes:
        lag_bytes: missing bytes of the log.
        messages: approximate number of missing messages, from their average size; None when that is unknown.
        seconds: approximate time in which the master receives that many messages at its present rate; 0 when nothing is
            missing, None when no messages come in.
    """

    lag_bytes: int
    messages: int | None
    seconds: float | None


@dataclass(slots=True, frozen=True)
class Membership:
    """A broker's state in its DLedger group (broker.md §19.1).

    Attributes:
        member: member id, such as `n0`.
        role: `leader`, `follower` or `candidate`.
        term: the current term.
        leader: member id of the leader; empty while the leader is unknown.
    """

    member: str
    role: str
    term: int
    leader: str


def membership_of(runtime: Mapping[str, str]) -> Membership | None:
    """Return a broker's state in its DLedger group; None when it does not report one, as Apache's brokers.

    Args:
        runtime: the broker's report about itself (wire.md §9.11).
    """
    term = runtime.get("dLegerTerm", "")
    if not (term.isascii() and term.isdigit()):
        return None
    role = runtime.get("dLegerRole", "").lower()
    return Membership(runtime.get("dLegerSelfId", ""), role, int(term[:19]), runtime.get("dLegerLeaderId", ""))


def is_master(broker_id: int, copies: HaStatus | None) -> bool:
    """Whether a broker is the one of its name that accepts messages.

    Args:
        broker_id: 0 for a master, at least 1 for a slave.
        copies: its replication status; None when it does not report one, as brokers of RocketMQ 4.
    """
    return broker_id == 0 if copies is None else copies.master


def lag_of(slave: HaStatus | None, master: HaStatus | None, master_runtime: Mapping[str, str]) -> Lag | None:
    """Return a slave's lag; None when the slave or the master does not report its replication status.

    Args:
        slave: replication status of the slave.
        master: replication status of its master.
        master_runtime: the master's report about itself (wire.md §9.11).
    """
    if slave is None or master is None or slave.master or not master.master:
        return None
    # The two were queried at different moments, so the slave's figure may be newer than the master's.
    behind = max(master.master_commit_log_max_offset - slave.ha_client_runtime_info.max_offset, 0)
    size, rate = _number(master_runtime.get("putMessageAverageSize")), _number(master_runtime.get("putTps"))
    if not behind:
        return Lag(0, 0, 0.0)
    return Lag(behind, round(behind / size) if size else None, behind / (size * rate) if size and rate else None)


def _number(text: str | None) -> float:
    try:
        return max(float((text or "").split()[0]), 0.0)
    except (IndexError, ValueError):
        return 0.0
