"""`consume`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.messages.body_files import BodyFolder
from tianzhou.cli.messages.body_pieces import document_pieces, fields_of, text_pieces
from tianzhou.cli.messages.looking import Batches, look, span_of
from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    local_time_ms,
    output_closed,
    print_json,
    print_json_pieces,
    print_line,
    print_line_pieces,
    print_note,
)
from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.model import MessageExt

POLL_S = 1.0

Servers = dict[str, Any]
"""Arguments of a consumer for its servers and credentials."""


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", help="Consume as a member of this group; default: only look, commit nothing."),
    ] = None,
    tags: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    sql: Annotated[
        str | None,
        typer.Option(help="SQL92 expression over properties, \"price > 10 AND TAGS = 'A'\", instead of --tags."),
    ] = None,
    from_beginning: Annotated[
        bool | None,
        typer.Option(
            "--from-beginning/--from-end",
            help="Start at the oldest message, or behind the newest, on queues without an offset of the group. Without "
            "either option a group starts at the end of a queue, but at the first message of a queue that still has "
            "this message in the broker's memory.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was stored since then: 10m ago, or 2026-01-31T08:00:00.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only what was stored until then, in the same forms; ends there.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(help="Start at this offset of --queue; -10 for the last ten of every queue.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="[BROKER:]ID", help="Only this queue; can be given several times.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--max", help="End after so many messages.", min=1)] = None,
    timeout: Annotated[
        float | None, typer.Option(help="End when no message came for so many seconds.", min=0.1)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write each body unchanged to a file in this folder, and print its name."),
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Print messages of a topic as they come.

    With --group the messages count as consumed and the offsets are stored; without it nothing is committed, and
    the members of groups are not disturbed; then any part of the topic can be chosen, by time, offset and queue.
    Ctrl-C ends it.

    With --out the name of a file is the message's position, BROKER-QUEUE-OFFSET.body. An existing file is an error and
    is not overwritten.

    Example: tianzhou consume orders --since 10m --max 10

    Example: tianzhou consume scans --from-beginning --max 1 --out ./scans
    """
    if from_beginning is False and (since, until, offset) != (None, None, None):
        raise ConfigError("--from-end begins behind the newest message; leave --since, --until and --offset out")
    span = span_of(queue or (), since, until, offset, bool(from_beginning), int(time.time() * 1000))
    if group is not None and (queue or (since, until, offset) != (None, None, None)):
        raise ConfigError(
            "--since, --until, --offset and --queue are for looking; members of a group continue at its offsets, "
            f"which `tianzhou group reset {group} -t {topic} --to ...` moves"
        )
    printer = _Printer(limit, timeout, output, None if out is None else BodyFolder(out))
    servers: Servers = {"namesrv_addr": namesrv, "tls": tls}

    async def main() -> None:
        complete = False
        try:
            if group is None:
                await look(topic, tags, sql, span, servers, printer.run)
            else:
                await _join(topic, group, tags, sql, from_beginning, servers, printer)
            complete = True
        finally:
            if output is Output.text and (complete or printer.shown):
                print_note(counted(printer.shown, "message"))

    run_client(main())


class _Printer:
    """A printer of messages. It ends after enough messages, or after a time without messages."""

    def __init__(self, limit: int | None, timeout: float | None, output: Output, bodies: BodyFolder | None) -> None:
        self.shown = 0
        self._limit = limit
        self._timeout = timeout
        self._output = output
        self._bodies = bodies

    async def run(self, batches: Batches) -> None:
        if self._limit is None and self._timeout is None and sys.stderr.isatty():
            print_note("waiting for messages; Ctrl-C ends")
        quiet_since = time.monotonic()
        while self._limit is None or self.shown < self._limit:
            wait = POLL_S
            if self._timeout is not None:
                wait = min(wait, quiet_since + self._timeout - time.monotonic())
                if wait <= 0:
                    return
            messages = await batches(wait)
            if messages is None:
                return
            for message in messages[: None if self._limit is None else self._limit - self.shown]:
                self._show(message)
                self.shown += 1
            if messages:
                quiet_since = time.monotonic()
            elif output_closed():
                raise BrokenPipeError

    def _show(self, message: MessageExt) -> None:
        if self._bodies is not None:
            self._show_file(message, self._bodies.write(message))
            return
        if self._output is Output.json:
            print_json_pieces(document_pieces(message))
            return
        print_line_pieces(chain([_head(message)], text_pieces(message.body)))

    def _show_file(self, message: MessageExt, file: Path) -> None:
        size = file.stat().st_size
        if self._output is Output.json:
            print_json(fields_of(message) | {"file": str(file), "size": size})
        else:
            print_line(f"{_head(message)}{file} ({counted(size, 'byte')})")


def _head(message: MessageExt) -> str:
    mark = "".join(f" {name}={value}" for name, value in (("tags", message.tags), ("keys", message.keys)) if value)
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    return f"{local_time_ms(message.store_timestamp)} {place}{mark} "


async def _join(
    topic: str, group: str, tags: str, sql: str | None, from_beginning: bool | None, servers: Servers, printer: _Printer
) -> None:
    from tianzhou.client import PushConsumer
    from tianzhou.model import ConsumeFromWhere

    places = {True: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, False: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET}
    where = None if from_beginning is None else places[from_beginning]
    consumer = PushConsumer(group, **servers, consume_from_where=where)
    consumer.subscribe(topic, tags, sql=sql)

    async def batches(wait: float) -> Sequence[MessageExt]:
        try:
            async with asyncio.timeout(wait):
                return [await anext(consumer)]
        except TimeoutError:
            return []

    try:
        async with consumer:
            if not await consumer.instance.queues_to_read(topic, refresh=True):
                print_note(f"topic {topic} does not exist yet; its messages are shown when it does")
            try:
                await printer.run(batches)
            except (OSError, ConfigError) as error:
                raise _NotShownError(error) from None
    except _NotShownError as end:
        raise end.error from None


class _NotShownError(BaseException):
    """Output failed. It is not an `Exception`, because the message is not faulty and must not count as consumed."""

    def __init__(self, error: OSError | ConfigError) -> None:
        self.error = error
        super().__init__(error)
