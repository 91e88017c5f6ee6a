"""`status`: which brokers there are, and how they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
from tianzhou.cli.topics import with_admin
from tianzhou.escaping import shown

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(help=status.__doc__)(status)


def status(
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster's brokers.")] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show every broker: where it listens, since when it runs, what goes in and out, how full its disk is.

    Ends with 1 when a broker does not answer, or says that some of its work fails.

    Example: tianzhou status -n 127.0.0.1:9876
    """

    async def work(admin: Admin) -> tuple[list[str], list[BrokerStatus]]:
        return admin.cluster.name_servers, await admin.cluster.status(cluster)

    name_servers, brokers = with_admin(namesrv, tls, work)
    if output is Output.json:
        print_json({"name_servers": name_servers, "brokers": [_document(one) for one in brokers]})
    else:
        print_line(f"name server {', '.join(name_servers)}")
        print_line("")
        print_rows(
            ("broker", "id", "cluster", "address", "version", "since", "in/s", "out/s", "disk"),
            [
                (
                    one.broker_name,
                    one.broker_id,
                    one.cluster,
                    one.address,
                    f"{one.version} (Tianzhou {one.tianzhou_version})" if one.tianzhou_version else one.version or None,
                    local_time(_since(one)),
                    one.put_tps,
                    one.get_tps,
                    None if one.disk_ratio < 0 else f"{one.disk_ratio:.0%}",
                )
                for one in brokers
            ],
            output,
        )
    silent = [one for one in brokers if one.error is not None]
    for one in silent:
        print_note(f"{one.broker_name} does not answer: {one.error}")
    ill = [one for one in brokers if one.troubles]
    for one in ill:
        for trouble in one.troubles:
            print_note(
                f"{one.broker_name}: {shown(trouble.task)} fails since {local_time(trouble.since_ms)}, "
                f"{trouble.count} times in a row: {shown(trouble.why)}"
            )
    if silent or ill:
        raise typer.Exit(1)


def _since(one: BrokerStatus) -> int:
    text = one.runtime.get("bootTimestamp", "")
    return int(text) if text.isdigit() else 0


def _document(one: BrokerStatus) -> dict[str, object]:
    return {
        "broker": one.broker_name,
        "id": one.broker_id,
        "cluster": one.cluster,
        "address": one.address,
        "version": one.version or None,
        "tianzhou_version": one.tianzhou_version or None,
        "refused": one.refused,
        "since_ms": _since(one) or None,
        "in_per_second": one.put_tps,
        "out_per_second": one.get_tps,
        "disk_ratio": None if one.disk_ratio < 0 else one.disk_ratio,
        "error": one.error,
        "troubles": [
            {"task": trouble.task, "why": trouble.why, "count": trouble.count, "since_ms": trouble.since_ms}
            for trouble in one.troubles
        ],
    }
