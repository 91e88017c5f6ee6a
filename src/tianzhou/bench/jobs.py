"""The shares of a run that each process carries. Pure."""

from __future__ import annotations

import math

import msgspec

from tianzhou.bench.spec import BenchRole, LoadSpec


class Job(msgspec.Struct, frozen=True):
    """The work of one process.

    Attributes:
        role: sending or receiving.
        share: number of the process among those of its role, from 0.
        of: number of processes of its role.
        namesrv: the name servers.
        tls: see `ClientInstance`.
        mark: mark of the run in stamped messages; empty to stamp no messages and to count all.
        members: for a sender the topic of each connection, for a receiver the topic and group of each consumer.
        spec: the checked description of the run.
    """

    role: BenchRole
    share: int
    of: int
    namesrv: str
    tls: bool | None
    mark: str
    members: list[tuple[str, str]]
    spec: LoadSpec

    @property
    def tickets(self) -> int | None:
        """Number of requests to measure in all processes of the role, None for no limit."""
        return None if self.spec.count is None else math.ceil(self.spec.count / self.spec.batch)

    @property
    def tickets_a_second(self) -> float:
        """Requests per second of all processes of the role, 0 for no limit."""
        return self.spec.rate / self.spec.batch

    @property
    def seconds(self) -> float | None:
        """Seconds to measure. None for no limit, because producers of a backlog stop after the consumers."""
        return None if self.spec.backlog_bytes else self.spec.seconds


def topics_by_group(spec: LoadSpec, mark: str) -> dict[str, str]:
    """Return the consumer groups of a run, with the topic of each."""
    return {
        f"bench-{mark}-{topic_number}-{number}": topic
        for topic_number, topic in enumerate(spec.topics)
        for number in range(spec.groups)
    }


def sending_jobs(spec: LoadSpec, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Return the jobs of the sending processes of a checked run."""
    members = [(topic, "") for _ in range(spec.connections or 1) for topic in spec.topics]
    return _shared(BenchRole.send, members, spec.processes, spec, namesrv, tls, mark)


def receiving_jobs(spec: LoadSpec, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Return the jobs of the receiving processes of a checked run."""
    groups = topics_by_group(spec, mark)
    members = [(topic, group) for _ in range(spec.consumers) for group, topic in groups.items()]
    return _shared(BenchRole.receive, members, min(spec.processes, len(members)), spec, namesrv, tls, mark)


def _shared(
    role: BenchRole,
    members: list[tuple[str, str]],
    processes: int,
    spec: LoadSpec,
    namesrv: str,
    tls: bool | None,
    mark: str,
) -> list[Job]:
    mark = mark if spec.timed else ""
    return [
        Job(role, share, processes, namesrv, tls, mark, members[share::processes], spec) for share in range(processes)
    ]
