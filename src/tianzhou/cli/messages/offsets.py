"""`offset show|reset|clone`: offsets of consumer groups, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.groups import GroupArgument, check_group, destination_of
from tianzhou.cli.messages.looking import chosen
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import with_admin

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.progress import OffsetChange

app = typer.Typer(
    help="Offsets of consumer groups: show, reset, clone.",
    epilog="Example: tianzhou offset show billing -t orders",
    no_args_is_help=True,
)
TopicOption = Annotated[str, typer.Option("-t", "--topic", help="The topic.")]


@app.command()
def show(
    group: GroupArgument,
    topic: TopicOption,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a group's offset in every queue of a topic, beside what the queue holds.

    Where it has none, brokers say 0 as long as the queue holds its first message.

    Example: tianzhou offset show billing -t orders
    """

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        held = (await admin.topics.stats(topic)).offset_table
        await check_group(admin, group)
        changes = await admin.groups.reset(group, topic, to_latest=True, dry_run=True)
        return [
            (one.queue.broker_name, one.queue.queue_id, one.before, held[one.queue].min_offset, one.after)
            for one in changes
            if one.queue in held
        ]

    columns = ("broker", "queue", "offset", "min offset", "max offset")
    print_rows(columns, with_admin(namesrv, tls, work, topic=topic), output)


@app.command()
def reset(
    group: GroupArgument,
    topic: TopicOption,
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as 2026-01-31T08:00:00.")],
    queue: Annotated[
        list[str] | None, typer.Option(metavar="[BROKER:]ID", help="Only this queue; can be given several times.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have a group continue elsewhere in a topic or in some of its queues, online or not.

    Example: tianzhou offset reset billing -t orders --queue broker-a:0 --to 42 --dry-run
    """
    destination = destination_of(to)

    async def work(admin: Admin) -> list[OffsetChange]:
        held = sorted((await admin.topics.stats(topic)).offset_table)
        queues = chosen(held, queue) if queue else None
        return await admin.groups.reset(group, topic, queues=queues, dry_run=dry_run, **destination)

    changes = with_admin(namesrv, tls, work, topic=topic)
    print_rows(
        ("topic", "broker", "queue", "before", "after"),
        [(one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.before, one.after) for one in changes],
        output,
    )
    if dry_run and output is Output.text:
        print_note("nothing was changed; leave out --dry-run to do it")


@app.command()
def clone(
    source: Annotated[str, typer.Argument(help="The group that is copied.")],
    target: Annotated[str, typer.Argument(help="The group that gets the offsets.")],
    topic: TopicOption,
    offline: Annotated[bool, typer.Option("--offline", help="The source may be without members.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Copy how far a group has consumed a topic to another group.

    Example: tianzhou offset clone billing billing-2 -t orders --offline
    """

    async def work(admin: Admin) -> None:
        await admin.topics.stats(topic)
        await check_group(admin, source)
        await admin.groups.clone_offsets(source, target, topic, offline=offline)

    with_admin(namesrv, tls, work, topic=topic)
    if output is Output.json:
        print_json({"source": source, "target": target, "topic": topic})
    else:
        print_line(f"group {target} continues in topic {topic} where group {source} is")
