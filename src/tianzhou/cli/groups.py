"""`group list|describe|lag|reset`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

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
    local_time,
    objects,
    print_fields,
    print_json,
    print_line,
    print_names,
    print_note,
    print_rows,
    watched,
)
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.progress import GroupLag

app = typer.Typer(
    help="Consumer groups: list, describe, lag, reset.",
    epilog="Example: tianzhou group lag billing",
    no_args_is_help=True,
)
GroupArgument = Annotated[str, typer.Argument(help="The consumer group.")]


@app.command("list")
def list_groups(
    namesrv: NamesrvOption = DEFAULT_NAMESRV, tls: TlsOption = None, output: OutputOption = Output.text
) -> None:
    """List consumer groups.

    Example: tianzhou group list
    """
    names = with_admin(namesrv, tls, lambda admin: admin.groups.names())
    print_names(names, output, "no groups yet; a group appears when its first consumer connects")


@app.command()
def describe(
    group: GroupArgument,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a group's members, their subscriptions and its settings.

    Example: tianzhou group describe billing
    """

    async def work(admin: Admin) -> tuple[Any, Any]:
        return await admin.groups.config(group), await admin.groups.connections(group)

    configs, connection = with_admin(namesrv, tls, work)
    if not configs:
        raise _unknown(group)
    members = [] if connection is None else connection.connection_set
    subscriptions = {} if connection is None else connection.subscription_table
    if output is Output.json:
        print_json(
            {
                "group": group,
                "members": [{"client_id": m.client_id, "address": m.client_addr} for m in members],
                "subscriptions": {topic: data.sub_string for topic, data in subscriptions.items()},
                "settings": {
                    broker: {"retry_max_times": c.retry_max_times, "consume_enable": c.consume_enable}
                    for broker, c in configs.items()
                },
            }
        )
        return
    subscribed = ", ".join(f"{topic} ({data.sub_string})" for topic, data in subscriptions.items())
    retries = sorted({config.retry_max_times for config in configs.values()})
    fields = {"group": group, "members": len(members), "subscribed": subscribed or "-"}
    print_fields({**fields, "retries": ", ".join(map(str, retries)), "brokers": ", ".join(configs)}, output)
    for member in members:
        print_line(f"member {member.client_id} at {member.client_addr}")


@app.command(cls=WatchingCommand)
def lag(
    group: GroupArgument,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show how far a group is behind, queue by queue.

    Example: tianzhou group lag billing
    """

    async def work(admin: Admin) -> None:
        async def look() -> None:
            found = await admin.groups.lag(group, topic, clients=True)
            if not found.queues and not await admin.groups.config(group):
                raise _unknown(group)
            _show_lag(found, topic, output)

        await watched(look, watch, output)

    with_admin(namesrv, tls, work, topic=topic)


def _show_lag(found: GroupLag, topic: str | None, output: Output) -> None:
    group = found.group
    rows = [
        (e.queue.topic, e.queue.broker_name, e.queue.queue_id, e.broker_offset, e.consumer_offset, e.lag, e.client_id)
        for e in found.queues
    ]
    columns = ("topic", "broker", "queue", "broker offset", "consumer offset", "lag", "member")
    if output is Output.json:
        queues = [
            row | {"last_timestamp": e.last_timestamp}
            for row, e in zip(objects(columns, rows), found.queues, strict=True)
        ]
        print_json({"group": group, "lag": found.total, "consume_tps": found.consume_tps, "queues": queues})
        return
    if not rows:
        where = f" of topic {topic}" if topic else ""
        print_note(f"group {group} has no offset{where} yet; a group has one after its first messages were consumed")
        return
    print_rows(columns, rows, output, [Tone.doubtful if entry.lag else None for entry in found.queues])
    newest = max((e.last_timestamp for e in found.queues), default=0)
    print_line(f"lag {found.total}, {found.consume_tps:.1f} messages/s, last consumed {local_time(newest) or 'never'}")


@app.command()
def reset(
    group: GroupArgument,
    topic: Annotated[str, typer.Option("-t", "--topic", help="The topic.")],
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as 2026-01-31T08:00:00.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have a group continue elsewhere in a topic, online or not.

    Example: tianzhou group reset billing -t orders --to earliest --dry-run
    """
    destination = destination_of(to)
    changes = with_admin(namesrv, tls, lambda admin: admin.groups.reset(group, topic, dry_run=dry_run, **destination))
    print_rows(
        ("topic", "broker", "queue", "before", "after"),
        [(c.queue.topic, c.queue.broker_name, c.queue.queue_id, c.before, c.after) for c in changes],
        output,
    )
    if dry_run and output is Output.text:
        print_note("nothing was changed; leave out --dry-run to do it")


async def check_group(admin: Admin, group: str, others: Sequence[str] = ()) -> None:
    """Check that a broker knows a group.

    Args:
        admin: the client.
        group: name of the group.
        others: known groups in addition to those of brokers.

    Raises:
        ClientError: no broker knows the group. The error contains the most similar name.
    """
    known = [*await admin.groups.names(system=True), *others]
    if group not in known:
        from tianzhou.settings import nearest

        near = nearest(group, known)
        hint = f"did you mean {near}?" if near else "see: tianzhou group list"
        raise ClientError(f"group {group} is not known to any broker; {hint}")


def _unknown(group: str) -> ClientError:
    return ClientError(f"group {group} is not known to any broker; see: tianzhou group list")


def destination_of(text: str) -> dict[str, Any]:
    """Return the destination of a reset, as arguments of `Groups.reset`.

    Raises:
        ConfigError: the text has none of the accepted forms.
    """
    if text in ("earliest", "latest"):
        return {f"to_{text}": True}
    if text.isascii() and text.isdecimal():
        return {"to_offset": int(text)}
    try:
        return {"to_time_ms": int(dt.datetime.fromisoformat(text).timestamp() * 1000)}
    except ValueError:
        raise ConfigError(
            f"--to {text}: expected earliest, latest, an offset, or a time as 2026-01-31T08:00:00"
        ) from None
