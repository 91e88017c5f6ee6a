"""Each process's share of a run. Pure."""

from __future__ import annotations

import math

import msgspec

from tianzhou.bench.payloads import Keys
from tianzhou.bench.spec import LoadSpec, Payload, Role


class Job(msgspec.Struct, frozen=True):
    """What one process is told to do.

    Attributes:
        role: sending or receiving.
        share: which of those of its role it is, from 0.
        of: how many of its role there are.
        namesrv: the name servers.
        tls: see `ClientInstance`.
        mark: of the run, in stamped messages; empty to stamp none and to count all.
        members: of a sender the topic of each of its connections, of a receiver topic and group of each consumer.
        tickets_a_second: of all processes, 0 for as many as can be.
        tickets: to measure in all processes, None for no limit.
        seconds: how long to measure, None for no limit.
        warm_up_s: so long nothing is measured.
        group: of the producers.
    """

    role: Role
    share: int
    of: int
    namesrv: str
    tls: bool | None
    mark: str
    members: list[tuple[str, str]]
    tickets_a_second: float = 0
    tickets: int | None = None
    seconds: float | None = None
    warm_up_s: int = 0
    in_flight: int = 1
    batch: int = 1
    payload: Payload = Payload()
    keys: Keys = Keys.none
    tags: str | None = None
    handlers: int = 20
    consume_batch: int = 1
    pull_batch: int = 32
    by_pulling: bool = False
    group: str = "tianzhou-bench"


def group_name(mark: str, topic_number: int, number: int) -> str:
    """The consumer group of a run's topic, both numbered from 0."""
    return f"bench-{mark}-{topic_number}-{number}"


def sending_jobs(spec: LoadSpec, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Each sending process's share of a checked run."""
    topics = [topic for _ in range(spec.connections or 1) for topic in spec.topics]
    return [
        Job(
            Role.send,
            share,
            spec.processes,
            namesrv,
            tls,
            mark if spec.timed else "",
            [(topic, "") for topic in topics[share :: spec.processes]],
            tickets_a_second=spec.rate / spec.batch,
            tickets=None if spec.count is None else math.ceil(spec.count / spec.batch),
            seconds=None if spec.backlog_bytes else spec.seconds,
            warm_up_s=spec.warm_up_s,
            in_flight=spec.in_flight,
            batch=spec.batch,
            payload=spec.payload,
            keys=spec.keys,
            tags=spec.tags,
        )
        for share in range(spec.processes)
    ]


def receiving_jobs(spec: LoadSpec, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Each receiving process's share of a checked run."""
    members = [
        (topic, group_name(mark, topic_number, number))
        for _ in range(spec.consumers)
        for topic_number, topic in enumerate(spec.topics)
        for number in range(spec.groups)
    ]
    processes = min(spec.processes, len(members))
    return [
        Job(
            Role.receive,
            share,
            processes,
            namesrv,
            tls,
            mark if spec.timed else "",
            members[share::processes],
            warm_up_s=spec.warm_up_s,
            handlers=spec.handlers,
            consume_batch=spec.consume_batch,
            pull_batch=spec.pull_batch,
            by_pulling=spec.by_pulling,
        )
        for share in range(processes)
    ]
