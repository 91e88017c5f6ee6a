"""Faults of name servers and brokers: no answer, no leader, full disks, replicas, clocks, and backlogs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.copy_faults import CopyFaultKind, copy_faults
from tianzhou.admin.send_limits import LIMITED_BY
from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses import copies
from tianzhou.doctor.illnesses.group import duration
from tianzhou.doctor.observations import BrokerSeen, ClusterSeen, NameServerSeen
from tianzhou.escaping import shown
from tianzhou.wire.bodies.replication import HaStatus

CLOCK_MS: Final = 5_000
LATE_MS: Final = 60_000
"""Milliseconds after its due time from which a delayed message counts as late."""
OLD_HALF_MS: Final = 600_000
"""Maximum age of a half message, in ms. A running producer is asked for its decision long before."""
SLAVE_BEHIND_S: Final = 10.0
SLAVE_BEHIND_BYTES: Final = 64 * 1024 * 1024
SLOW_SEND_MS: Final = 500
BUSY_MS: Final = 200
"""Default of `waitTimeMillsInSendQueue`, in ms."""

NAME_SERVER_SILENT = Illness(
    "name-server-does-not-answer",
    Severity.error,
    "Name server {address} does not answer; clients that ask it first lose time, and brokers cannot register there.",
    "Start it, or take its address from all clients and brokers. What is there: tianzhou doctor connect {address}",
)
NAME_SERVERS_DISAGREE = Illness(
    "name-servers-disagree",
    Severity.error,
    "Name servers know different brokers: {broker} is not known at {missing}.",
    "Give the broker the addresses of all name servers: namesrvAddr={all}",
)
NO_BROKER = Illness(
    "no-broker",
    Severity.error,
    "No broker is registered at the name servers.",
    "Start one, with these addresses as its namesrvAddr: tianzhou serve",
)
SILENT = Illness(
    "broker-does-not-answer",
    Severity.error,
    "{broker} takes connections at {address} and does not answer there: its process hangs or is overloaded.",
    "Look at its log and at the processor and disk of its machine. Restart it when it does not recover.",
)
UNREACHED = Illness(
    "broker-not-reached",
    Severity.error,
    "{broker} is registered with {address}, and no connection to it lasts.",
    "Is its process running, and is the address one that this machine can reach? tianzhou doctor connect {address}",
)
WITHOUT_MASTER = Illness(
    "broker-without-master",
    Severity.error,
    "Of broker {broker} there are slaves and no master: its queues can be read and not written.",
    "Start its master, or make a slave the master: docs/howto/master-slave.md",
)
WITHOUT_LEADER = Illness(
    "group-without-leader",
    Severity.error,
    "The members of DLedger group {broker} have no leader, so it takes no message.",
    "A majority of its members has to run and to reach each other (dLegerPeers): docs/howto/two-of-three-gone.md",
)
ADDRESS_ONLY_LOCAL = Illness(
    "address-only-local",
    Severity.error,
    "{broker} tells clients to connect to {address}, which on every other machine is that machine itself.",
    "Set brokerIP1 to an address of the broker's machine that clients reach, and restart it: "
    "tianzhou serve --advertise HOST",
)
WORK_FAILS = Illness(
    "work-fails",
    Severity.error,
    "{broker} cannot do some of its work: {task} fails since {since}.",
    "The cause is in the evidence and in its log; it goes on by itself when that is gone (docs/howto/troubles.md).",
)
DISK_FULL = Illness(
    "disk-full",
    Severity.error,
    "The disk of {broker} is {ratio:.0%} full and the limit is {limit:.0%}: sends are refused.",
    "Make room, or keep less: tianzhou config set fileReservedTime={hours}; see docs/howto/disk-space.md",
)
DISK_NEARLY_FULL = Illness(
    "disk-nearly-full",
    Severity.warning,
    "The disk of {broker} is {ratio:.0%} full: from {limit:.0%} on messages are deleted before their time.",
    "Make room, or keep less: tianzhou config set fileReservedTime={hours}; see docs/howto/disk-space.md",
)
LOG_DAMAGED = Illness(
    "log-damaged",
    Severity.error,
    "The log of {broker} has {count} damaged stretches that are not put right: their messages are not served.",
    "With a copy elsewhere they are fetched by themselves; else: tianzhou store check and tianzhou store repair",
)
STATE_REBUILT = Illness(
    "state-rebuilt",
    Severity.error,
    "{broker} had lost {files} when it started: it rebuilt from its log what it could, and deletes no queue of a topic "
    "that its table lacks.",
    "Compare topics, groups and offsets with config/rebuiltState.json in its store, create what is missing, then "
    "delete that file: docs/howto/troubles.md",
)
STATE_DAMAGED = Illness(
    "state-file-damaged",
    Severity.warning,
    "{broker} has found damaged state files and keeps them as {files}; it read the version before each, or rebuilt the "
    "table.",
    "Check its disk, see what the files still hold, then delete them: docs/howto/troubles.md",
)
SLAVE_MISSING = Illness(
    "slave-missing",
    Severity.error,
    "{broker} is a SYNC_MASTER and too few slaves are in sync with it: producers get SLAVE_NOT_AVAILABLE.",
    "Start its slave, or do without: brokerRole=ASYNC_MASTER.",
)
SLAVE_STANDS = Illness(
    "slave-not-following",
    Severity.error,
    "{broker} is a slave and copies from nobody: what comes in now is on its master alone.",
    "Is the master's HA port (haListenPort, 10912) reachable from there, and this address in "
    "replicationAllowedAddresses?",
)
SLAVE_BEHIND = Illness(
    "slave-behind",
    Severity.warning,
    "{broker} is {behind} behind its master.",
    "Compare disk and network of both; maxHaTransferByteInSecond bounds what is sent.",
)
CLOCK_OFF = Illness(
    "broker-clock-off",
    Severity.warning,
    "The clock of {broker} differs by {ahead} from that of this machine.",
    "Have both machines take the time from the network (NTP); delays, time-outs and retention go by it.",
)
NOT_WRITABLE = Illness(
    "broker-not-writable",
    Severity.error,
    "{broker} takes no messages (brokerPermission={permission}).",
    "When it is to take them again: tianzhou config set brokerPermission=6",
)
NOT_READABLE = Illness(
    "broker-not-readable",
    Severity.error,
    "{broker} gives no messages (brokerPermission={permission}).",
    "When it is to give them again: tianzhou config set brokerPermission=6",
)
WAITS_TO_START = Illness(
    "broker-waits-to-accept",
    Severity.error,
    "{broker} refuses sends for {left} more (startAcceptSendRequestTimeStamp).",
    "Wait, or set startAcceptSendRequestTimeStamp=0 in its configuration.",
)
BUSY = Illness(
    "broker-busy",
    Severity.error,
    "Sends wait {waits} at {broker} before they are served; those that wait longer are refused (SYSTEM_BUSY).",
    "It gets more than it can take: see its disk and processor, add brokers (tianzhou plan brokers), or slow "
    "producers down.",
)
PAGE_CACHE_BUSY = Illness(
    "page-cache-busy",
    Severity.error,
    "A write to the log of {broker} takes {held}: its disk does not keep up, and sends are refused.",
    "See what else uses the disk, and its settings: tianzhou doctor host FOLDER",
)
SENDS_FAILED = Illness(
    "sends-failed",
    Severity.warning,
    "{broker} could not store {count} messages since its start.",
    "The producers' errors and the broker's log say why: a full disk, a slow one, too many at once, wrong messages.",
)
SENDS_SLOW = Illness(
    "sends-slow",
    Severity.warning,
    "One send in a hundred takes {took} or longer at {broker}: its disk, or what it waits for, does not keep up.",
    "See the disk and its settings: tianzhou doctor host FOLDER; slaves that acknowledge: tianzhou status",
)
LIMITS_REACHED = Illness(
    "limits-reached",
    Severity.warning,
    "{broker} has refused requests because of a limit: {limits}.",
    "Raise the limit if that is meant, else find who asks for so much (docs/reference/limits.md).",
)
SENDS_LIMITED = Illness(
    "sends-limited",
    Severity.warning,
    "{broker} refuses messages because their senders are limited: {limits}.",
    "When the load is meant, raise the limit: tianzhou limit set. Else find the sender; tianzhou limit list shows what "
    "each limit refuses.",
)
HALF_PILE_UP = Illness(
    "half-messages-pile-up",
    Severity.warning,
    "{broker} has transactions without a decision, the oldest {age} old: their producers are gone or do not know.",
    "Start the producers of the group again, so that they can be asked; after transactionCheckMax questions the "
    "message is given up.",
)
DELAYED_LATE = Illness(
    "delayed-messages-late",
    Severity.error,
    "Delayed messages of level {level} are {late} late at {broker}, {waiting} are waiting.",
    "See its troubles and load: tianzhou status; only masters deliver them.",
)

ILLNESSES: Final = (
    NAME_SERVER_SILENT, NAME_SERVERS_DISAGREE, NO_BROKER, SILENT, UNREACHED, WITHOUT_MASTER, WITHOUT_LEADER,
    ADDRESS_ONLY_LOCAL, WORK_FAILS, DISK_FULL, DISK_NEARLY_FULL, LOG_DAMAGED, STATE_REBUILT, STATE_DAMAGED,
    SLAVE_MISSING, SLAVE_STANDS, SLAVE_BEHIND, CLOCK_OFF, NOT_WRITABLE, NOT_READABLE, WAITS_TO_START, BUSY,
    PAGE_CACHE_BUSY, SENDS_FAILED, SENDS_SLOW, LIMITS_REACHED, SENDS_LIMITED, HALF_PILE_UP, DELAYED_LATE,
)  # fmt: skip


def findings(seen: ClusterSeen) -> Iterator[Finding]:
    """Yield the faults of name servers and brokers."""
    yield from _name_servers(seen)
    if any(one.info is not None for one in seen.name_servers) and not seen.brokers:
        yield NO_BROKER.found("cluster", {"name_servers": [one.address for one in seen.name_servers]})
    yield from _leaders(seen)
    yield from copies.findings(seen)
    for broker in seen.brokers:
        yield from _address(seen, broker)
        if broker.status.error is not None:
            illness = SILENT if is_silent(broker.status.error) else UNREACHED
            yield illness.found(
                broker.subject,
                {"address": broker.status.address, "error": broker.status.error},
                broker=broker.subject,
                address=broker.status.address,
            )
        else:
            yield from of_broker(broker, seen.now_ms)


def is_silent(error: str) -> bool:
    """Whether a broker accepted the connection and sent no reply, according to the text of a `RequestTimeout`.

    Args:
        error: why the broker did not answer.
    """
    return error.startswith("no reply from ")


def _name_servers(seen: ClusterSeen) -> Iterator[Finding]:
    answered: list[NameServerSeen] = []
    for one in seen.name_servers:
        if one.info is None:
            yield NAME_SERVER_SILENT.found(f"name server {one.address}", {"error": one.why}, address=one.address)
        else:
            answered.append(one)
    known = {
        one.address: {
            (name, address)
            for name, data in one.info.broker_addr_table.items()
            for address in data.broker_addrs.values()
        }
        for one in answered
        if one.info is not None
    }
    for name, address in sorted(set().union(*known.values())):
        missing = [server for server, brokers in known.items() if (name, address) not in brokers]
        if missing:
            yield NAME_SERVERS_DISAGREE.found(
                f"broker {name}",
                {"address": address, "known_at": sorted(set(known) - set(missing)), "unknown_at": missing},
                broker=f"{name} ({address})", missing=", ".join(missing), all=";".join(known),
            )  # fmt: skip


def _leaders(seen: ClusterSeen) -> Iterator[Finding]:
    illnesses = {CopyFaultKind.WITHOUT_LEADER: WITHOUT_LEADER, CopyFaultKind.WITHOUT_MASTER: WITHOUT_MASTER}
    for fault in copy_faults(one.status for one in seen.brokers):
        if (illness := illnesses.get(fault.kind)) is not None:
            yield illness.found(f"broker {fault.broker_name}", fault.evidence, broker=fault.broker_name)


def _address(seen: ClusterSeen, broker: BrokerSeen) -> Iterator[Finding]:
    address = broker.status.address
    if not is_only_local(address):
        return
    # If clients reach the name server by a loopback address as well, everything may run on one machine.
    elsewhere = [one.address for one in seen.name_servers if not is_only_local(one.address)]
    yield ADDRESS_ONLY_LOCAL.graded(Severity.error if elsewhere else Severity.note).found(
        broker.subject,
        {"address": address, "name_servers": [one.address for one in seen.name_servers]},
        broker=broker.subject,
        address=address,
    )


def is_only_local(address: str) -> bool:
    """Whether an address `host:port` is a loopback or unspecified address, which only the own machine reaches."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return found.is_loopback or found.is_unspecified


def of_broker(broker: BrokerSeen, now_ms: int) -> Iterator[Finding]:
    """Yield the faults of a broker that answers."""
    who = {"broker": broker.subject}
    for trouble in broker.status.troubles:
        evidence = {"task": trouble.task, "why": trouble.why, "count": trouble.count, "since_ms": trouble.since_ms}
        since = f"{duration(max(now_ms - trouble.since_ms, 0))}, {trouble.count} times in a row"
        yield WORK_FAILS.found(broker.subject, evidence, task=trouble.task, since=since, **who)
    yield from _disk(broker)
    damaged = broker.figure("damagedLogStretches") - broker.figure("damagedLogStretchesPutRight")
    if damaged > 0:
        yield LOG_DAMAGED.found(broker.subject, {"damagedLogStretches": damaged}, count=round(damaged), **who)
    if files := broker.status.rebuilt_state:
        yield STATE_REBUILT.found(broker.subject, {"rebuiltState": files}, files=files, **who)
    if files := broker.status.damaged_state_files:
        yield STATE_DAMAGED.found(broker.subject, {"damagedStateFiles": files}, files=files, **who)
    yield from _copies(broker)
    if broker.clock_ahead_ms is not None and abs(broker.clock_ahead_ms) > CLOCK_MS:
        ahead = duration(abs(broker.clock_ahead_ms))
        yield CLOCK_OFF.found(broker.subject, {"ahead_ms": broker.clock_ahead_ms}, ahead=ahead, **who)
    yield from _refusals(broker, now_ms)
    if broker.half is not None and broker.half.waiting and broker.half.oldest_ms >= OLD_HALF_MS:
        evidence = {"waiting_at_most": broker.half.waiting, "oldest_ms": broker.half.oldest_ms}
        yield HALF_PILE_UP.found(broker.subject, evidence, age=duration(broker.half.oldest_ms), **who)
    for level in broker.delayed:
        if level.late_ms >= LATE_MS:
            yield DELAYED_LATE.found(
                broker.subject,
                {"level": level.level, "waiting": level.waiting, "late_ms": level.late_ms},
                level=level.level, waiting=level.waiting, late=duration(level.late_ms), **who,
            )  # fmt: skip


def _disk(broker: BrokerSeen) -> Iterator[Finding]:
    ratio = broker.status.disk_ratio
    full = broker.number("diskSpaceWarningLevelRatio", 90) / 100
    early = broker.number("diskMaxUsedSpaceRatio", 75) / 100
    enough = broker.number("diskSpaceEnoughFreeBytes", 0)
    evidence = {"commitLogDiskRatio": ratio, "capacity": broker.status.runtime.get("commitLogDirCapacity", "")}
    hours = round(broker.number("fileReservedTime", 72) / 2)
    words = {"broker": broker.subject, "ratio": ratio, "hours": hours}
    if ratio >= full and not enough:
        yield DISK_FULL.found(broker.subject, evidence, limit=full, **words)
    elif ratio >= early - 0.05 and not enough:
        yield DISK_NEARLY_FULL.found(broker.subject, evidence, limit=early, **words)


def _copies(broker: BrokerSeen) -> Iterator[Finding]:
    status, said = broker.status, broker.status.copies
    who = {"broker": broker.subject}
    if status.is_master:
        in_sync = 0 if said is None else said.in_sync_slave_nums
        evidence: dict[str, object] = {"brokerRole": "SYNC_MASTER", "in_sync": in_sync}
        few = [fault for fault in copy_faults([status]) if fault.kind is CopyFaultKind.SLAVE_MISSING]
        if few or (broker.setting("brokerRole") == "SYNC_MASTER" and status.membership is None and not in_sync):
            evidence |= few[0].evidence if few else {}
            yield SLAVE_MISSING.found(broker.subject, evidence, **who)
        return
    if said is not None and not _follows(status, said):
        read_ms = said.ha_client_runtime_info.last_read_timestamp
        yield SLAVE_STANDS.found(broker.subject, {"follows": status.follows, "lastReadTimestamp": read_ms}, **who)
    lag = status.lag
    if lag is not None and (lag.lag_bytes >= SLAVE_BEHIND_BYTES or (lag.seconds or 0) >= SLAVE_BEHIND_S):
        behind = f"{lag.lag_bytes} bytes" + (f", about {lag.seconds:.0f} s" if lag.seconds is not None else "")
        evidence = {"bytes": lag.lag_bytes, "messages": lag.messages, "seconds": lag.seconds}
        yield SLAVE_BEHIND.found(broker.subject, evidence, behind=behind, **who)


def _follows(status: BrokerStatus, copies: HaStatus) -> bool:
    """Whether a slave or member replicates a log: it has a source, and a slave also has a connection to it."""
    if status.membership is not None:
        return bool(status.follows or status.membership.leader)
    return bool(status.follows and copies.ha_client_runtime_info.last_read_timestamp)


def _refusals(broker: BrokerSeen, now_ms: int) -> Iterator[Finding]:
    who = {"broker": broker.subject}
    if broker.config is not None:
        permission = int(broker.number("brokerPermission", 6))
        evidence = {"brokerPermission": permission}
        if not permission & 2 and broker.status.is_master:
            yield NOT_WRITABLE.found(broker.subject, evidence, permission=permission, **who)
        if not permission & 4:
            yield NOT_READABLE.found(broker.subject, evidence, permission=permission, **who)
    until = broker.figure("startAcceptSendRequestTimeStamp")
    if until > now_ms:
        yield WAITS_TO_START.found(
            broker.subject, {"startAcceptSendRequestTimeStamp": int(until)}, left=duration(until - now_ms), **who
        )
    waits = broker.figure("sendThreadPoolQueueHeadWaitTimeMills")
    if waits >= broker.number("waitTimeMillsInSendQueue", BUSY_MS):
        yield BUSY.found(broker.subject, {"sendThreadPoolQueueHeadWaitTimeMills": waits}, waits=duration(waits), **who)
    held = broker.figure("pageCacheLockTimeMills")
    if held > broker.number("osPageCacheBusyTimeOutMills", 1_000):
        yield PAGE_CACHE_BUSY.found(broker.subject, {"pageCacheLockTimeMills": held}, held=duration(held), **who)
    failed = round(broker.figure("putMessageFailedTimes"))
    if failed:
        evidence = {
            "putMessageFailedTimes": failed,
            "putMessageTimesTotal": round(broker.figure("putMessageTimesTotal")),
        }
        yield SENDS_FAILED.found(broker.subject, evidence, count=failed, **who)
    slowest = broker.figure("putLatency99")
    if slowest >= SLOW_SEND_MS:
        yield SENDS_SLOW.found(broker.subject, {"putLatency99_ms": slowest}, took=duration(slowest), **who)
    refused = {name: count for name, count in broker.status.refused.items() if count}
    if refused:
        limits = ", ".join(f"{name} {count} times" for name, count in refused.items())
        yield LIMITS_REACHED.found(broker.subject, {"refused": refused}, limits=limits, **who)
    if limits := broker.status.runtime.get(LIMITED_BY, ""):
        yield SENDS_LIMITED.found(broker.subject, {LIMITED_BY: limits}, limits=shown(limits, 1_000), **who)
