"""`produce` and `consume`."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import DEFAULT_NAMESRV, NamesrvOption, Output, OutputOption, print_json, print_line, print_note
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.model import Message, MessageExt, SendResult

SENDS_IN_FLIGHT = 256
PROGRESS_FROM = 1_000
DELAY_LEVELS = 18


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(help=produce.__doc__)(produce)
    app.command(help=consume.__doc__)(consume)


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[
        str | None, typer.Option(help="One message's body; without it, each line of --file or stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File whose lines are the bodies.")] = None,
    tags: Annotated[str | None, typer.Option(help="Tag of every message.")] = None,
    keys: Annotated[str, typer.Option(help="Keys of every message, separated by spaces.")] = "",
    prop: Annotated[list[str] | None, typer.Option("-p", "--property", help="name=value; may be repeated.")] = None,
    delay: Annotated[int, typer.Option(help="Delay level, 1 (1 s) to 18 (2 h).", min=0, max=DELAY_LEVELS)] = 0,
    count: Annotated[int, typer.Option(help="Send --body so many times.", min=1)] = 1,
    group: Annotated[str, typer.Option(help="Producer group.")] = "tianzhou-cli",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.text,
) -> None:
    """Send messages to a topic.

    Example: tianzhou produce orders --body '{"id": 1}' --tags created --keys 1
    """
    properties = dict(_property(text) for text in prop or [])
    if body is not None and file is not None:
        raise ConfigError("--body and --file exclude each other; give one")
    from tianzhou.model import Message

    def message(payload: bytes) -> Message:
        return Message(topic, payload, tags, keys, properties=dict(properties), delay_level=delay)

    bodies, total = (repeat(body.encode(), count), count) if body is not None else (_lines(file), None)
    messages = (message(payload) for payload in bodies)
    sent = asyncio.run(_produce(messages, total, group, namesrv, output))
    if output is Output.text and sent != 1:
        print_note(f"{sent} messages acknowledged")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ConfigError(f"--property {text}: write name=value, neither of them empty")
    return name, value


def _lines(file: Path | None) -> Iterator[bytes]:
    if file is None:
        if sys.stdin.isatty():
            print_note("each line becomes a message; end with Ctrl-D")
        for line in sys.stdin.buffer:
            if line.rstrip(b"\r\n"):
                yield line.rstrip(b"\r\n")
        return
    try:
        with file.open("rb") as lines:
            for line in lines:
                if line.rstrip(b"\r\n"):
                    yield line.rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror}") from error


async def _produce(messages: Iterator[Message], total: int | None, group: str, namesrv: str, output: Output) -> int:
    from tianzhou.client import Producer

    sent = 0
    async with Producer(group, namesrv) as producer:
        with _progress("acknowledged", total) as advance:

            async def lane() -> None:
                nonlocal sent
                for message in messages:
                    result = await producer.send(message)
                    sent += 1
                    advance(sent)
                    if output is Output.json:
                        print_json(_result_fields(result))
                    elif total == 1:
                        print_line(
                            f"{result.status.name} {result.msg_id} in {result.queue} at offset {result.queue_offset}"
                        )

            lanes = min(SENDS_IN_FLIGHT, total or SENDS_IN_FLIGHT)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(lanes):
                        tasks.create_task(lane())
            except BaseExceptionGroup as errors:
                if sent:
                    print_note(f"{sent} messages were acknowledged before the failure")
                raise errors.exceptions[0] from None
    return sent


def _result_fields(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
    }


class _Bar:
    """A progress bar that is advanced to an absolute count; shown on a terminal only."""

    def __init__(self, description: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self) -> Any:
        self._progress.start()
        return lambda count: self._progress.update(self._task, completed=count)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _progress(description: str, total: int | None) -> AbstractContextManager[Any]:
    if sys.stderr.isatty() and (total is None or total >= PROGRESS_FROM):
        return _Bar(description, total)
    return nullcontext(lambda count: None)


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", help="Consume as a member of this group; default: only look, commit nothing."),
    ] = None,
    tags: Annotated[str, typer.Option(help="Tag expression, 'A || B'.")] = "*",
    from_beginning: Annotated[bool, typer.Option(help="Start at the oldest message instead of the newest.")] = False,
    limit: Annotated[int | None, typer.Option("--max", help="End after so many messages.", min=1)] = None,
    timeout: Annotated[
        float | None, typer.Option(help="End when no message came for so many seconds.", min=0.1)
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.text,
) -> None:
    """Print messages of a topic as they come.

    With --group the messages count as consumed and the offsets are kept; without it nothing is committed, and
    the group's members are not disturbed. Ctrl-C ends it.

    Example: tianzhou consume orders --from-beginning --max 10
    """

    async def main() -> int:
        stream = (
            _look(topic, tags, from_beginning, namesrv)
            if group is None
            else _member(topic, group, tags, from_beginning, namesrv)
        )
        shown = 0
        try:
            while limit is None or shown < limit:
                try:
                    async with asyncio.timeout(timeout):
                        message = await anext(stream)
                except TimeoutError:
                    break
                shown += 1
                _show(message, output)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
        return shown

    shown = asyncio.run(main())
    if output is Output.text:
        print_note(f"{shown} messages")


async def _look(topic: str, tags: str, from_beginning: bool, namesrv: str) -> AsyncIterator[MessageExt]:
    from tianzhou.client import PullConsumer

    # A name of its own, so that looking never moves the offsets of a group someone relies on.
    async with PullConsumer(f"tianzhou-look-{os.getpid()}-{time.time_ns()}", namesrv, auto_commit=False) as consumer:
        queues = await consumer.queues(topic)
        consumer.assign(queues, tags=tags)
        for queue in queues:
            await (consumer.seek_to_begin(queue) if from_beginning else consumer.seek_to_end(queue))
        while True:
            for message in await consumer.poll(1_000):
                yield message


async def _member(topic: str, group: str, tags: str, from_beginning: bool, namesrv: str) -> AsyncIterator[MessageExt]:
    from tianzhou.client import PushConsumer
    from tianzhou.model import ConsumeFromWhere

    where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET if from_beginning else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consumer = PushConsumer(group, namesrv, consume_from_where=where)
    consumer.subscribe(topic, tags)
    async with consumer:
        async for message in consumer:
            yield message


def _show(message: MessageExt, output: Output) -> None:
    stored = dt.datetime.fromtimestamp(message.store_timestamp / 1000).astimezone()
    if output is Output.text:
        mark = "".join(f" {name}={value}" for name, value in (("tags", message.tags), ("keys", message.keys)) if value)
        body = message.body.decode("utf-8", "backslashreplace")
        place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
        print_line(f"{stored:%H:%M:%S.%f} {place}{mark} {body}")
        return
    print_json(
        {
            "topic": message.topic,
            "broker": message.broker_name,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "msg_id": message.msg_id,
            "offset_msg_id": message.offset_msg_id,
            "tags": message.tags,
            "keys": message.keys,
            "properties": message.user_properties,
            "body": message.body.decode("utf-8", "backslashreplace"),
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "reconsume_times": message.reconsume_times,
        }
    )
