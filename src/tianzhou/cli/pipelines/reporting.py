"""Progress of a pipeline: a bar on a terminal, and a JSON line every second with `-o json`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Self

from tianzhou.cli.output import Output
from tianzhou.cli.writing import print_json

EVERY_S: Final = 1.0
"""Seconds between two lines."""


def figures(read: int, sent: int, total: int | None, seconds: float) -> dict[str, Any]:
    """Return the figures of a progress report.

    Args:
        read: messages read so far.
        sent: messages sent so far.
        total: messages to read; None if unknown.
        seconds: seconds since the start.
    """
    percent = None if total is None else round(100 * min(read, total) / total, 1) if total else 100.0
    return {
        "read": read,
        "of": total,
        "percent": percent,
        "sent": sent,
        "per_second": round(read / seconds, 1) if seconds > 0 else None,
    }


class PipelineReport:
    """A progress report of a pipeline. Call it inside its `with` block with the messages read and sent so far.

    Args:
        doing: description of the work, for the bar.
        total: messages to read; None if unknown.
        output: the form. With json, it prints lines `{"progress": {…}}`, none within the first second.
        now: returns the seconds of a clock.
        write: writes a line of JSON.
    """

    def __init__(
        self,
        doing: str,
        total: int | None,
        output: Output,
        *,
        now: Callable[[], float] = time.monotonic,
        write: Callable[[Any], None] = print_json,
    ) -> None:
        self._total = total
        self._now, self._write = now, write
        self._lines = output is Output.json
        self._bar: _ReportBar | None = _ReportBar(doing, total) if not self._lines and sys.stderr.isatty() else None
        self._began = self._said = now()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*why)

    def __call__(self, read: int, sent: int) -> None:
        """Update the bar, or print a line if enough time has passed."""
        now = self._now()
        if self._bar is not None:
            self._bar(figures(read, sent, self._total, now - self._began))
        elif self._lines and now - self._said >= EVERY_S:
            self._said = now
            self._write({"progress": figures(read, sent, self._total, now - self._began)})


class _ReportBar(AbstractContextManager["_ReportBar"]):
    def __init__(self, doing: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[sent]} sent"),
            TextColumn("{task.fields[per_second]}/s"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(doing, total=total, sent=0, per_second="-")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, found: dict[str, Any]) -> None:
        rate = "-" if found["per_second"] is None else f"{found['per_second']:.0f}"
        self._progress.update(self._task, completed=found["read"], sent=found["sent"], per_second=rate)
