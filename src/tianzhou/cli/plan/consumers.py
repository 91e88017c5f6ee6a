"""`plan consumers`: how many members of a group a load needs, and whether handlers run in threads or processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.bench.consumer_capacity import ConsumerFigures, ConsumerLoad, MemberWorkers, Way, plan_consumers
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_note,
    print_rows,
)
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.wire.bodies.handler_times import HandlerTimes

MIN_CPU_MS = 0.0001
"""Minimum processor time of a handler for one message, in milliseconds."""


def consumers(
    peak: Annotated[float, typer.Option(metavar="N", help="Messages a second of the group at the peak.")],
    cpu_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Milliseconds of a processor that the handler takes a message.")
    ] = None,
    io_ms: Annotated[float, typer.Option(metavar="MS", help="Milliseconds that the handler waits a message.")] = 0,
    cores: Annotated[
        int | None, typer.Option(metavar="N", help="Cores of a node; default with --measured: those of the members.")
    ] = None,
    queues: Annotated[
        int, typer.Option(metavar="N", help="Queues of the topic; 0: not known, or asked with --measured.")
    ] = 0,
    headroom: Annotated[float, typer.Option(metavar="PERCENT", help="What is left free of a node's rate.")] = 40,
    measured: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Ask the group's running members for their handlers' times.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show how many consumers a load needs, and whether handlers belong into threads or processes.

    docs/howto/planning.md has the arithmetic.

    Example: tianzhou plan consumers --peak 5000 --cpu-ms 2 --io-ms 18 --cores 8
    """
    source = "given"
    if measured is not None:
        if cpu_ms is not None or io_ms:
            raise ConfigError("--measured and --cpu-ms or --io-ms exclude each other; leave one out")
        found = _ask(measured, namesrv, tls)
        cpu_ms, io_ms = max(found.times.cpu_ms, MIN_CPU_MS), found.times.io_ms
        cores, queues = cores or found.cores, queues or found.queues
        source = f"{found.times.messages:,} messages in {found.members} members, run in {found.times.runs_in}"
    if cpu_ms is None or cores is None:
        raise ConfigError("--cpu-ms and --cores are needed; or name a running group by --measured GROUP")
    load = ConsumerLoad(
        peak=peak, cpu_ms=cpu_ms, io_ms=io_ms, cores=cores, queues=queues, headroom=headroom / 100
    )  # fmt: skip
    figures = plan_consumers(load)
    if output is Output.json:
        document = figures.document()
        print_json(document | {"cpu_ms": cpu_ms, "io_ms": io_ms, "node_cores": cores, "topic_queues": queues})
        return
    print_rows(("figure", "value", "why"), rows(load, figures, source), output)
    for text in figures.warnings:
        print_note(f"note: {text}")


def rows(load: ConsumerLoad, figures: ConsumerFigures, source: str) -> list[tuple[Any, ...]]:
    """Return the table for text output."""
    chosen, other = figures.chosen, figures.other
    return [
        ("handler", f"{load.cpu_ms:.4g} + {load.io_ms:.4g} ms", f"processor + waiting for a message, {source}"),
        ("workers", chosen.workers.value, _take(chosen)),
        ("rate of a node", f"{chosen.rate:,.0f}/s", _rate_reason(load, chosen)),
        ("nodes", chosen.nodes, f"{load.peak:,.0f}/s at the peak, {load.headroom:.0%} left free; one member on each"),
        ("queues", figures.queues, _queues_reason(load, figures)),
        (f"with {other.workers}", f"{other.nodes} nodes", f"{other.concurrency} at a time, {other.rate:,.0f}/s a node"),
    ]


def _take(way: Way) -> str:
    if way.workers is MemberWorkers.threads:
        return f"consume_concurrency={way.concurrency}; a plain function or an async def, which share one core"
    call = f"in_processes(handler, {way.concurrency})"
    return f"{call}, consume_concurrency={way.concurrency}; processes use all {way.cores} cores"


def _rate_reason(load: ConsumerLoad, way: Way) -> str:
    cores = f"{way.cores} core{'' if way.cores == 1 else 's'}"
    return {
        "cpu": f"{cores} / {load.cpu_ms:.4g} ms",
        "concurrency": f"{way.concurrency} at a time / {load.wall_ms:.4g} ms",
        "client": "the client's own work for a message",
    }[way.bound_by]


def _queues_reason(load: ConsumerLoad, figures: ConsumerFigures) -> str:
    text = "at least one for each member"
    if not load.queues:
        return text
    return f"{text}; the topic has {load.queues}" + (
        f", too few by {figures.idle_members}" if figures.idle_members else ""
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times, cores and queues that the running members of a group report.

    Attributes:
        times: mean times of their handlers.
        cores: smallest number of cores that a member may use; None when no member reports it.
        members: number of members that report times.
        queues: number of queues of the group's topic; the smallest number if it has several topics.
    """

    times: HandlerTimes
    cores: int | None
    members: int
    queues: int


def _ask(group: str, namesrv: str, tls: bool | None) -> Measurement:
    from tianzhou.cli.topics import with_admin

    return with_admin(namesrv, tls, lambda admin: measure(admin, group))


async def measure(admin: Admin, group: str) -> Measurement:
    """Query the running members of a group for their handlers' times.

    Args:
        admin: the client.
        group: the consumer group.

    Raises:
        ConfigError: the group has no member, or none that reports times.
    """
    import asyncio
    from collections import Counter

    from tianzhou.wire.bodies import handler_times
    from tianzhou.wire.bodies.clients import ConsumerRunningInfo

    connection = await admin.groups.connections(group)
    members = [] if connection is None else [one.client_id for one in connection.connection_set]
    if not members:
        raise ConfigError(f"--measured {group}: no member is connected; start one, or give --cpu-ms and --io-ms")
    answers = await asyncio.gather(*(admin.groups.running_info(group, one) for one in members), return_exceptions=True)
    infos = [one.user_consumer_info for one in answers if isinstance(one, ConsumerRunningInfo)]
    reporting = [found for one in infos if (found := handler_times.read(one))]
    times = handler_times.merged(one for found in reporting for one in found.values())
    if times is None:
        raise ConfigError(
            f"--measured {group}: none of its {len(members)} members reports times of a handler; Tianzhou's push "
            "consumers do once a handler was called; else give --cpu-ms and --io-ms"
        )
    cores = [count for one in infos if (count := handler_times.read_cores(one)) is not None]
    lag = await admin.groups.lag(group)
    queues = Counter(one.queue.topic for one in lag.queues if one.queue.topic in {t for f in reporting for t in f})
    return Measurement(times, min(cores, default=None), len(reporting), min(queues.values(), default=0))
