"""`limit set|list|delete`: limits of senders, which brokers enforce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    local_time,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.plan.brokers import measured_rate
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ConfigError
from tianzhou.escaping import shown
from tianzhou.model.send_limit import LimitScope, SendLimit, limit_of

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.send_limits import LimitStatus

DEFAULT_HEADROOM: float = 40
"""Headroom in percent of a measured rate, as in `tianzhou plan`."""

app = typer.Typer(
    help="Limits of senders: set, list, delete.",
    epilog="Example: tianzhou limit set --topic orders --rate 500 --burst 1000",
    no_args_is_help=True,
)
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="Topic; '*' for each one without a limit of its own.")
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Producer group; '*' for each other one.")
]
ClientOption = Annotated[
    str | None, typer.Option("--client", metavar="NAME", help="IP address or account; '*' for each other client.")
]
BrokerOption = Annotated[str | None, typer.Option("-b", "--broker", help="This broker name alone; default: all.")]


@app.command("set")
def set_limit(
    topic: TopicOption = None,
    group: GroupOption = None,
    client: ClientOption = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="Messages a second, at each broker.")] = None,
    burst: Annotated[float | None, typer.Option(metavar="N", help="Messages at once; default: those of 1 s.")] = None,
    rate_bytes: Annotated[float | None, typer.Option("--bytes", metavar="N", help="Bytes of bodies a second.")] = None,
    burst_bytes: Annotated[
        float | None, typer.Option("--bytes-burst", metavar="N", help="Bytes at once; default: those of 1 s.")
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of --rate, of a run: tianzhou bench produce -o json > FILE"),
    ] = None,
    headroom: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help=f"What is left free of a measured rate; default: {DEFAULT_HEADROOM:g}."),
    ] = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Limit what a topic, a producer group or a client may send; brokers refuse more with SYSTEM_BUSY.

    Example: tianzhou limit set --topic orders --rate 500 --burst 1000
    """
    scope, name = scope_of(topic, group, client)
    if measured is not None and rate is not None:
        raise ConfigError("--rate and --measured exclude each other; give one")
    if headroom is not None and measured is None:
        raise ConfigError(f"--headroom {headroom:g} has an effect with --measured only; give both, or neither")
    if measured is None and rate is None and rate_bytes is None:
        raise ConfigError("the limit has no rate; give --rate, --bytes or --measured")

    run_rate = None if measured is None else measured_rate(measured)
    left_free = DEFAULT_HEADROOM if headroom is None else headroom

    async def work(admin: Admin) -> tuple[SendLimit, list[str]]:
        limited = rate
        if run_rate is not None and measured is not None:
            brokers = 1 if is_of_one_broker(measured) else len(await admin.cluster.masters())
            limited = rate_within(run_rate, left_free, brokers)
        limit = limit_of(scope, name, limited, burst, rate_bytes, burst_bytes)
        return limit, await admin.send_limits.set(limit, broker_name=broker)

    limit, brokers = with_admin(namesrv, tls, work)
    if output is Output.json:
        print_json({**document(limit), "brokers": brokers})
    else:
        print_line(f"{limit}: {limit.text} at {', '.join(brokers)}{'' if len(brokers) == 1 else ', each'}")


@app.command("list")
def list_limits(
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the limits of senders, and how many messages each has refused since its broker started.

    Example: tianzhou limit list
    """
    found = with_admin(namesrv, tls, lambda admin: admin.send_limits.list(broker))
    if output is Output.json:
        print_json([status_document(one) for one in found])
    elif not found:
        print_note("no sender is limited")
    else:
        columns = ("broker", "limits", "name", "messages/s", "burst", "bytes/s", "burst bytes", "refused", "last")
        print_rows(columns, [_cells(one) for one in found], output)


@app.command("delete")
def delete_limit(
    topic: TopicOption = None,
    group: GroupOption = None,
    client: ClientOption = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Delete the limit of a topic, a producer group or a client.

    Example: tianzhou limit delete --topic orders
    """
    scope, name = scope_of(topic, group, client)
    brokers = with_admin(namesrv, tls, lambda admin: admin.send_limits.delete(scope, name, broker_name=broker))
    if output is Output.json:
        print_json({"scope": scope.value, "name": name, "brokers": brokers})
    else:
        print_line(f"{scope} {shown(name)}: no limit any more at {', '.join(brokers)}")


def scope_of(topic: str | None, group: str | None, client: str | None) -> tuple[LimitScope, str]:
    """Return the scope and the name that the options give.

    Raises:
        ConfigError: none or several of the options are given.
    """
    given = {LimitScope.TOPIC: topic, LimitScope.GROUP: group, LimitScope.CLIENT: client}
    found = [(scope, name) for scope, name in given.items() if name is not None]
    if len(found) != 1:
        raise ConfigError("give one of --topic, --group and --client; a limit of each is a command of its own")
    return found[0]


def rate_within(measured: float, headroom: float, brokers: int) -> float:
    """Return the rate for each broker with a headroom below a measured rate.

    Args:
        measured: messages per second of the run.
        headroom: headroom in percent, from 0 to below 100.
        brokers: number of brokers that received the messages of the run.

    Raises:
        ConfigError: the headroom is out of its range.
    """
    if not 0 <= headroom < 100:
        raise ConfigError(f"--headroom {headroom:g}: expected a percentage from 0 to below 100")
    rate = measured * (100 - headroom) / 100 / brokers
    return float(int(rate)) if rate >= 1 else rate


def is_of_one_broker(run: Path) -> bool:
    """Whether a run of `tianzhou bench` had an embedded server, which is one broker."""
    try:
        return json.loads(run.read_text(encoding="utf-8")).get("embedded_mode") is not None
    except (OSError, ValueError, AttributeError):
        return False


def document(limit: SendLimit) -> dict[str, Any]:
    """Return a limit for JSON."""
    return {
        "scope": limit.scope.value,
        "name": limit.name,
        "rate": limit.rate or None,
        "burst": limit.burst or None,
        "bytes": limit.rate_bytes or None,
        "bytes_burst": limit.burst_bytes or None,
    }


def status_document(one: LimitStatus) -> dict[str, Any]:
    """Return a limit at a broker for JSON."""
    refused = {
        "refused": one.refused, "last_refused": one.last_name or None, "last_refused_ms": one.last_refused_ms or None,
    }  # fmt: skip
    return {"broker": one.broker_name, **document(one.limit), **refused}


def _cells(one: LimitStatus) -> tuple[object, ...]:
    limit = one.limit
    numbers = [f"{value:.12g}" if value else "-" for value in (limit.rate, limit.burst)]
    numbers += [f"{value:.12g}" if value else "-" for value in (limit.rate_bytes, limit.burst_bytes)]
    last = f"{shown(one.last_name)} {local_time(one.last_refused_ms)}" if one.refused else "-"
    return one.broker_name, limit.scope.value, shown(limit.name), *numbers, one.refused, last
