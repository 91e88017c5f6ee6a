"""Child processes of a command, such as Spark or a server, which must end when the command is interrupted."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import typer

from tianzhou.cli.process import EXIT_INTERRUPTED
from tianzhou.cli.signals import CLIENT_STOP_LIMIT_S, ShutdownSignals


@contextlib.contextmanager
def interruptible() -> Iterator[ShutdownSignals]:
    """End the child processes on SIGINT and SIGTERM inside the block, and exit with the code of an interruption.

    Raises:
        typer.Exit: the command was interrupted.
    """

    def at_once(_: str) -> None:
        end_children()
        os._exit(EXIT_INTERRUPTED)

    def is_news(record: logging.LogRecord) -> bool:
        # Hide errors that the interruption causes: Py4J logs tracebacks of interrupted calls.
        return not ending.number or record.name.partition(".")[0] == "tianzhou"

    handlers = list(logging.getLogger().handlers)
    with ShutdownSignals(CLIENT_STOP_LIMIT_S, at_once) as ending:
        for handler in handlers:
            handler.addFilter(is_news)
        try:
            yield ending
        except (KeyboardInterrupt, Exception) as error:
            # A library may turn the interruption into an error of its own.
            if not (ending.number or isinstance(error, KeyboardInterrupt)):
                raise
            end_children()
            raise typer.Exit(EXIT_INTERRUPTED) from None
        finally:
            for handler in handlers if not ending.number else ():
                handler.removeFilter(is_news)


def end_children() -> None:
    """Kill the child processes, because a JVM that is starting does not end with its stdin.

    The server is spared: the kernel sends it SIGTERM when this process ends, and a second one would kill it.
    """
    for child in children_of(os.getpid()):
        with contextlib.suppress(OSError):
            if b"\0serve\0" not in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return the running child processes of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text(encoding="ascii").split())
    return found
