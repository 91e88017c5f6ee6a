"""`dlq count|list|show|resend|export`: what groups have given up on, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.groups import check_group
from tianzhou.cli.messages.body_pieces import document_pieces
from tianzhou.cli.messages.message import (
    IdArgument,
    LimitOption,
    SinceOption,
    UntilOption,
    found_message,
    print_message,
    print_messages,
    times_of,
)
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    WatchingCommand,
    WatchOption,
    counted,
    print_json,
    print_json_pieces,
    print_line,
    print_note,
    print_rows,
    watched,
)
from tianzhou.cli.progress import progress
from tianzhou.cli.store.export_files import Format, FormatOption, format_of, need_pyarrow
from tianzhou.cli.topics import confirm, with_admin
from tianzhou.errors import ClientError
from tianzhou.escaping import shown

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.dead_letters import Resent
    from tianzhou.model import MessageExt

app = typer.Typer(
    help="Dead letters: count, list, show, resend, export.",
    epilog="Example: tianzhou dlq count",
    no_args_is_help=True,
)
SHOWN_FROM = 1_000
"""From so many dead letters on, a terminal shows how far sending them is."""
SHOWN_GROUPS = 10
"""Maximum number of groups of a topic that a line names."""
GroupArgument = Annotated[str, typer.Argument(help="The consumer group that gave up.")]


@app.command(cls=WatchingCommand)
def count(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", help="Which; all that have any without.")
    ] = None,
    watch: WatchOption = 0.0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Count the dead letters that brokers still hold, by group.

    Example: tianzhou dlq count billing
    """

    async def work(admin: Admin) -> None:
        for group in groups or ():
            await check_group(admin, group, await _groups_with_any(admin))

        async def look() -> None:
            names = groups or await _groups_with_any(admin)
            rows = [(group, await admin.dead_letters.count(group)) for group in names]
            if not rows and output is Output.text:
                print_note("no group has dead letters")
            else:
                print_rows(("group", "dead letters"), rows, output)

        await watched(look, watch, output)

    with_admin(namesrv, tls, work)


@app.command("list")
def list_letters(
    group: GroupArgument,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 64,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List dead letters of a group, the newest first; their ids are for `resend`.

    Example: tianzhou dlq list billing --since 2h
    """
    letters = with_admin(namesrv, tls, lambda admin: _letters(admin, group, since, until, limit))
    if not letters and output is Output.text:
        print_note(f"group {group} has no dead letter there")
        return
    print_messages(letters, output)


@app.command()
def show(
    group: GroupArgument,
    msg_id: IdArgument,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a dead letter of a group, with all it has, and which message it was.

    Example: tianzhou dlq show billing broker-a:0@7
    """
    from tianzhou.model.dead_letters import origin_id, origin_topic
    from tianzhou.model.names import dead_letter_topic

    async def work(admin: Admin) -> MessageExt:
        await check_group(admin, group, await _groups_with_any(admin))
        topic = dead_letter_topic(group)
        if not await admin.topics.exists(topic):
            raise ClientError(f"group {group} has no dead letters")
        return await found_message(admin, topic, msg_id)

    letter = with_admin(namesrv, tls, work)
    origin = {"group": group, "origin_topic": origin_topic(letter.properties), "origin_id": origin_id(letter)}
    if output is Output.json:
        print_json_pieces(document_pieces(letter, origin))
    else:
        print_message(letter, output, {name.replace("_", " "): text for name, text in origin.items()})


@app.command()
def export(
    group: GroupArgument,
    to: Annotated[Path | None, typer.Option(help="File to write; without it, JSON lines go to stdout.")] = None,
    form: FormatOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Write all dead letters of a group into a file, as JSON lines or Parquet; they stay where they are.

    With what each of them was: origin_topic and origin_id. The last line, on stderr, says how many there were.

    Example: tianzhou dlq export billing --to letters.parquet --since 2d
    """
    from tianzhou.cli.messages.letter_files import write_letters

    chosen, times = format_of(form, to), times_of(since, until)
    if chosen is Format.parquet:
        need_pyarrow()

    async def work(admin: Admin) -> int:
        await check_group(admin, group, await _groups_with_any(admin))
        return await write_letters(admin, group, to, chosen, **times)

    number = with_admin(namesrv, tls, work)
    if to is not None and output is Output.json:
        print_json({"group": group, "exported": number, "file": str(to)})
    print_note(f"{counted(number, 'dead letter')} of group {group} exported")


@app.command()
def resend(
    group: GroupArgument,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Only this one; can be given several times.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 10_000,
    to: Annotated[
        str | None,
        typer.Option("--to-topic", help="To this topic, all of whose groups get it; default: the group alone."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Send dead letters again to the group that gave them up, as new messages; ends with 1 when some are not sent.

    No other group of their topic gets them. They stay where they are: sending them twice is two messages each.

    Example: tianzhou dlq resend billing --since 2h --dry-run
    """

    async def found(admin: Admin) -> list[MessageExt]:
        letters = await _letters(admin, group, since, until, limit)
        missing = set(ids or ()) - {letter.msg_id for letter in letters}
        if missing:
            raise ClientError(
                f"group {group} has no dead letter {', '.join(sorted(missing))} there; see: tianzhou dlq list {group}"
            )
        if to is not None and not await admin.topics.exists(to):
            raise ClientError(f"topic {to} does not exist; create it or check its name")
        return [letter for letter in reversed(letters) if not ids or letter.msg_id in ids]

    letters = with_admin(namesrv, tls, found)
    if to is not None and letters:
        print_note(with_admin(namesrv, tls, lambda admin: _receivers(admin, to)))
    if dry_run or not letters:
        print_messages(letters, output)
        if output is Output.text:
            print_note(f"nothing was sent; {counted(len(letters), 'dead letter')} of group {group} there")
        return
    if not yes:
        confirm(f"send {counted(len(letters), 'dead letter')} of group {group} again?")

    async def send(admin: Admin) -> Resent:
        with progress("dead letters sent again", len(letters), worth_it=len(letters) > SHOWN_FROM) as advance:
            return await admin.dead_letters.resend(
                letters, to=to, progress=lambda so_far: advance(so_far.sent + so_far.failed)
            )

    result = with_admin(namesrv, tls, send)
    if output is Output.json:
        print_json({"group": group, "sent": result.sent, "failed": result.failed, "error": result.error or None})
    else:
        print_line(f"{counted(result.sent, 'dead letter')} of group {group} sent again")
        if result.failed:
            print_note(f"{result.failed} not sent, the first of them because: {shown(result.error)}")
    if result.failed:
        raise typer.Exit(1)


async def _receivers(admin: Admin, topic: str) -> str:
    """A line with the groups that will get messages of a topic."""
    groups = await admin.topics.groups(topic)
    if not groups:
        return f"no group has consumed topic {topic} yet"
    first = ", ".join(groups[:SHOWN_GROUPS]) + (", …" if len(groups) > SHOWN_GROUPS else "")
    return f"{counted(len(groups), 'group')} of topic {topic} will get each letter: {first}"


async def _letters(admin: Admin, group: str, since: str | None, until: str | None, limit: int) -> list[MessageExt]:
    await check_group(admin, group, await _groups_with_any(admin))
    return await admin.dead_letters.list(group, limit=limit, **times_of(since, until))


async def _groups_with_any(admin: Admin) -> list[str]:
    from tianzhou.model.names import dead_letter_topic

    prefix = dead_letter_topic("")
    return sorted(name.removeprefix(prefix) for name in await admin.topics.names() if name.startswith(prefix))
