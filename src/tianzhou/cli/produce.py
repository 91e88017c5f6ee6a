"""`produce`."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    print_json,
    print_line,
    print_note,
)
from tianzhou.cli.progress import Advance, progress
from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError
from tianzhou.supervision import run_owned_threadsafe

if TYPE_CHECKING:
    from tianzhou.client import Producer
    from tianzhou.model import Message, SendResult

SENDS_IN_FLIGHT = 256
PROGRESS_FROM = 1_000
DELAY_LEVELS = 18
READ_BYTES = 65_536
READS_AHEAD = 4
LONGEST_LINE = 4 * 1024 * 1024
"""Maximum size in bytes of a message's body that a broker accepts by default."""


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    body: Annotated[
        str | None, typer.Option(help="One message's body; without it, every line of --file or stdin is one.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File whose lines are the bodies; empty lines are left out.")
    ] = None,
    body_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Send this file unchanged as one message; - reads stdin to its end."),
    ] = None,
    tags: Annotated[str | None, typer.Option(help="Tag of every message.")] = None,
    keys: Annotated[str, typer.Option(help="Keys of every message, separated by spaces.")] = "",
    prop: Annotated[
        list[str] | None,
        typer.Option("-p", "--property", metavar="NAME=VALUE", help="Property of every message; may be repeated."),
    ] = None,
    delay: Annotated[int, typer.Option(help="Delay level, 1 (1 s) to 18 (2 h).", min=0, max=DELAY_LEVELS)] = 0,
    count: Annotated[int, typer.Option(help="Number of times to send --body or --body-file.", min=1)] = 1,
    group: Annotated[str, typer.Option(help="Producer group.")] = "tianzhou-cli",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Send messages to a topic.

    Example: tianzhou produce orders --body '{"id": 1}' --tags created --keys 1

    Example: tianzhou produce scans --body-file scan.pdf -p name=scan.pdf
    """
    properties = dict(property_of(text) for text in prop or [])
    given = [
        name for name, value in (("--body", body), ("--file", file), ("--body-file", body_file)) if value is not None
    ]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other; give one")
    is_one = body is not None or body_file is not None
    if not is_one and count != 1:
        raise ConfigError("--count repeats --body; give one, or leave --count out")
    from tianzhou.model import Message

    def message(payload: bytes) -> Message:
        return Message(topic, payload, tags, keys, properties=dict(properties), delay_level=delay)

    async def main() -> None:
        from tianzhou.client import Producer

        if body_file is not None:
            from tianzhou.cli.messages.body_files import read_body

            bodies = _repeated(await read_body(body_file, LONGEST_LINE), count)
        else:
            bodies = _lines(file) if body is None else _repeated(body.encode(), count)
        total = count if is_one else None
        sending, complete = ProduceSending(total, output), False
        try:
            async with Producer(group, namesrv, tls=tls) as producer:
                with progress("acknowledged", total, worth_it=_is_much(total, file)) as advance:
                    await sending.run(producer, (message(payload) async for payload in bodies), advance)
            complete = True
        finally:
            # If the command failed or was interrupted, report the messages that were acknowledged.
            if output is Output.text and total != 1 and (complete or sending.acknowledged):
                print_note(f"{counted(sending.acknowledged, 'message')} acknowledged")

    run_client(main())


def property_of(text: str) -> tuple[str, str]:
    """Parse `name=value`.

    Raises:
        ConfigError: the text has another form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ConfigError(f"--property {text}: write name=value, neither of them empty")
    return name, value


class ProduceSending:
    """A sender with many messages in flight, which prints the result of each.

    Args:
        total: number of messages, None if unknown.
        output: form of the output.
    """

    def __init__(self, total: int | None, output: Output) -> None:
        self.acknowledged = 0
        self._total = total
        self._output = output
        self._room = asyncio.Semaphore(SENDS_IN_FLIGHT)

    async def run(self, producer: Producer, messages: AsyncIterator[Message], advance: Advance) -> None:
        """Send all messages. Stop at the first failure."""
        try:
            async with asyncio.TaskGroup() as tasks:
                async for message in messages:
                    await self._room.acquire()
                    tasks.create_task(self._send(producer, message, advance))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _send(self, producer: Producer, message: Message, advance: Advance) -> None:
        try:
            result = await producer.send(message)
        finally:
            self._room.release()
        self.acknowledged += 1
        advance(self.acknowledged)
        if self._output is Output.json:
            print_json(_result_fields(result))
        elif self._total == 1:
            print_line(f"{result.status.name} {result.msg_id} in {result.queue} at offset {result.queue_offset}")


def _result_fields(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
    }


def _is_much(total: int | None, file: Path | None) -> bool:
    if total is not None:
        return total >= PROGRESS_FROM
    # A progress bar would interfere with lines that a user types.
    return file is not None or not sys.stdin.isatty()


async def _repeated(body: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield body


async def _lines(file: Path | None) -> AsyncIterator[bytes]:
    """Yield the lines of a file or of stdin as they arrive.

    A thread reads them, because a pipe may have no data for a long time.
    """
    if file is None and sys.stdin is None:
        raise ConfigError("stdin is closed; give --body or --file")
    loop = asyncio.get_running_loop()
    batches: asyncio.Queue[list[bytes] | ConfigError | None] = asyncio.Queue(READS_AHEAD)

    def put(batch: list[bytes] | ConfigError | None) -> None:
        run_owned_threadsafe(batches.put(batch), loop).result()

    def read() -> None:
        # Use os.read instead of a file object: a thread that waits inside a file object would block the exit.
        try:
            fd = 0 if file is None else os.open(file, os.O_RDONLY)
            splitter = LineSplitter("stdin" if file is None else str(file))
            while data := os.read(fd, READ_BYTES):
                put(splitter.feed(data))
            put(splitter.rest())
            put(None)
        except ConfigError as error:
            put(error)
        except OSError as error:
            put(ConfigError(f"{'stdin' if file is None else f'--file {file}'}: {error.strerror}"))

    if file is None and sys.stdin.isatty():
        print_note("each line becomes a message; end with Ctrl-D")
    threading.Thread(target=read, daemon=True, name="lines").start()
    while (batch := await batches.get()) is not None:
        if isinstance(batch, ConfigError):
            raise batch
        for line in batch:
            yield line


class LineSplitter:
    """A splitter of a byte stream into lines. Empty lines are left out.

    Args:
        source: name of the source, for messages.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._parts: list[bytes] = []
        self._size = 0
        self._number = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in `data`, without their line ends.

        Raises:
            ConfigError: a line is longer than a message may be.
        """
        first, *others = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        whole = []
        for part in others:
            whole.append(b"".join(self._parts))
            self._check()
            self._number += 1
            self._parts, self._size = [part], len(part)
        self._check()
        return [line for line in (line.rstrip(b"\r") for line in whole) if line]

    def rest(self) -> list[bytes]:
        """Return the last line if it has no line end."""
        line = b"".join(self._parts).rstrip(b"\r")
        return [line] if line else []

    def _check(self) -> None:
        ending = self._parts[-1].endswith(b"\r")
        if self._size > LONGEST_LINE + ending:
            raise ConfigError(
                f"{self._source}: line {self._number + 1} is longer than the {LONGEST_LINE} bytes a message may have; "
                "each line is one message"
            )
