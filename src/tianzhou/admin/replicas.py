"""Who follows whom in a group of brokers, and how far behind: read from what they say of their copies (907). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tianzhou.wire.bodies.replication import HaStatus


@dataclass(slots=True, frozen=True)
class Lag:
    """How far a slave's log is behind its master's.

    Attributes:
        lag_bytes: bytes of the log that it lacks.
        messages: about how many messages these are, by their average size; None when that is unknown.
        seconds: about how long the master takes to get so many, at its present rate; 0 when nothing is lacking, None
            when messages do not come in now.
    """

    lag_bytes: int
    messages: int | None
    seconds: float | None


@dataclass(slots=True, frozen=True)
class Membership:
    """A broker's place in its DLedger group (broker.md §19.1).

    Attributes:
        member: its id, as `n0`.
        role: `leader`, `follower` or `candidate`.
        term: in which.
        leader: id of the member that it follows, or its own; empty while it knows of none.
    """

    member: str
    role: str
    term: int
    leader: str


def membership_of(runtime: Mapping[str, str]) -> Membership | None:
    """A broker's place in its group; None of a broker without one, and of Apache's, which do not say it.

    Args:
        runtime: what the broker says about itself (wire.md §9.11).
    """
    term = runtime.get("dLegerTerm", "")
    if not (term.isascii() and term.isdigit()):
        return None
    role = runtime.get("dLegerRole", "").lower()
    return Membership(runtime.get("dLegerSelfId", ""), role, int(term[:19]), runtime.get("dLegerLeaderId", ""))


def is_master(broker_id: int, copies: HaStatus | None) -> bool:
    """Whether a broker is the one of its name that takes messages.

    Args:
        broker_id: 0 for a master.
        copies: what it says of its copies; None when it does not tell, as those of RocketMQ 4.
    """
    return broker_id == 0 if copies is None else copies.master


def lag_of(slave: HaStatus | None, master: HaStatus | None, master_runtime: Mapping[str, str]) -> Lag | None:
    """How far a slave is behind; None when one of the two does not tell.

    Args:
        slave: what the slave says.
        master: what its master says.
        master_runtime: what the master says about itself otherwise (wire.md §9.11).
    """
    if slave is None or master is None or slave.master or not master.master:
        return None
    # They were not asked in the same moment, so the slave may be the one with the newer figure.
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
