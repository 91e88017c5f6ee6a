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
    """The subject of a measurement."""

    produce = "produce"
    consume = "consume"
    latency = "latency"
    mixed = "mixed"


class BenchRole(StrEnum):
    """The role of a process."""

    send = "send"
    receive = "receive"


@dataclass(frozen=True)
class Payload:
    """Bodies of messages.

    Attributes:
        size: size of each body in bytes, if there is no file.
        file: a file of bodies, empty for none.
        whole: whether the whole file is one body; otherwise each line is one.
        random_ratio: part of each body that is random, for a pool of bodies; None for one body of letters.
        pool: number of bodies in the pool.
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
        kind: the subject of the measurement.
        topics: topics of the messages.
        queues: number of queues of a topic that is created.
        seconds: duration of the measurement in seconds; None for no limit.
        count: number of messages to measure; None for no limit.
        warm_up_s: whole seconds before the measurement begins.
        rate: messages per second of all topics together, 0 for no limit.
        connections: number of producers of each topic. Each has its own connections.
        in_flight: number of messages, or batches, in flight on each connection.
        batch: number of messages in a request.
        processes: number of sending processes, and of receiving processes.
        payload: the bodies.
        keys: the messages' keys.
        tags: the messages' tag.
        groups: number of consumer groups of each topic.
        consumers: number of members of each group.
        handlers: number of concurrent handlers of a member.
        consume_batch: maximum messages of one call of a handler.
        pull_batch: maximum messages of one pull.
        by_pulling: whether consumers poll and have no handlers.
        fill: number of messages to store before consumers are measured.
        backlog_bytes: size in bytes of the messages to store before consumers start.
        drain_ratio: part of the backlog that must be consumed at the end, 0 to 1.
        name: name in the workload file.
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
        """Whether messages are timed from their due time until they are consumed."""
        return self.kind in {BenchKind.latency, BenchKind.mixed}

    def checked(self) -> LoadSpec:
        """Return a copy with all dependent values set.

        Raises:
            ConfigError: some values exclude each other.
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
        """Return the description for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "kind"
        }
