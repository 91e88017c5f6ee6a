"""Faults of replicas and their masters: halted replication, diverged logs, and two masters with one name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.copy_faults import (
    DURABILITY,
    GROUP_ID,
    HALTED,
    OTHER_MASTER,
    SLAVE_HALTED,
    UNDELIVERABLE_REASON,
    UNDELIVERABLE_TOPICS,
    CopyFault,
    CopyFaultKind,
    copy_faults,
)
from tianzhou.admin.copy_faults import UNDELIVERABLE as UNDELIVERABLE_FIGURE
from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.observations import ClusterSeen, NameServerSeen
from tianzhou.escaping import shown
from tianzhou.model.names import MASTER_ID

MEMBER_HALTED = Illness(
    "member-follows-no-further",
    Severity.error,
    "{broker} is a member of a DLedger group and follows no further: {reason}.",
    "Compare its log with the leader's: tianzhou status. If the leader's is the one to keep, stop the member, move its "
    "store folder away and start it with an empty one: docs/howto/two-of-three-gone.md",
)
REFUSES_LOG = Illness(
    "slave-refuses-log",
    Severity.error,
    "{broker} is a slave and refuses the log of its master: {reason}.",
    "Decide which of the two logs is the one to keep; to keep the slave's, make it the master: "
    "docs/howto/master-slave.md; to keep the master's, empty the slave's store folder and start it again.",
)
IDENTITIES_DIFFER = Illness(
    "group-identities-differ",
    Severity.error,
    "Members of DLedger group {broker} belong to different groups: {members}.",
    "One of them has a folder of another group, or of an earlier life of this one. Stop it, move its store folder away "
    "and start it with an empty one when the others have a leader.",
)
TWO_MASTERS = Illness(
    "two-masters",
    Severity.error,
    "Two masters of broker {broker} are alive: {first} and {second}. Clients reach one of them, and what the other one "
    "takes is not seen.",
    "Stop the one that was started by mistake, or give it another brokerName. Keep its folder until its messages are "
    "sent again: tianzhou store export",
)
TWO_BROKERS = Illness(
    "two-brokers-of-one-id",
    Severity.error,
    "Two brokers {broker} with brokerId={id} are alive: {first} and {second}. Clients and tools reach one of them.",
    "Stop the one that was started by mistake, or give it another brokerId.",
)
DURABILITY_DIFFERS = Illness(
    "durability-differs",
    Severity.warning,
    "Brokers of {broker} have different values of durability in their files: {values}.",
    "Write the same line durability=… into the file of each of them and restart them one by one: "
    "docs/howto/zero-loss.md",
)
UNDELIVERABLE = Illness(
    "messages-undeliverable",
    Severity.error,
    "{broker} has set {count} messages aside because it cannot deliver them (topics: {topics}). The newest: {reason}.",
    "List them with `tianzhou undelivered list`. Remove the cause that is named and deliver them with `tianzhou "
    "undelivered resend`, or deliver them to another topic with --to.",
)

ILLNESSES: Final = (
    MEMBER_HALTED, REFUSES_LOG, IDENTITIES_DIFFER, TWO_MASTERS, TWO_BROKERS, DURABILITY_DIFFERS, UNDELIVERABLE,
)  # fmt: skip


def findings(seen: ClusterSeen) -> Iterator[Finding]:
    """Yield the faults of replicas and their masters."""
    pairs: set[tuple[str, int, str, str]] = set()
    for fault in copy_faults(one.status for one in seen.brokers):
        if fault.kind in {CopyFaultKind.TWO_MASTERS, CopyFaultKind.TWO_BROKERS}:
            first, second = sorted((fault.address, str(fault.evidence[OTHER_MASTER])))
            pair = fault.broker_name, fault.broker_id or MASTER_ID, first, second
            if pair not in pairs:
                pairs.add(pair)
                yield _two(*pair, fault.evidence)
        else:
            yield from _of_fault(fault)
    yield from _durability(one.status for one in seen.brokers)
    for pair, evidence in _disagreeing(seen.name_servers):
        if pair not in pairs:
            yield _two(*pair, evidence)


def _two(name: str, broker_id: int, first: str, second: str, evidence: Mapping[str, object]) -> Finding:
    if broker_id != MASTER_ID:
        words = {"broker": name, "id": broker_id, "first": shown(first), "second": shown(second)}
        return TWO_BROKERS.found(f"broker {name} ({broker_id})", evidence, **words)
    return TWO_MASTERS.found(f"broker {name}", evidence, broker=name, first=shown(first), second=shown(second))


def _of_fault(fault: CopyFault) -> Iterator[Finding]:
    subject = f"broker {fault.broker_name}" + (f" ({fault.broker_id})" if fault.broker_id else "")
    if fault.kind is CopyFaultKind.MEMBER_HALTED:
        yield MEMBER_HALTED.found(subject, fault.evidence, broker=subject, reason=_said(fault, HALTED))
    elif fault.kind is CopyFaultKind.SLAVE_HALTED:
        reason = _said(fault, SLAVE_HALTED)
        yield REFUSES_LOG.found(subject, fault.evidence, broker=subject, reason=reason)
    elif fault.kind is CopyFaultKind.UNDELIVERABLE:
        yield UNDELIVERABLE.found(
            subject,
            fault.evidence,
            broker=subject,
            count=fault.evidence[UNDELIVERABLE_FIGURE],
            topics=_said(fault, UNDELIVERABLE_TOPICS),
            reason=_said(fault, UNDELIVERABLE_REASON),
        )
    elif fault.kind is CopyFaultKind.IDENTITIES_DIFFER:
        found = fault.evidence[GROUP_ID]
        assert isinstance(found, dict)
        members = "; ".join(
            f"{', '.join(sorted(ids))}: {shown(identity, 80)}" for identity, ids in sorted(found.items())
        )
        yield IDENTITIES_DIFFER.found(subject, fault.evidence, broker=fault.broker_name, members=members)


def _durability(brokers: Iterable[BrokerStatus]) -> Iterator[Finding]:
    """Yield the broker names whose brokers differ in `durability`. Apache's brokers do not report it."""
    by_name: dict[tuple[str, str], dict[str, str]] = {}
    for one in brokers:
        if one.tianzhou_version:
            by_name.setdefault((one.cluster, one.broker_name), {})[one.address] = one.runtime.get(DURABILITY, "")
    for (_, name), values in sorted(by_name.items()):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{address} {shown(value) or 'none'}" for address, value in sorted(values.items()))
            yield DURABILITY_DIFFERS.found(f"broker {name}", {DURABILITY: values}, broker=name, values=listed)


def _disagreeing(
    servers: Sequence[NameServerSeen],
) -> Iterator[tuple[tuple[str, int, str, str], dict[str, object]]]:
    """Yield the names and ids of brokers for which two name servers know different addresses, each pair once."""
    known: dict[tuple[str, str, int], dict[str, str]] = {}
    for server in servers:
        for name, data in (server.info.broker_addr_table if server.info is not None else {}).items():
            for broker_id, address in data.broker_addrs.items():
                known.setdefault((data.cluster, name, broker_id), {})[server.address] = address
    for (_, name, broker_id), addresses in sorted(known.items()):
        if len(found := sorted(set(addresses.values()))) > 1:
            yield (name, broker_id, found[0], found[1]), {"name_servers": dict(addresses)}


def _said(fault: CopyFault, figure: str) -> str:
    return shown(str(fault.evidence[figure]), 2_000).rstrip(".")
