"""Each process's share of a run. Pure."""

from __future__ import annotations

import math

import msgspec

from tianzhou.bench.payloads import Keys
from tianzhou.bench.spec import Given, Payload, Role


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


def sending_jobs(given: Given, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Each sending process's share of a checked run."""
    topics = [topic for _ in range(given.connections or 1) for topic in given.topics]
    return [
        Job(
            Role.send,
            share,
            given.processes,
            namesrv,
            tls,
            mark if given.timed else "",
            [(topic, "") for topic in topics[share :: given.processes]],
            tickets_a_second=given.rate / given.batch,
            tickets=None if given.count is None else math.ceil(given.count / given.batch),
            seconds=None if given.backlog_bytes else given.seconds,
            warm_up_s=given.warm_up_s,
            in_flight=given.in_flight,
            batch=given.batch,
            payload=given.payload,
            keys=given.keys,
            tags=given.tags,
        )
        for share in range(given.processes)
    ]


def receiving_jobs(given: Given, namesrv: str, tls: bool | None, mark: str) -> list[Job]:
    """Each receiving process's share of a checked run."""
    members = [
        (topic, group_name(mark, topic_number, number))
        for _ in range(given.consumers)
        for topic_number, topic in enumerate(given.topics)
        for number in range(given.groups)
    ]
    processes = min(given.processes, len(members))
    return [
        Job(
            Role.receive,
            share,
            processes,
            namesrv,
            tls,
            mark if given.timed else "",
            members[share::processes],
            warm_up_s=given.warm_up_s,
            handlers=given.handlers,
            consume_batch=given.consume_batch,
            pull_batch=given.pull_batch,
            by_pulling=given.by_pulling,
        )
        for share in range(processes)
    ]
