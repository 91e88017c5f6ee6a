"""Number of consumers that a load needs: threads or processes, nodes and queues. Pure: figures in, figures out.

The processor's time and the waiting time of a handler for one message are measured (`tianzhou plan consumers
--measured`) or estimated. All other figures follow by the arithmetic that docs/howto/planning.md writes out.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tianzhou.errors import ConfigError

MAX_CONCURRENCY: Final = 1_000
"""Upper limit of `consume_concurrency`."""
MAX_MEMBERS: Final = 10_000
PROCESS_MIB: Final = 40
"""Memory of a process of `in_processes`, MiB: the interpreter, the client and a small module of handlers."""
ROUNDING: Final = 1e-9
"""Tolerance for quotients that are whole numbers except for the last bits."""


class MemberWorkers(enum.StrEnum):
    """Where the handlers of a member run."""

    threads = "threads"
    processes = "processes"


CLIENT_RATES: Final = {MemberWorkers.threads: 10_000, MemberWorkers.processes: 4_000}
"""Messages per second that one member passes to handlers that do nothing (docs/howto/planning.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLoad:
    """The load of a consumer group and its handlers' times.

    Args:
        peak: messages a second at the peak, of the whole group.
        cpu_ms: milliseconds of a processor that the handler takes for one message.
        io_ms: milliseconds that the handler waits for one message.
        cores: cores of a node.
        queues: queues of the topic; 0 when unknown.
        headroom: part of a node's rate that is left free, from 0 to below 1.

    Raises:
        ConfigError: a value is out of its range.
    """

    peak: float
    cpu_ms: float
    io_ms: float
    cores: int
    queues: int = 0
    headroom: float = 0.4

    def __post_init__(self) -> None:
        for name, least, most in (
            ("peak", 0.001, 1e9),
            ("cpu_ms", 0.0001, 1e7),
            ("io_ms", 0, 1e9),
            ("cores", 1, 4_096),
            ("queues", 0, 10_000_000),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise ConfigError(f"{name}={value:g}: expected {least:g} to {most:g}")
        if not 0 <= self.headroom < 1:
            raise ConfigError(f"headroom={self.headroom:g}: expected a part from 0 to below 1, such as 0.4 for 40 %")

    @property
    def wall_ms(self) -> float:
        """Milliseconds of a call for one message."""
        return self.cpu_ms + self.io_ms


@dataclass(frozen=True, slots=True)
class Way:
    """Figures of one kind of workers.

    Attributes:
        workers: where handlers run.
        cores: cores of a node that handlers can use: one for threads, because of the interpreter's lock.
        concurrency: handlers at the same time on a node: threads, or processes.
        rate: messages per second of a node, without headroom.
        bound_by: the limit of the rate: `cpu`, `concurrency` or `client`.
        nodes: number of nodes for the peak, with the headroom. Each node runs one member of the group.
    """

    workers: MemberWorkers
    cores: int
    concurrency: int
    rate: float
    bound_by: str
    nodes: int


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """Number of consumers that a load needs.

    Attributes:
        chosen: the kind of workers that needs fewer nodes; threads when both need the same.
        other: the other kind.
        queues: smallest number of queues that gives each member one.
        idle_members: members that would get no queue of the topic's present queues.
        busiest_rate: messages a second at the peak of the member with most queues; 0 when the queues are unknown.
        warnings: sentences for the operator.
    """

    chosen: Way
    other: Way
    queues: int
    idle_members: int
    busiest_rate: float
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return all figures for JSON."""
        ways = {way.workers.value: _values(way) for way in sorted((self.chosen, self.other), key=lambda one: one.cores)}
        return {
            **_values(self.chosen),
            "queues": self.queues,
            "idle_members": self.idle_members,
            "busiest_rate": self.busiest_rate,
            "ways": ways,
            "warnings": list(self.warnings),
        }


def _values(way: Way) -> dict[str, Any]:
    return {name: getattr(way, name) for name in Way.__slots__} | {"workers": way.workers.value}


def plan_consumers(load: ConsumerLoad) -> ConsumerFigures:
    """Return the number of consumers for a load, and whether handlers should run in threads or processes."""
    threads, processes = way(load, MemberWorkers.threads), way(load, MemberWorkers.processes)
    chosen, other = (processes, threads) if processes.nodes < threads.nodes else (threads, processes)
    if chosen.nodes > MAX_MEMBERS:
        raise ConfigError(
            f"peak={load.peak:g}: needs {chosen.nodes} nodes of {chosen.rate:g} messages/s, and more than "
            f"{MAX_MEMBERS} are not planned; check the figures"
        )
    idle = max(0, chosen.nodes - load.queues) if load.queues else 0
    share = math.ceil(load.queues / chosen.nodes) / load.queues if load.queues else 0.0
    busiest = load.peak * share
    return ConsumerFigures(
        chosen, other, chosen.nodes, idle, busiest, tuple(_warnings(load, chosen, other, idle, busiest))
    )


def way(load: ConsumerLoad, workers: MemberWorkers) -> Way:
    """Return the figures of one kind of workers."""
    # In a process only one thread at a time executes Python, regardless of the node's number of cores.
    cores = 1 if workers is MemberWorkers.threads else load.cores
    wanted = math.ceil(cores * load.wall_ms / load.cpu_ms - ROUNDING)
    concurrency = max(1, min(wanted, MAX_CONCURRENCY))
    rates = {
        "cpu": cores / load.cpu_ms * 1000,
        "concurrency": concurrency / load.wall_ms * 1000,
        "client": float(CLIENT_RATES[workers]),
    }
    # A concurrency that was rounded up gives a little more than the cores do, so `cpu` wins a draw.
    bound_by = min(rates, key=lambda name: rates[name])
    rate = rates[bound_by]
    nodes = max(1, math.ceil(load.peak / (rate * (1 - load.headroom)) - ROUNDING))
    return Way(workers, cores, concurrency, rate, bound_by, nodes)


def _warnings(load: ConsumerLoad, chosen: Way, other: Way, idle: int, busiest: float) -> Iterator[str]:
    members = chosen.nodes
    if idle:
        yield (
            f"{members} members share {load.queues} queues, and {idle} of them would get none; give the topic at least "
            f"{members} queues, or relay it to a topic that has them"
        )
    elif busiest > chosen.rate:
        yield (
            f"{load.queues} queues are no multiple of {members} members: the busiest member gets {busiest:,.0f} "
            f"messages/s and can take {chosen.rate:,.0f}; give the topic {_multiple(load.queues, members)} queues"
        )
    if chosen.bound_by == "concurrency":
        yield (
            f"{MAX_CONCURRENCY} handlers at a time wait {load.io_ms:g} ms for each message and leave cores idle; write "
            "the handler as `async def`, or start several members on a node"
        )
    elif chosen.bound_by == "client":
        yield (
            f"the handler is so quick that the client's own work is the limit, about {chosen.rate:,.0f} messages/s in "
            f"{chosen.workers}; an `async def` handler takes several times as many"
        )
    if chosen.workers is MemberWorkers.processes and chosen.concurrency > 2 * load.cores:
        each = math.ceil(chosen.concurrency / load.cores)
        yield (
            f"{chosen.concurrency} processes take about {chosen.concurrency * PROCESS_MIB / 1024:,.1f} GiB; "
            f"{load.cores} members on a node with {each} threads each do the same for less, and need "
            f"{members * load.cores} queues"
        )
    if chosen.workers is MemberWorkers.threads and load.cores > 1 and members > 1:
        yield (f"{chosen.workers} use one of a node's {load.cores} cores; the other members may run on the same node")


def _multiple(queues: int, members: int) -> int:
    """Return the smallest multiple of the members that is not less than the queues."""
    return math.ceil(queues / members) * members
