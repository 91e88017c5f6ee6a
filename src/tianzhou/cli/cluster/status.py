"""`status`: the brokers of a cluster and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.admin.copy_faults import copy_faults
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    Tone,
    WatchOption,
    local_time,
    print_json,
    print_line,
    print_note,
    print_rows,
    watched,
)
from tianzhou.cli.topics import with_admin
from tianzhou.escaping import shown

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.cluster import BrokerStatus
    from tianzhou.admin.replicas import Lag

ClusterOption = Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster's brokers.")]

_LONGEST_FAULT = 2_000
"""Maximum characters of a fault that are shown."""


def status(
    cluster: ClusterOption = None,
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show every broker: where it listens, since when it runs, what goes in and out, how full its disk is.

    Where brokers have slaves or are a group: who follows whom, in which term, and how far behind. Ends with 1 when a
    broker does not answer, says that some of its work fails, or runs with tables rebuilt from its log; and when a group
    has no leader, a master too few copies, a member or slave follows no further, or two masters have one name: the
    first lines say which.

    Example: tianzhou status -n 127.0.0.1:9876
    """

    async def work(admin: Admin) -> bool:
        async def look() -> bool:
            return show(admin.cluster.name_servers, await admin.cluster.status(cluster), output)

        return await watched(look, watch, output)

    if not with_admin(namesrv, tls, work):
        raise typer.Exit(1)


def show(name_servers: list[str], brokers: list[BrokerStatus], output: Output) -> bool:
    """Print the brokers. Return whether none has a fault."""
    faults = copy_faults(brokers)
    if output is Output.json:
        print_json(
            {
                "name_servers": name_servers,
                "faults": [fault.as_json() for fault in faults],
                "brokers": [document(one) for one in brokers],
            }
        )
    else:
        for fault in faults:
            print_line(shown(fault.text, _LONGEST_FAULT))
        print_line(f"name server {', '.join(name_servers)}")
        print_line("")
        columns = ["broker", "id", "cluster", "address", "version", "since", "in/s", "out/s", "disk"]
        rows = [_cells(one) for one in brokers]
        if any(not one.is_master or one.membership for one in brokers):
            columns += ["role", "behind"]
            rows = [[*row, *copy_cells(one)] for row, one in zip(rows, brokers, strict=True)]
        print_rows(columns, rows, output, [tone_of(one) for one in brokers])
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
    for one in brokers:
        if one.rebuilt_state:
            print_note(
                f"{one.broker_name}: it had lost {shown(one.rebuilt_state)}, and rebuilt its tables from the log; "
                "complete them, then delete config/rebuiltState.json in its store"
            )
        if one.damaged_state_files:
            print_note(f"{one.broker_name}: damaged state files are kept: {shown(one.damaged_state_files)}")
    return not (silent or ill or faults or any(one.rebuilt_state for one in brokers))


def tone_of(one: BrokerStatus) -> Tone | None:
    """Return the colour of a broker's row: bad if it does not answer, doubtful if some of its work fails."""
    return Tone.bad if one.error is not None else Tone.doubtful if one.troubles else None


def _cells(one: BrokerStatus) -> list[object]:
    return [
        one.broker_name,
        one.broker_id,
        one.cluster,
        one.address,
        f"{one.version} (Tianzhou {one.tianzhou_version})" if one.tianzhou_version else one.version or None,
        local_time(since_ms(one)),
        one.put_tps,
        one.get_tps,
        None if one.disk_ratio < 0 else f"{one.disk_ratio:.0%}",
    ]


def copy_cells(one: BrokerStatus) -> list[object]:
    """Return the role of a broker, and the lag of its copy of the log; None if unknown."""
    behind = None if one.lag is None else _lag_text(one.lag)
    if (member := one.membership) is not None:
        of = f" of {member.leader}" if member.role == "follower" and member.leader else ""
        return [f"{member.member}: {member.role}{of} in term {member.term}", behind]
    if one.is_master:
        return ["master", None]
    return [f"slave of {one.follows}" if one.follows else "slave", behind]


def _lag_text(lag: Lag) -> str:
    if not lag.lag_bytes:
        return "0"
    about = [
        *([f"~{lag.messages} messages"] if lag.messages is not None else []),
        *([f"~{lag.seconds:.1f} s"] if lag.seconds is not None else []),
    ]
    return ", ".join([f"{lag.lag_bytes} bytes", *about])


def since_ms(one: BrokerStatus) -> int:
    """Return the start of a broker, milliseconds since the epoch; 0 if it does not report it."""
    text = one.runtime.get("bootTimestamp", "")
    return int(text) if text.isdigit() else 0


def document(one: BrokerStatus) -> dict[str, object]:
    """Return a broker process for JSON."""
    return {
        "broker": one.broker_name,
        "id": one.broker_id,
        "cluster": one.cluster,
        "address": one.address,
        "version": one.version or None,
        "tianzhou_version": one.tianzhou_version or None,
        "refused": one.refused,
        "since_ms": since_ms(one) or None,
        "in_per_second": one.put_tps,
        "out_per_second": one.get_tps,
        "disk_ratio": None if one.disk_ratio < 0 else one.disk_ratio,
        "role": one.role,
        "member": member.member if (member := one.membership) else None,
        "term": member.term if member else None,
        "leader": member.leader or None if member else None,
        "follows": one.follows or None,
        "lag": None
        if one.lag is None
        else {"bytes": one.lag.lag_bytes, "messages": one.lag.messages, "seconds": one.lag.seconds},
        "slaves": []
        if one.copies is None
        else [
            {"address": each.addr, "bytes_behind": each.diff, "in_sync": each.in_sync}
            for each in one.copies.ha_connection_info
        ],
        "error": one.error,
        "rebuilt_state": one.rebuilt_state or None,
        "damaged_state_files": one.damaged_state_files or None,
        "troubles": [
            {"task": trouble.task, "why": trouble.why, "count": trouble.count, "since_ms": trouble.since_ms}
            for trouble in one.troubles
        ],
    }
