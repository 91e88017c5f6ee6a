"""Faults of brokers that stop service, endanger replicas or hold messages back, found in the brokers' figures. Pure.

`tianzhou status` exits with code 1 when there is any of these faults, and `tianzhou doctor` reports each as a finding
(docs/adr/0024, docs/adr/0029).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tianzhou.model.names import MASTER_ID

if TYPE_CHECKING:
    from tianzhou.admin.cluster import BrokerStatus

HALTED: Final = "dLegerHalted"
"""Runtime figure of a DLedger member: why it stopped following, or must not lead; empty when it is healthy."""
GROUP_ID: Final = "dLegerGroupId"
"""Runtime figure of a DLedger member: identity of its group; empty when it has none yet."""
SLAVE_HALTED: Final = "haHalted"
"""Runtime figure of a slave: why it refuses its master's log; empty when it is healthy."""
HALTED_SLAVES: Final = "haHaltedSlaves"
"""Runtime figure of a master: the slaves that refuse its log, with their reasons; empty when all are healthy."""
DURABILITY: Final = "durability"
"""Runtime figure of a broker of Tianzhou: value of this key in its file; missing when the file does not have the
key."""
COPIES_WANTED: Final = "haCopiesWanted"
"""Runtime figure of a SYNC_MASTER: number of copies of a message, including its own, required for the
acknowledgement."""
COPIES_IN_SYNC: Final = "haCopiesInSync"
"""Runtime figure of a SYNC_MASTER: number of copies in sync now, including its own."""
OTHER_MASTER: Final = "otherMaster"
"""Runtime figure of a broker: address of another living broker with its name and id; empty when there is none."""

UNDELIVERABLE: Final = "undeliverableMessages"
"""Runtime figure of a master: number of messages that it has set aside as undeliverable; missing without any."""
UNDELIVERABLE_TOPICS: Final = "undeliverableTopics"
"""Runtime figure of a master: topics of these messages with their numbers, the most frequent first."""
UNDELIVERABLE_REASON: Final = "undeliverableReason"
"""Runtime figure of a master: why the newest of these messages cannot be delivered."""


class CopyFaultKind(enum.StrEnum):
    """Kind of a fault; its value is the name of the doctor's finding."""

    WITHOUT_LEADER = "group-without-leader"
    WITHOUT_MASTER = "broker-without-master"
    TWO_MASTERS = "two-masters"
    TWO_BROKERS = "two-brokers-of-one-id"
    SLAVE_MISSING = "slave-missing"
    MEMBER_HALTED = "member-follows-no-further"
    SLAVE_HALTED = "slave-refuses-log"
    IDENTITIES_DIFFER = "group-identities-differ"
    UNDELIVERABLE = "messages-undeliverable"


@dataclass(frozen=True, slots=True)
class CopyFault:
    """A fault of one broker, or of all brokers with one name.

    Attributes:
        kind: its kind.
        broker_name: name of the brokers.
        broker_id: id of the faulty broker; None when all brokers of the name are faulty.
        address: address of the faulty broker; empty when all brokers of the name are faulty.
        reason: the fault in words, without the broker's name.
        evidence: figures that show it, for programs.
    """

    kind: CopyFaultKind
    broker_name: str
    reason: str
    evidence: Mapping[str, object]
    broker_id: int | None = None
    address: str = ""

    @property
    def text(self) -> str:
        """The fault in one line."""
        where = f" ({self.broker_id})" if self.broker_id else ""
        return f"{self.broker_name}{where}: {self.reason}"

    def as_json(self) -> dict[str, object]:
        """Return the fault as a JSON object."""
        return {
            "kind": str(self.kind),
            "broker": self.broker_name,
            "id": self.broker_id,
            "address": self.address or None,
            "reason": self.reason,
            "evidence": dict(self.evidence),
        }


def copy_faults(brokers: Iterable[BrokerStatus]) -> list[CopyFault]:
    """Return the faults of all brokers, grouped by broker name.

    Args:
        brokers: all brokers that the name servers know; brokers that do not answer have no figures.
    """
    by_name: dict[tuple[str, str], list[BrokerStatus]] = {}
    for one in brokers:
        by_name.setdefault((one.cluster, one.broker_name), []).append(one)
    return [fault for members in by_name.values() for fault in _of_name(members)]


def _of_name(members: list[BrokerStatus]) -> Iterator[CopyFault]:
    name = members[0].broker_name
    if not any(one.is_master and one.broker_id == MASTER_ID for one in members):
        grouped = any(one.membership is not None for one in members)
        evidence = {"members": {one.address: one.role for one in members}}
        if grouped:
            reason = "the group has no leader, so it takes no message; a majority of its members has to run"
            yield CopyFault(CopyFaultKind.WITHOUT_LEADER, name, reason, evidence)
        else:
            reason = "there are slaves and no master, so it takes no message; start the master"
            yield CopyFault(CopyFaultKind.WITHOUT_MASTER, name, reason, evidence)
    yield from _identities(name, members)
    for one in members:
        yield from _of_broker(one)
    if not any(one.runtime.get(SLAVE_HALTED, "") for one in members):
        # A slave that answers reports its own reason. The master reports the reason of a slave that does not answer.
        for one in members:
            if why := one.runtime.get(HALTED_SLAVES, ""):
                reason = f"a slave refuses the log of its master: {why}"
                found = {SLAVE_HALTED: why}
                yield CopyFault(CopyFaultKind.SLAVE_HALTED, name, reason, found, one.broker_id, one.address)


def _identities(name: str, members: list[BrokerStatus]) -> Iterator[CopyFault]:
    found: dict[str, list[str]] = {}
    for one in members:
        if identity := one.runtime.get(GROUP_ID, ""):
            member = one.membership.member if one.membership is not None else one.address
            found.setdefault(identity, []).append(member)
    if len(found) > 1:
        groups = "; ".join(f"{', '.join(sorted(ids))} of group {identity}" for identity, ids in sorted(found.items()))
        reason = f"its members belong to different groups ({groups}): one has the folder of another group"
        yield CopyFault(CopyFaultKind.IDENTITIES_DIFFER, name, reason, {GROUP_ID: found})


def _of_broker(one: BrokerStatus) -> Iterator[CopyFault]:
    runtime = one.runtime

    def fault(kind: CopyFaultKind, reason: str, evidence: Mapping[str, object]) -> CopyFault:
        return CopyFault(kind, one.broker_name, reason, evidence, one.broker_id, one.address)

    if other := runtime.get(OTHER_MASTER, ""):
        pair, evidence = f"{one.address} and {other}", {OTHER_MASTER: other}
        if one.broker_id == MASTER_ID:
            yield fault(CopyFaultKind.TWO_MASTERS, f"{pair} are both masters of this name; stop one of them", evidence)
        else:
            reason = f"{pair} both have brokerId={one.broker_id}; stop one of them, or give it another brokerId"
            yield fault(CopyFaultKind.TWO_BROKERS, reason, evidence)
    wanted, in_sync = _number(runtime.get(COPIES_WANTED)), _number(runtime.get(COPIES_IN_SYNC))
    if in_sync < wanted:
        reason = f"the master waits for {wanted} copies of a message and has {in_sync}, its own included; start a slave"
        yield fault(CopyFaultKind.SLAVE_MISSING, reason, {COPIES_WANTED: wanted, COPIES_IN_SYNC: in_sync})
    if why := runtime.get(HALTED, ""):
        yield fault(CopyFaultKind.MEMBER_HALTED, f"the member follows no further: {why}", {HALTED: why})
    if why := runtime.get(SLAVE_HALTED, ""):
        yield fault(CopyFaultKind.SLAVE_HALTED, f"the slave refuses the log of its master: {why}", {SLAVE_HALTED: why})
    if count := _number(runtime.get(UNDELIVERABLE)):
        topics, why = runtime.get(UNDELIVERABLE_TOPICS, ""), runtime.get(UNDELIVERABLE_REASON, "")
        reason = f"{count} messages cannot be delivered and are set aside (topics: {topics}; the newest: {why})"
        figures = {UNDELIVERABLE: count, UNDELIVERABLE_TOPICS: topics, UNDELIVERABLE_REASON: why}
        yield fault(CopyFaultKind.UNDELIVERABLE, f"{reason}; list them: tianzhou undelivered list", figures)


def _number(text: str | None) -> int:
    return int(text[:9]) if text is not None and text.isascii() and text.isdigit() else 0
