"""`broker`, which starts a broker, and `broker list|show`, which show running ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.cluster.status import ClusterOption, copy_cells, document, since_ms, tone_of
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    WatchingCommand,
    WatchOption,
    local_time,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_rows,
    watched,
)
from tianzhou.cli.servers import broker
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ClientError, TianzhouError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus

COLUMNS = ("broker", "id", "cluster", "address", "version", "since", "state", "role", "behind")

app = typer.Typer(invoke_without_command=True, callback=broker)


@app.command("list", cls=WatchingCommand)
def list_brokers(
    cluster: ClusterOption = None,
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List broker processes: where they listen, and whether they answer; masters with their slaves.

    Example: tianzhou broker list -n 127.0.0.1:9876
    """

    async def work(admin: Admin) -> None:
        async def look() -> None:
            found = await admin.cluster.status(cluster)
            print_rows(COLUMNS, [row(one) for one in found], output, [tone_of(one) for one in found])

        await watched(look, watch, output)

    with_admin(namesrv, tls, work)


@app.command(cls=WatchingCommand)
def show(
    name: Annotated[str, typer.Argument(metavar="BROKER", help="Its name, or the address it listens on.")],
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a broker, with its slaves: what goes in and out, what it stores, topics, groups and producers.

    As JSON with the names of topics and groups, and with all that it reports about itself.

    Example: tianzhou broker show broker-a
    """

    async def work(admin: Admin) -> None:
        async def look() -> None:
            found = named(name, await admin.cluster.status())
            _show(found, await tables_of(admin, found[0]), output)

        await watched(look, watch, output)

    with_admin(namesrv, tls, work)


def row(one: BrokerStatus) -> tuple[object, ...]:
    """Return a broker process under `COLUMNS`."""
    state = "silent" if one.error is not None else "troubled" if one.troubles else "ok"
    role, behind = copy_cells(one)
    started = local_time(since_ms(one))
    where = (one.broker_name, one.broker_id, one.cluster, one.address)
    return (*where, one.version or None, started, state, role, behind)


def named(name: str, brokers: Sequence[BrokerStatus]) -> list[BrokerStatus]:
    """Return the processes of a broker, the master first.

    Args:
        name: the broker's name, or an address, which selects one process only.
        brokers: all processes.

    Raises:
        ClientError: there is no such broker. The error contains the most similar name.
    """
    found = [one for one in brokers if name in (one.broker_name, one.address)]
    if not found:
        from tianzhou.settings import nearest

        near = nearest(name, [text for one in brokers for text in (one.broker_name, one.address)])
        hint = f"did you mean {near}?" if near else "see: tianzhou broker list"
        raise ClientError(f"the name server knows no broker {name}; {hint}")
    return sorted(found, key=lambda one: (not one.is_master, one.broker_id))


async def tables_of(admin: Admin, one: BrokerStatus) -> dict[str, Any] | None:
    """Return topics, groups and producers of a broker; None if it does not answer.

    Args:
        admin: the client.
        one: the broker.
    """
    if one.error is not None:
        return None
    try:
        producers = await admin.servers.producers(one.address)
    except TianzhouError:
        producers = {}  # RocketMQ 4 does not support the request
    return {
        "topics": sorted(await admin.servers.topic_configs(one.address)),
        "groups": sorted(await admin.servers.group_configs(one.address)),
        "producer_groups": sorted(producers),
    }


def _show(found: Sequence[BrokerStatus], tables: dict[str, Any] | None, output: Output) -> None:
    first = found[0]
    if output is Output.json:
        processes = [{**document(one), "runtime": one.runtime} for one in found]
        print_json({"broker": first.broker_name, "cluster": first.cluster, "processes": processes, **(tables or {})})
        return
    fields: dict[str, object] = {"broker": first.broker_name, "cluster": first.cluster, "address": first.address}
    if tables is not None:
        fields |= {
            "version": f"{first.version} (Tianzhou {first.tianzhou_version})"
            if first.tianzhou_version
            else first.version,
            "since": local_time(since_ms(first)),
            "in/s": first.put_tps,
            "out/s": first.get_tps,
            "stored today": _number(first, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
            "log": _log_bytes(first),
            "oldest message": local_time(_number(first, "earliestMessageTimeStamp") or 0),
            "disk": None if first.disk_ratio < 0 else f"{first.disk_ratio:.0%}",
            "topics": len(tables["topics"]),
            "groups": len(tables["groups"]),
            "producer groups": len(tables["producer_groups"]),
        }
    print_fields(fields, output)
    print_line("")
    print_rows(COLUMNS, [row(one) for one in found], output, [tone_of(one) for one in found])
    for one in found:
        if one.error is not None:
            print_note(f"{one.address} does not answer: {one.error}")
        for trouble in one.troubles:
            print_note(f"{one.address}: {trouble.task} fails, {trouble.count} times in a row: {trouble.why}")


def _number(one: BrokerStatus, key: str, less: str = "") -> int | None:
    """Return a number that a broker reports, minus another one; None if it does not report them."""
    values = [one.runtime.get(name, "") for name in (key, less) if name]
    if not all(value.isascii() and value.removeprefix("-").isdecimal() and len(value) < 20 for value in values):
        return None
    return int(values[0]) - sum(map(int, values[1:]))


def _log_bytes(one: BrokerStatus) -> str | None:
    size = _number(one, "commitLogMaxOffset", "commitLogMinOffset")
    return None if size is None else f"{size / 2**20:.1f} MiB"
