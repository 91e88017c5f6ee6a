"""`undelivered list|resend`: messages that brokers have set aside because they cannot deliver them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    local_time,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import with_admin
from tianzhou.errors import ClientError
from tianzhou.escaping import shown

if TYPE_CHECKING:
    from tianzhou.admin import Admin
    from tianzhou.admin.undeliverable import Redelivery, UndeliverableMessage

app = typer.Typer(
    help="Messages that brokers have set aside because they cannot deliver them: list, resend.",
    epilog="Example: tianzhou undelivered list",
    no_args_is_help=True,
)
BrokerOption = Annotated[str | None, typer.Option("-b", "--broker", help="Only those of this broker name.")]
LONGEST_REASON = 500
"""Maximum characters of a reason that are shown."""


@app.command("list")
def list_messages(
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the messages that are set aside, with the topic each was to go to and why it cannot get there.

    Example: tianzhou undelivered list
    """
    found = with_admin(namesrv, tls, lambda admin: admin.undeliverable.list(broker))
    if output is Output.json:
        print_json([document(one) for one in found])
        return
    if not found:
        print_note("no message is set aside")
        return
    columns = ("id", "broker", "set aside by", "at", "topic", "queue", "key", "reason")
    print_rows(columns, [_cells(one) for one in found], output)


def _cells(one: UndeliverableMessage) -> tuple[object, ...]:
    when, reason = local_time(one.set_aside_ms), shown(one.reason, LONGEST_REASON)
    return one.id, one.broker_name, one.ledger, when, shown(one.topic), one.queue, shown(one.key), reason


def document(one: UndeliverableMessage) -> dict[str, object]:
    """Return a message that is set aside, for JSON."""
    return {
        "id": one.id,
        "broker": one.broker_name,
        "ledger": one.ledger,
        "set_aside_ms": one.set_aside_ms,
        "topic": one.topic,
        "queue": one.queue,
        "key": one.key,
        "body_bytes": one.body_bytes,
        "reason": one.reason,
    }


@app.command()
def resend(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids that `list` prints.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All messages that are set aside.")] = False,
    to: Annotated[
        str | None, typer.Option("--to", help="Topic to deliver to; the one each was to go to without.")
    ] = None,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have brokers deliver messages that they have set aside; ends with 1 when one of them still cannot be delivered.

    Example: tianzhou undelivered resend --all
    """
    if bool(ids) is every:
        raise ClientError("name the messages by the ids that `tianzhou undelivered list` prints, or all with --all")

    async def work(admin: Admin) -> Redelivery:
        found = await admin.undeliverable.list(broker)
        wanted = set(ids or ())
        if missing := sorted(wanted - {one.id for one in found}):
            raise ClientError(f"no message that is set aside has the id {', '.join(missing)}; list them")
        return await admin.undeliverable.resend([one for one in found if every or one.id in wanted], to=to)

    result = with_admin(namesrv, tls, work)
    if output is Output.json:
        failed = [{"id": msg_id, "why": why} for msg_id, why in result.failed]
        print_json({"delivered": result.delivered, "failed": failed})
    else:
        for msg_id, why in result.failed:
            print_note(f"{msg_id}: {shown(why, LONGEST_REASON)}")
        print_line(f"{counted(len(result.delivered), 'message')} delivered, {len(result.failed)} failed")
    if result.failed:
        raise typer.Exit(1)
