"""The description of a run: topics, load, bodies, consumers. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from tianzhou.bench.payloads import Keys
from tianzhou.errors import ConfigError

DEFAULT_SECONDS = 10
LONGEST_WARM_UP_S = 3_600
MOST_PROCESSES = 64


class BenchKind(StrEnum):
    """What is measured."""

    produce = "produce"
    consume = "consume"
    latency = "latency"
    mixed = "mixed"


class BenchRole(StrEnum):
    """What a process does."""

    send = "send"
    receive = "receive"


@dataclass(frozen=True)
class Payload:
    """Bodies of messages.

    Attributes:
        size: bytes of each, when there is no file.
        file: a file of bodies, empty for none.
        whole: the file is one body, else each line is.
        random_ratio: of a pool of bodies, how much of each is random; None for one body of letters.
        pool: how many there are then.
    """

    size: int = 1024
    file: str = ""
    whole: bool = False
    random_ratio: float | None = None
    pool: int = 1


@dataclass(frozen=True)
class LoadSpec:
    """A run.

    Attributes:
        kind: what is measured.
        topics: where messages go to and come from.
        queues: of each topic, when it has to be made.
        seconds: how long to measure; None for no limit.
        count: how many messages to measure; None for no limit.
        warm_up_s: seconds before measuring begins, whole.
        rate: messages a second of all topics together, 0 for as many as can be.
        connections: producers of each topic, each with connections of its own.
        in_flight: messages, or batches, that a connection has on their way.
        batch: messages of one request.
        processes: that send, and as many that receive.
        payload: the bodies.
        keys: the messages' keys.
        tags: the messages' tag.
        groups: consumer groups of each topic.
        consumers: members of each group.
        handlers: handlers of a member that run at the same time.
        consume_batch: most messages of one call of a handler.
        pull_batch: most messages of one pull.
        by_pulling: consumers poll, and have no handlers.
        fill: messages stored before consumers are measured.
        backlog_bytes: how much the topics hold before consumers start.
        drain_ratio: how much of that has to be consumed in the end.
        name: what a workload file calls itself.
    """

    kind: BenchKind
    topics: tuple[str, ...] = ("bench",)
    queues: int = 8
    seconds: float | None = None
    count: int | None = None
    warm_up_s: int = 0
    rate: float = 0
    connections: int | None = None
    in_flight: int = 256
    batch: int = 1
    processes: int = 1
    payload: Payload = field(default_factory=Payload)
    keys: Keys = Keys.none
    tags: str | None = None
    groups: int = 1
    consumers: int = 1
    handlers: int = 20
    consume_batch: int = 1
    pull_batch: int = 32
    by_pulling: bool = False
    fill: int = 0
    backlog_bytes: int = 0
    drain_ratio: float = 1.0
    name: str = ""

    @property
    def sends(self) -> bool:
        """Whether producers are measured."""
        return self.kind is not BenchKind.consume

    @property
    def receives(self) -> bool:
        """Whether consumers are measured."""
        return self.kind is not BenchKind.produce

    @property
    def timed(self) -> bool:
        """Whether messages are timed from when they were due until they are consumed."""
        return self.kind in {BenchKind.latency, BenchKind.mixed}

    def checked(self) -> LoadSpec:
        """The same with what follows from it filled in.

        Raises:
            ConfigError: parts of it exclude each other.
        """
        spec = self
        if spec.kind is BenchKind.latency and not spec.rate:
            raise ConfigError(
                "--rate 0: latency is measured under a steady load; give messages a second, as --rate 1000"
            )
        if spec.seconds is None and spec.count is None and spec.kind is not BenchKind.consume:
            spec = replace(spec, seconds=float(DEFAULT_SECONDS))
        wanted = spec.connections
        connections = max(1, math.ceil(spec.processes / len(spec.topics))) if wanted is None else wanted
        if spec.sends and connections * len(spec.topics) < spec.processes:
            raise ConfigError(
                f"--processes {spec.processes}: each needs a connection of its own, and --connections {wanted} makes "
                f"{connections * len(spec.topics)}; give --connections {spec.processes} or leave it out"
            )
        members = len(spec.topics) * spec.groups * spec.consumers
        if spec.kind is BenchKind.consume and members < spec.processes:
            spec = replace(spec, consumers=math.ceil(spec.processes / (len(spec.topics) * spec.groups)))
        return replace(spec, connections=connections)

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "kind"
        }
