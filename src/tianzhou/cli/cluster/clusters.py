"""`cluster list`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    Tone,
    WatchingCommand,
    WatchOption,
    print_json,
    print_line,
    print_rows,
    watched,
)
from tianzhou.cli.topics import with_admin

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus

COLUMNS = ("cluster", "brokers", "masters", "slaves", "silent", "in/s", "out/s")

app = typer.Typer(
    help="Clusters: list.",
    epilog="Example: tianzhou cluster list",
    no_args_is_help=True,
)


@app.callback()
def clusters() -> None:
    """Clusters: list."""


@app.command("list", cls=WatchingCommand)
def list_clusters(
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List clusters: how many brokers each has, how many of them answer, what goes in and out.

    Example: tianzhou cluster list -n 127.0.0.1:9876
    """

    async def work(admin: Admin) -> None:
        async def look() -> None:
            _show(admin.cluster.name_servers, await admin.cluster.status(), output)

        await watched(look, watch, output)

    with_admin(namesrv, tls, work)


def by_cluster(brokers: Iterable[BrokerStatus]) -> dict[str, list[BrokerStatus]]:
    """Return broker processes by their cluster, ordered by name."""
    found: dict[str, list[BrokerStatus]] = {}
    for one in sorted(brokers, key=lambda one: one.cluster):
        found.setdefault(one.cluster, []).append(one)
    return found


def row(name: str, brokers: list[BrokerStatus]) -> tuple[object, ...]:
    """Return a cluster under `COLUMNS`.

    Args:
        name: name of the cluster.
        brokers: its processes.
    """
    masters = sum(one.is_master for one in brokers)
    silent = sum(one.error is not None for one in brokers)
    names = {one.broker_name for one in brokers}
    taken_in, given_out = sum(one.put_tps for one in brokers), sum(one.get_tps for one in brokers)
    return name, len(names), masters, len(brokers) - masters, silent, taken_in, given_out


def _show(name_servers: list[str], brokers: list[BrokerStatus], output: Output) -> None:
    found = by_cluster(brokers)
    rows = [row(name, members) for name, members in found.items()]
    if output is Output.json:
        print_json(
            {
                "name_servers": name_servers,
                "clusters": [
                    {
                        "cluster": name,
                        "brokers": sorted({one.broker_name for one in members}),
                        "masters": masters,
                        "slaves": slaves,
                        "silent": silent,
                        "in_per_second": taken_in,
                        "out_per_second": given_out,
                    }
                    for (name, _, masters, slaves, silent, taken_in, given_out), members in zip(
                        rows, found.values(), strict=True
                    )
                ],
            }
        )
        return
    print_line(f"name server {', '.join(name_servers)}")
    print_line("")
    print_rows(COLUMNS, rows, output, [Tone.bad if silent else None for _, _, _, _, silent, _, _ in rows])
