"""Processes that a command has started: Spark's, a server; an interruption ends them with it."""

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
    """Within it, SIGINT and SIGTERM end the child processes, and the command with the code of an interruption.

    Raises:
        typer.Exit: it was interrupted.
    """

    def at_once(_: str) -> None:
        end_children()
        os._exit(EXIT_INTERRUPTED)

    def is_news(record: logging.LogRecord) -> bool:
        # What the interruption was in the middle of is none: Py4J writes tracebacks of it.
        return not ending.number or record.name.partition(".")[0] == "tianzhou"

    handlers = list(logging.getLogger().handlers)
    with ShutdownSignals(CLIENT_STOP_LIMIT_S, at_once) as ending:
        for handler in handlers:
            handler.addFilter(is_news)
        try:
            yield ending
        except (KeyboardInterrupt, Exception) as error:
            # A library in the middle of something may turn the interruption into an error of its own.
            if not (ending.number or isinstance(error, KeyboardInterrupt)):
                raise
            end_children()
            raise typer.Exit(EXIT_INTERRUPTED) from None
        finally:
            for handler in handlers if not ending.number else ():
                handler.removeFilter(is_news)


def end_children() -> None:
    """End the processes this one has started: at once, for a JVM that is just starting outlives its stdin.

    But for the server: the kernel sends it a SIGTERM when this process is gone, and a second one would end it at once.
    """
    for child in children_of(os.getpid()):
        with contextlib.suppress(OSError):
            if b"\0serve\0" not in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, path.read_text(encoding="ascii").split())
    return found
