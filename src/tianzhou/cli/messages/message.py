"""`message get|query|trace`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from tianzhou.cli.messages.body_pieces import body_start, document_pieces, text_pieces
from tianzhou.cli.messages.moments import span_ms
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    local_time_ms,
    objects,
    print_fields,
    print_json,
    print_json_pieces,
    print_line,
    print_line_pieces,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import TopicArgument, with_admin
from tianzhou.errors import ClientError, UnknownTopic
from tianzhou.escaping import escaped

if TYPE_CHECKING:
    from tianzhou.admin import Admin, MessageTrack
    from tianzhou.client.tracing.trace_reading import TraceRecord
    from tianzhou.model import MessageExt

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Unique key, offset id, or place as BROKER:QUEUE@OFFSET.")
]
SinceOption = Annotated[str | None, typer.Option(help="Stored since then: 10m ago, or 2026-01-31T08:00:00.")]
UntilOption = Annotated[str | None, typer.Option(help="Stored until then, in the same forms.")]
LimitOption = Annotated[int, typer.Option("--limit", help="At most so many.", min=1, max=10_000)]
_PLACE = re.compile(r"(.+):([0-9]{1,9})@([0-9]{1,18})", re.ASCII)

app = typer.Typer(
    help="Messages: get one, query by key or time, trace.",
    epilog="Example: tianzhou message query orders --key order-1",
    no_args_is_help=True,
)


@app.command()
def get(
    topic: TopicArgument,
    msg_id: IdArgument,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a message, and what became of it in the groups that consume its topic.

    Example: tianzhou message get orders broker-a:0@42
    """

    async def work(admin: Admin) -> tuple[MessageExt, list[MessageTrack]]:
        message = await found_message(admin, topic, msg_id)
        return message, await admin.messages.tracks(message)

    message, tracks = with_admin(namesrv, tls, work, topic=topic)
    if output is Output.json:
        groups = [{"group": one.group, "status": one.kind, "why": one.why or None} for one in tracks]
        print_json_pieces(document_pieces(message, {"groups": groups}))
        return
    print_message(message, output)
    if tracks:
        print_line("")
        print_rows(("group", "status", "why"), [(one.group, one.kind, one.why or None) for one in tracks], output)
    else:
        print_note(f"no group consumes topic {topic}")


@app.command()
def query(
    topic: TopicArgument,
    key: Annotated[
        str | None, typer.Option("-k", "--key", help="One of the keys the message was sent with; default: all.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 64,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List messages with a key, the oldest first, or the newest of a time, the newest first.

    With a key each broker gives 64 messages at most.

    Example: tianzhou message query orders --key order-1 --since 2h
    """
    times = times_of(since, until)

    async def work(admin: Admin) -> list[MessageExt]:
        if key is None:
            return await admin.messages.by_time(topic, limit=limit, **times)
        return (await admin.messages.by_key(topic, key, max_num=min(limit, 64), **times))[:limit]

    found = with_admin(namesrv, tls, work, topic=topic)
    if not found and output is Output.text:
        spelt = f" with key {key} there; is it spelt as the producer gave it?" if key else " of that time"
        print_note(f"topic {topic} has no message{spelt}")
        return
    print_messages(found, output)


@app.command()
def trace(
    msg_id: Annotated[str, typer.Argument(metavar="ID", help="The unique key, as send() and `consume` show it.")],
    trace_topic: Annotated[str, typer.Option("--trace-topic", help="Where clients write traces.")] = TRACE_TOPIC,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show who sent a message and who consumed it, as clients that trace have noted it.

    Example: tianzhou message trace 7F0000010E8C00B4AAC2000000000000
    """

    async def work(admin: Admin) -> list[TraceRecord]:
        try:
            return await admin.messages.trace(msg_id, trace_topic=trace_topic)
        except UnknownTopic:
            raise ClientError(
                f"topic {trace_topic} does not exist, so nobody has traced; brokers make it with traceTopicEnable=true"
            ) from None

    records = with_admin(namesrv, tls, work)
    columns = ("what", "when", "group", "topic", "cost ms", "success", "detail")
    rows = [
        (one.kind.value, one.timestamp_ms, one.group, one.topic or None, one.cost_ms, one.success, one.detail or None)
        for one in records
    ]
    if output is Output.json:
        print_json(objects(columns, rows))
    elif not rows:
        print_note(f"no trace of {msg_id}; only clients with tracing switched on write any")
    else:
        print_rows(columns, [(what, local_time_ms(when), *rest) for what, when, *rest in rows], output)


def print_message(message: MessageExt, output: Output, more: Mapping[str, str] | None = None) -> None:
    """Print a message: its fields and properties, then its body.

    Args:
        message: the message.
        output: form of the fields.
        more: fields before those of the message.
    """
    print_fields(
        {
            **(more or {}),
            "topic": message.topic,
            "place": _place(message),
            "id": message.msg_id,
            "offset id": message.offset_msg_id,
            "tags": message.tags or None,
            "keys": message.keys or None,
            "born": f"{local_time_ms(message.born_timestamp)} at {message.born_host}",
            "stored": local_time_ms(message.store_timestamp),
            "attempt": message.reconsume_times + 1,
            **{f"property {escaped(name)}": value for name, value in message.user_properties.items()},
        },
        output,
    )
    print_line("")
    print_line_pieces(text_pieces(message.body))


class Times(TypedDict, total=False):
    """Bounds of a query's store times, as its keyword arguments.

    Attributes:
        begin_ms: first store time, milliseconds since the epoch.
        end_ms: last store time.
    """

    begin_ms: int
    end_ms: int


def times_of(since: str | None, until: str | None) -> Times:
    """Return `--since` and `--until` as arguments of queries, without an option that was not given."""
    begin_ms, end_ms = span_ms(since, until, int(time.time() * 1000))
    times = Times()
    if begin_ms is not None:
        times["begin_ms"] = begin_ms
    if end_ms is not None:
        times["end_ms"] = end_ms
    return times


def print_messages(messages: Sequence[MessageExt], output: Output) -> None:
    """Print messages: one line each with the beginning of the body, or completely in a JSON array."""
    if output is Output.json:
        print_json_pieces(_list_pieces(messages))
        return
    rows = [
        (local_time_ms(m.store_timestamp), _place(m), m.msg_id, m.tags or None, m.keys or None, body_start(m.body, 40))
        for m in messages
    ]
    print_rows(("stored", "place", "id", "tags", "keys", "body"), rows, output)


def _list_pieces(messages: Sequence[MessageExt]) -> Iterator[str]:
    yield "["
    for n, message in enumerate(messages):
        if n:
            yield ", "
        yield from document_pieces(message)
    yield "]"


async def found_message(admin: Admin, topic: str, msg_id: str) -> MessageExt:
    """Return a message by its unique key, its offset id or its place.

    Args:
        admin: the client.
        topic: topic of the message.
        msg_id: `ID` of `message get`.

    Raises:
        ClientError: there is no such message.
    """
    place = _PLACE.fullmatch(msg_id)
    if place is None:
        return await admin.messages.view(topic, msg_id)
    from tianzhou.model import MessageQueue

    queue = MessageQueue(topic, place[1], int(place[2]))
    held = (await admin.topics.stats(topic)).offset_table
    found = await admin.messages.by_offset(queue, int(place[3])) if queue in held else None
    if found is None:
        raise ClientError(f"topic {topic} has no message at {msg_id}; see: tianzhou topic describe {topic}")
    return found


def _place(message: MessageExt) -> str:
    return f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
