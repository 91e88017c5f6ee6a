"""Diagnosis of a subject: reads its state and returns its faults as a report."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from tianzhou.admin import Admin
from tianzhou.admin.groups import SYSTEM_GROUPS
from tianzhou.doctor.findings import Finding, Report, worst_first
from tianzhou.doctor.illnesses import access, broker, connect, group, host, member, send, spark, topic
from tianzhou.doctor.looks.asking import Asking
from tianzhou.doctor.looks.cluster import see_cluster, see_name_server_ports, see_port
from tianzhou.doctor.looks.group import group_table, see_group
from tianzhou.doctor.looks.host import see_host, see_secret_files
from tianzhou.doctor.looks.spark import see_spark, with_bounds
from tianzhou.doctor.looks.topic import see_topic, topic_table
from tianzhou.doctor.observations import ClusterSeen, PortKind
from tianzhou.errors import ConfigError
from tianzhou.model import names

DEFAULT_TIMEOUT_MS: Final = 3_000
MOST_TOPICS: Final = 200
MOST_GROUPS: Final = 200
"""Maximum number of topics, and of groups, that a diagnosis of the whole cluster reads."""


class Subject(enum.StrEnum):
    """Subjects of a diagnosis, and the meaning of `name` in `diagnose` for each.

    `cluster`: everything but this machine. `group`, `topic`: the group or topic with this name. `broker`: the broker
    with
    this name, or all brokers. `send`: sends to this topic, or to any topic. `connect`: this address, or all addresses
    that
    clients get from the name servers. `spark`: the checkpoint in this folder. `host`: this machine, with a store in
    this
    folder. `access`: access control, encryption and secrets.
    """

    cluster = "cluster"
    group = "group"
    topic = "topic"
    broker = "broker"
    send = "send"
    connect = "connect"
    spark = "spark"
    host = "host"
    access = "access"


async def diagnose(
    admin: Admin | None,
    subject: Subject | str = Subject.cluster,
    name: str | None = None,
    *,
    size: int | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> Report:
    """Diagnose a cluster, a part of it, or this machine. The diagnosis changes nothing and sends no message.

    Args:
        admin: a started administration client, whose `timeout_ms` bounds each request; None is enough for `host`, and
            for `spark` without a cluster.
        subject: what to diagnose.
        name: name of the group, topic, broker, address or folder; see `Subject`.
        size: size of the message's body in bytes; only for `send`.
        timeout_ms: limit of each attempt to connect, in ms.

    Raises:
        ConfigError: `subject` is unknown, or `name` is missing.
    """
    try:
        subject = Subject(subject)
    except ValueError:
        raise ConfigError(f"a diagnosis of {subject!r}: expected one of {', '.join(Subject)}") from None
    if subject is Subject.host:
        seen = await asyncio.to_thread(see_host, Path(name) if name else None)
        return Report("host", worst_first(host.findings(seen)), {"hosts": 1})
    if subject is Subject.spark and admin is None:
        found = await asyncio.to_thread(see_spark, time.time_ns() // 1_000_000, Path(name) if name else None)
        return Report("spark", worst_first(spark.findings(found)), {"checkpoints": int(bool(name))})
    if admin is None:
        raise ConfigError(f"a diagnosis of {subject} needs a cluster: give an Admin")
    if subject in (Subject.group, Subject.topic) and not name:
        raise ConfigError(f"a diagnosis of a {subject} needs its name")
    return await _Diagnosis(admin, subject, name or "", size, timeout_ms).report()


class _Diagnosis:
    """One diagnosis of a cluster."""

    def __init__(self, admin: Admin, subject: Subject, name: str, size: int | None, timeout_ms: float) -> None:
        self._admin = admin
        self._asking = Asking(admin)
        self._subject = subject
        self._name = name
        self._size = size
        self._timeout_ms = timeout_ms
        self._looked_at: dict[str, int] = {}

    async def report(self) -> Report:
        subject, asking = self._subject, self._asking
        everything = subject is Subject.cluster
        cluster = await see_cluster(asking, self._timeout_ms, access=everything or subject is Subject.access)
        self._looked_at["name servers"] = len(cluster.name_servers)
        self._looked_at["brokers"] = len(cluster.brokers)
        found: list[Finding] = []
        answered = any(one.info is not None for one in cluster.name_servers)
        could_look = answered or subject in (Subject.connect, Subject.spark)
        match subject:
            case _ if not could_look:
                found += [*broker.findings(cluster), *await self._connect(cluster)]
            case Subject.cluster:
                found += await self._whole(cluster)
            case Subject.group:
                found += self._servers(cluster) + await self._group(cluster, self._name)
            case Subject.topic:
                found += self._servers(cluster) + await self._topic(cluster, self._name)
            case Subject.broker:
                found += self._broker(cluster)
            case Subject.send:
                found += broker.findings(cluster)
                found += send.findings(cluster, self._size)
                if self._name:
                    found += await self._topic(cluster, self._name)
            case Subject.connect:
                found += await self._connect(cluster)
            case Subject.spark:
                found += await self._spark(cluster)
            case Subject.access:
                found += await self._access(cluster)
        title = str(subject) if not self._name else f"{subject} {self._name}"
        return Report(title, worst_first(found), self._looked_at, asking.unanswered, could_look)

    def _servers(self, cluster: ClusterSeen) -> list[Finding]:
        """Return only the servers' faults that prevent a judgement of other subjects."""
        return [
            finding
            for finding in broker.findings(cluster)
            if finding.name in {broker.NAME_SERVER_SILENT.name, broker.NO_BROKER.name, broker.SILENT.name,
                                broker.UNREACHED.name, broker.WITHOUT_LEADER.name, broker.WITHOUT_MASTER.name}
        ]  # fmt: skip

    async def _whole(self, cluster: ClusterSeen) -> list[Finding]:
        asking = self._asking
        found = list(broker.findings(cluster)) + await self._connect(cluster) + await self._access(cluster)
        masters = list(cluster.masters)
        system = {names.AUTO_CREATE_TOPIC, *(one.status.broker_name for one in masters)}
        system |= {one.status.cluster for one in masters}
        topics: set[str] = set()
        groups: set[str] = set()
        for one in masters:
            address = one.status.address
            none: list[str] = []
            system |= set(
                await asking.ask(address, "system topics", partial(self._admin.servers.system_topics, address), none)
            )
            topics |= set(await topic_table(asking, one))
            groups |= set(await group_table(asking, one))
        ours = sorted(name for name in topics - system if not name.startswith(("%", names.SYSTEM_PREFIX)))
        chosen = self._first("topics", ours, MOST_TOPICS)
        of_topics = await asking.each(chosen, lambda name: self._topic(cluster, name))
        chosen = self._first("groups", sorted(groups - SYSTEM_GROUPS), MOST_GROUPS)
        of_groups = await asking.each(chosen, lambda name: self._group(cluster, name))
        return [*found, *chain(*of_topics, *of_groups)]

    def _first(self, what: str, every: Sequence[str], most: int) -> Iterable[str]:
        if len(every) > most:
            self._asking.note("cluster", f"{len(every) - most} more {what}", f"only the first {most} are looked at")
        self._looked_at[what] = min(len(every), most)
        return every[:most]

    async def _group(self, cluster: ClusterSeen, name: str) -> list[Finding]:
        seen = await see_group(self._asking, cluster, name)
        self._looked_at.setdefault("groups", 1)
        found = [*group.findings(seen), *member.findings(seen)]
        # A broker that does not answer may have the group.
        silent = any(one.status.error is not None for one in cluster.brokers) or not list(cluster.masters)
        return [one for one in found if one.name != group.UNKNOWN.name] if silent else found

    async def _topic(self, cluster: ClusterSeen, name: str) -> list[Finding]:
        self._looked_at.setdefault("topics", 1)
        return list(topic.findings(await see_topic(self._asking, cluster, name)))

    def _broker(self, cluster: ClusterSeen) -> list[Finding]:
        found = list(broker.findings(cluster))
        if not self._name:
            return found
        mine = [one for one in cluster.brokers if one.status.broker_name == self._name]
        if not mine:
            known = ", ".join(sorted({one.status.broker_name for one in cluster.brokers})) or "none"
            raise ConfigError(f"no name server knows a broker {self._name}; they know {known}")
        subjects = {one.subject for one in mine} | {f"broker {self._name}"}
        return [
            finding for finding in found if finding.subject in subjects or not finding.subject.startswith("broker ")
        ]

    async def _connect(self, cluster: ClusterSeen) -> list[Finding]:
        registered = {one.status.address for one in cluster.brokers}
        addresses = [(one, PortKind.NAME_SERVER) for one in self._admin.cluster.name_servers]
        addresses += [(one, PortKind.BROKER) for one in sorted(registered)]
        if self._name and self._subject is Subject.connect:
            expected = PortKind.NAME_SERVER if self._name in self._admin.cluster.name_servers else PortKind.BROKER
            addresses = [(self._name, expected)]
        asking = self._asking
        seen = await asking.each(addresses, lambda one: see_port(asking, one[0], one[1], self._timeout_ms))
        self._looked_at["addresses"] = len(addresses)
        between = connect.ports_between(cluster.brokers)
        return [finding for one in seen for finding in connect.findings(one, registered, between)]

    async def _access(self, cluster: ClusterSeen) -> list[Finding]:
        ports = await see_name_server_ports(self._asking, self._timeout_ms)
        secrets = await asyncio.to_thread(see_secret_files, cluster.brokers)
        return list(access.findings(cluster, ports, secrets))

    async def _spark(self, cluster: ClusterSeen) -> list[Finding]:
        seen = await asyncio.to_thread(see_spark, self._asking.now_ms, Path(self._name) if self._name else None)
        if seen.checkpoint is not None and not seen.checkpoint.why:
            seen = replace(seen, checkpoint=await with_bounds(self._asking, cluster, seen.checkpoint))
        self._looked_at["checkpoints"] = int(seen.checkpoint is not None)
        return list(spark.findings(seen))
