"""`pipeline logs`: lines of files become messages."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.output import (
    Output,
    OutputOption,
    print_fields,
    print_note,
)
from tianzhou.cli.pipelines.clusters import PipelineCluster, of_cluster
from tianzhou.cli.pipelines.command import app
from tianzhou.cli.progress import progress
from tianzhou.cli.signals import run_client
from tianzhou.errors import TianzhouError

if TYPE_CHECKING:
    from tianzhou.client import Producer
    from tianzhou.pipelines.logs import Lines

IN_FLIGHT = 512
RETRY_S = 1.0


@app.command()
@of_cluster
def logs(
    patterns: Annotated[list[str], typer.Argument(metavar="PATTERN…", help="Files, '/var/log/app/*.log'.")],
    to: Annotated[str, typer.Option(help="Topic the lines are sent to.")],
    positions: Annotated[Path, typer.Option(help="File that keeps how far each log is sent.")],
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is sent.")] = False,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="On the very first start, leave out what is there already.")
    ] = False,
    tags: Annotated[str | None, typer.Option(help="Tag of every message.")] = None,
    host: Annotated[str | None, typer.Option(help="Name of this machine in the messages.")] = None,
    poll: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)] = 0.5,
    output: OutputOption = Output.text,
    *,
    cluster: PipelineCluster,
) -> None:
    """Send the lines of log files to a topic, and follow the files when they are rotated.

    Example: tianzhou pipeline logs '/var/log/app/*.log' --to app-logs --positions app.positions
    """
    sent = 0

    async def main() -> None:
        nonlocal sent
        from tianzhou.client import Producer
        from tianzhou.pipelines.logs import Follower, Positions

        saved = Positions(positions)
        follower = Follower(patterns, saved, from_end=from_end)
        try:
            async with Producer("tianzhou-cli", cluster.namesrv, **cluster.client_options) as producer:
                await producer.queues(to)
                with progress("lines sent", None) as advance:
                    while True:
                        idle = True
                        for lines in follower.poll():
                            idle = False
                            messages = list(lines.messages(to, host or socket.gethostname(), tags))
                            await _send(producer, lines, messages, patient=not once)
                            follower.sent(lines)
                            sent += len(messages)
                            advance(sent)
                        if idle and once:
                            return
                        await asyncio.sleep(poll if idle else 0)
        finally:
            follower.close()
            saved.close()

    try:
        run_client(main())
    finally:
        print_fields({"lines": sent, "to": to}, output)


async def _send(producer: Producer, lines: Lines, messages: list, *, patient: bool) -> None:  # type: ignore[type-arg]
    """Send messages in order. Retry while brokers reject them, so that no line is skipped."""
    at = 0
    while at < len(messages):
        some = messages[at : at + IN_FLIGHT]
        results = await asyncio.gather(*(producer.send(message) for message in some), return_exceptions=True)
        failed = next((i for i, result in enumerate(results) if isinstance(result, BaseException)), None)
        if failed is None:
            at += len(some)
            continue
        error = results[failed]
        if not patient or not isinstance(error, TianzhouError) or not error.retriable:
            raise error  # type: ignore[misc]
        print_note(f"{lines.file.path}: {error}; trying again")
        at += failed
        await asyncio.sleep(RETRY_S)
