"""`message get|query|trace`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.consume import document
from tianzhou.cli.messages.moments import span_ms
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    body_text,
    local_time_ms,
    print_fields,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.topics import TopicArgument, with_admin
from tianzhou.errors import ClientError, UnknownTopic

if TYPE_CHECKING:
    from tianzhou.admin import Admin, MessageTrack
    from tianzhou.model import MessageExt

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_PLACE = re.compile(r"(.+):([0-9]{1,9})@([0-9]{1,18})", re.ASCII)

app = typer.Typer(
    help="Messages: get one, query by key, trace.",
    epilog="Example: tianzhou message query orders --key order-1",
    no_args_is_help=True,
)


@app.command()
def get(
    topic: TopicArgument,
    msg_id: Annotated[
        str, typer.Argument(metavar="ID", help="Unique key, offset id, or place as BROKER:QUEUE@OFFSET.")
    ],
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a message, and what became of it in the groups that consume its topic.

    Example: tianzhou message get orders broker-a:0@42
    """

    async def work(admin: Admin) -> tuple[MessageExt, list[MessageTrack]]:
        message = await _found(admin, topic, msg_id)
        return message, await admin.messages.tracks(message)

    message, tracks = with_admin(namesrv, tls, work, topic=topic)
    if output is Output.json:
        groups = [{"group": one.group, "status": one.kind, "why": one.why or None} for one in tracks]
        print_json(document(message) | {"groups": groups})
        return
    print_fields(
        {
            "topic": message.topic,
            "place": _place(message),
            "id": message.msg_id,
            "offset id": message.offset_msg_id,
            "tags": message.tags or None,
            "keys": message.keys or None,
            "born": f"{local_time_ms(message.born_timestamp)} at {message.born_host}",
            "stored": local_time_ms(message.store_timestamp),
            "attempt": message.reconsume_times + 1,
            **{f"property {name}": value for name, value in message.user_properties.items()},
        },
        output,
    )
    print_line("")
    print_line(body_text(message.body))
    if tracks:
        print_line("")
        print_rows(("group", "status", "why"), [(one.group, one.kind, one.why or None) for one in tracks], output)
    else:
        print_note(f"no group consumes topic {topic}")


@app.command()
def query(
    topic: TopicArgument,
    key: Annotated[str, typer.Option("-k", "--key", help="One of the keys the message was sent with.")],
    since: Annotated[str | None, typer.Option(help="Stored since then: 10m ago, or 2026-01-31T08:00:00.")] = None,
    until: Annotated[str | None, typer.Option(help="Stored until then, in the same forms.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="At most so many of each broker.", min=1, max=64)] = 64,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List messages with a key, the oldest first. Those of a time are shown by `tianzhou consume TOPIC --since 10m`.

    Example: tianzhou message query orders --key order-1 --since 2h
    """
    begin_ms, end_ms = span_ms(since, until, int(time.time() * 1000))
    times = {"begin_ms": begin_ms or 0} | ({} if end_ms is None else {"end_ms": end_ms})
    found = with_admin(
        namesrv, tls, lambda admin: admin.messages.by_key(topic, key, max_num=limit, **times), topic=topic
    )
    if output is Output.json:
        print_json([document(message) for message in found])
        return
    if not found:
        print_note(f"topic {topic} has no message with key {key} there; is it spelt as the producer gave it?")
        return
    print_rows(
        ("stored", "place", "id", "tags", "keys", "bytes"),
        [
            (local_time_ms(one.store_timestamp), _place(one), one.msg_id, one.tags or None, one.keys, len(one.body))
            for one in found
        ],
        output,
    )


@app.command()
def trace(
    msg_id: Annotated[str, typer.Argument(metavar="ID", help="The unique key, as send() and `consume` show it.")],
    trace_topic: Annotated[str, typer.Option("--trace-topic", help="Where clients write traces.")] = TRACE_TOPIC,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show who sent a message and who consumed it, as clients that trace have written it down.

    Example: tianzhou message trace 7F0000010E8C00B4AAC2000000000000
    """
    from tianzhou.cli.mqadmin.trace_reading import read_traces

    async def work(admin: Admin) -> list[MessageExt]:
        try:
            return await admin.messages.by_key(trace_topic, msg_id)
        except UnknownTopic:
            raise ClientError(
                f"topic {trace_topic} does not exist, so nobody has traced; brokers make it with traceTopicEnable=true"
            ) from None

    notes = with_admin(namesrv, tls, work)
    published, consumed = read_traces([(note.body, note.born_host) for note in notes], msg_id)
    if output is Output.json:
        print_json({"msg_id": msg_id, "published": published, "consumed": consumed})
        return
    if not published and not consumed:
        print_note(f"no trace of {msg_id}; only clients with tracing switched on write any")
        return
    print_rows(
        ("what", "when", "group", "client", "cost", "status"),
        [
            (
                {"Pub": "sent", "Sub": "consumed"}[one["type"]],
                local_time_ms(one["time"]),
                one["group"],
                one["client_host"],
                f"{one['cost']} ms",
                one["status"],
            )
            for one in [*published, *consumed]
        ],
        output,
    )


async def _found(admin: Admin, topic: str, msg_id: str) -> MessageExt:
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
