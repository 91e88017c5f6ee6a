"""`dlq count|causes|list|show|resend|export`: dead letters of consumer groups, read and sent again by the client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.groups import check_group
from tianzhou.cli.messages.body_pieces import document_pieces
from tianzhou.cli.messages.message import (
    IdArgument,
    LimitOption,
    SinceOption,
    Times,
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
    help="Dead letters: count, causes, list, show, resend, export.",
    epilog="Example: tianzhou dlq count",
    no_args_is_help=True,
)
SHOWN_FROM = 1_000
"""Number of dead letters from which a terminal shows the progress of sending them."""
SHOWN_GROUPS = 10
"""Maximum number of groups of a topic that a line names."""
MAX_CHOSEN_BYTES = 64 << 20
"""Maximum size in bytes of the bodies that `resend --where` holds in memory."""
GroupArgument = Annotated[str, typer.Argument(help="The consumer group that gave up.")]
ReasonOption = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Property that says why; may be repeated. Default: reason, exception, error."),
]


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


@app.command()
def causes(
    group: GroupArgument,
    samples: Annotated[int, typer.Option(help="Also show the newest so many of each cause.", min=0)] = 0,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Count dead letters of a group by topic, tag, reason and deliveries, and show samples.

    Example: tianzhou dlq causes billing --samples 1
    """
    from tianzhou.cli.messages.letter_causes import CauseCounter, print_causes
    from tianzhou.cli.messages.letter_pages import count_of, letter_pages, letter_spans
    from tianzhou.model.dead_letters import REASONS

    times, counter = times_of(since, until), CauseCounter(samples, reason or REASONS)

    async def work(admin: Admin) -> None:
        await check_group(admin, group, await _groups_with_any(admin))
        spans = await letter_spans(admin, group, times.get("begin_ms", 0))
        size = count_of(spans)
        with progress("dead letters counted", size, worth_it=size > SHOWN_FROM) as advance:
            async for page in letter_pages(admin, spans, advance, **times):
                for letter in page:
                    counter.add(letter)

    with_admin(namesrv, tls, work)
    found, shown_samples = counter.rows()
    if not found and output is Output.text:
        print_note(f"group {group} has no dead letter there")
        return
    print_causes(group, found, shown_samples, output)


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
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Only this one, by its own id or the message's; can be given several times."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only what fulfils a condition, \"reason = 'Timeout' AND keys = 'k7'\".")
    ] = None,
    reason: ReasonOption = None,
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
    from tianzhou.cli.messages.letter_causes import condition_of_letters
    from tianzhou.model.dead_letters import REASONS, origin_id

    fulfils = None if where is None else condition_of_letters(where, reason or REASONS)

    async def found(admin: Admin) -> list[MessageExt]:
        if fulfils is None:
            letters = await _letters(admin, group, since, until, limit)
        else:
            letters = await _fulfilling(admin, group, fulfils, times_of(since, until), limit)
        missing = set(ids or ()) - {name for letter in letters for name in (origin_id(letter), letter.msg_id)}
        if missing:
            raise ClientError(
                f"group {group} has no dead letter {', '.join(sorted(missing))} there; see: tianzhou dlq list {group}"
            )
        if to is not None and not await admin.topics.exists(to):
            raise ClientError(f"topic {to} does not exist; create it or check its name")
        wanted = set(ids or ())
        return [one for one in reversed(letters) if not ids or wanted & {one.msg_id, origin_id(one)}]

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
    """Return a line with the groups that will receive messages of a topic."""
    groups = await admin.topics.groups(topic)
    if not groups:
        return f"no group has consumed topic {topic} yet"
    first = ", ".join(groups[:SHOWN_GROUPS]) + (", …" if len(groups) > SHOWN_GROUPS else "")
    return f"{counted(len(groups), 'group')} of topic {topic} will get each letter: {first}"


async def _letters(admin: Admin, group: str, since: str | None, until: str | None, limit: int) -> list[MessageExt]:
    await check_group(admin, group, await _groups_with_any(admin))
    return await admin.dead_letters.list(group, limit=limit, **times_of(since, until))


async def _fulfilling(
    admin: Admin, group: str, fulfils: Callable[[MessageExt], bool], times: Times, limit: int
) -> list[MessageExt]:
    """Return the newest dead letters that fulfil a condition, the newest first."""
    from tianzhou.cli.messages.letter_pages import count_of, letter_pages, letter_spans
    from tianzhou.wire.delivered import body_sizes

    await check_group(admin, group, await _groups_with_any(admin))
    spans = await letter_spans(admin, group, times.get("begin_ms", 0))
    size, chosen, held = count_of(spans), [], 0
    with progress("dead letters looked at", size, worth_it=size > SHOWN_FROM) as advance:
        async for page in letter_pages(admin, spans, advance, **times):
            new = [letter for letter in page if fulfils(letter)]
            chosen += new
            held += sum(body_sizes(new))
            if held > MAX_CHOSEN_BYTES:
                raise ClientError(
                    f"the chosen dead letters of group {group} have more than {MAX_CHOSEN_BYTES >> 20} MiB; send them "
                    "in parts, by --since and --until, or use tianzhou pipeline dlq"
                )
    return sorted(chosen, key=lambda letter: letter.store_timestamp, reverse=True)[:limit]


async def _groups_with_any(admin: Admin) -> list[str]:
    from tianzhou.model.names import dead_letter_topic

    prefix = dead_letter_topic("")
    return sorted(name.removeprefix(prefix) for name in await admin.topics.names() if name.startswith(prefix))
