"""`drain`: the command."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.drain.leftovers import NOTICED_S, DrainVerdict, Leftovers, judge
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    output_closed,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin

LEFT = 1
"""Exit code if it is not safe to stop the broker yet."""
LOOK_EVERY_S = 5.0


def drain(
    broker: Annotated[str, typer.Option("-b", "--broker", metavar="NAME", help="The broker's name.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is safe to stop the broker.")] = False,
    timeout_s: Annotated[
        int | None, typer.Option("--timeout", metavar="SECONDS", min=1, help="With --wait: for so long at most.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="GROUP", help="Do not wait for this group; repeatable.")
    ] = None,
    notice_s: Annotated[
        int, typer.Option("--notice", metavar="SECONDS", min=0, help="Time that producers get to look for routes.")
    ] = NOTICED_S,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, only say what is on it.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let producers write to the broker again.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have producers leave a broker, and say what consumers and transactions still need of it.

    All name servers take the permission to write from its topics, as `mqadmin wipeWritePerm` does; consumers read on.
    Exit code 0 says that it is safe to stop the broker, 1 that something is left. With --wait it looks every 5 s until
    nothing is. A broker that has stopped and starts again has its permission back, else --undo gives it. The members of
    a DLedger group keep it taken, whoever of them leads, until --undo gives it.

    Example: tianzhou drain -b broker-a --wait && systemctl stop tianzhou-broker
    """
    if undo and (wait or dry_run):
        raise ConfigError("--undo lets producers come back; give it without --wait and --dry-run")
    if timeout_s is not None and not wait:
        raise ConfigError(f"--timeout {timeout_s}: there is nothing to wait for without --wait; give that too")

    async def work(admin: Admin) -> bool:
        from tianzhou.cli.drain.looking import master_of, set_permission_of_group

        address = await master_of(admin, broker)
        if undo or not dry_run:
            note = await set_permission_of_group(admin, address, writable=undo)
            if note:
                print_note(note)
        if undo:
            _show_permission(broker, await admin.cluster.add_write_perm(broker), output, given=True)
            return True
        if not dry_run:
            _show_permission(broker, await admin.cluster.wipe_write_perm(broker), output, given=False)
        return await _looks(admin, broker, frozenset(ignore or ()), 0 if dry_run else notice_s, wait, timeout_s, output)

    if not with_admin(namesrv, tls, work):
        raise typer.Exit(LEFT)


async def _looks(
    admin: Admin,
    broker: str,
    ignored: frozenset[str],
    notice_s: float,
    wait: bool,
    timeout_s: float | None,
    output: Output,
) -> bool:
    """Check once, or until the broker is drained or the time is up. Return whether it is drained."""
    from tianzhou.cli.drain.looking import look

    began = time.monotonic()
    while True:
        seen = await look(admin, broker)
        passed = time.monotonic() - began
        verdict = judge(seen, ignored, notice_left_s=notice_s - passed)
        _show(seen, verdict, output)
        over = timeout_s is not None and passed + LOOK_EVERY_S > timeout_s
        if verdict.drained or not wait or over or output_closed():
            return verdict.drained
        if seen.writable:
            # The broker has registered changed topics, which restored the permission.
            await admin.cluster.wipe_write_perm(broker)
        pause = LOOK_EVERY_S if passed >= notice_s else min(LOOK_EVERY_S, notice_s - passed)
        await asyncio.sleep(max(pause, 0.1))


def _show_permission(broker: str, topics: dict[str, int], output: Output, *, given: bool) -> None:
    for name_server, count in topics.items():
        if output is Output.text:
            what = "lets producers write to" if given else "has taken the permission to write from"
            print_note(f"name server {name_server} {what} {count} topics of {broker}")
    if output is Output.json and given:
        print_json({"broker": broker, "topics": topics, "write": given})


def _show(seen: Leftovers, verdict: DrainVerdict, output: Output) -> None:
    if output is Output.json:
        print_json(
            {
                "broker": seen.broker_name,
                "address": seen.address,
                "writable_at": list(seen.writable),
                "in_per_second": seen.in_per_second,
                "groups": [asdict(one) | {"ignored": one.group in verdict.ignored} for one in seen.groups],
                "delayed": seen.delayed,
                "half": seen.half,
                "half_unread": seen.half_unread,
                "pop": seen.pop,
                "drained": verdict.drained,
                "left": list(verdict.reasons),
            }
        )
        return
    print_fields(
        {
            "broker": f"{seen.broker_name} at {seen.address}",
            "in/s": seen.in_per_second,
            "delayed": seen.delayed or "none",
            "half messages": seen.half + seen.half_unread or "none",
            "pop": "not known of this broker" if seen.pop is None else seen.pop or "none",
        },
        output,
    )
    if seen.groups:
        print_rows(("group", "lag", "members"), [(one.group, one.lag, one.members) for one in seen.groups], output)
    for reason in verdict.reasons:
        print_line(f"left: {reason}")
    if verdict.ignored and verdict.drained:
        print_note(f"messages for {', '.join(verdict.ignored)} stay on it, as --ignore says")
    print_line(f"safe to stop  {'yes' if verdict.drained else 'no'}")
