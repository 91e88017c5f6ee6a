"""Progress bars, shown only on terminals and for long work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Advance = Callable[[int], None]
"""Called with the absolute amount of finished work."""


def progress(description: str, total: int | None, *, worth_it: bool = True) -> AbstractContextManager[Advance]:
    """Return a progress bar as a context manager. Its value is called with the amount of finished work.

    Args:
        description: description of the work.
        total: amount of all work, None if unknown.
        worth_it: whether the work is long enough for a bar.
    """
    if worth_it and sys.stderr.isatty():
        return _Bar(description, total)
    return nullcontext(lambda _: None)


class _Bar:
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

    def __enter__(self) -> Advance:
        self._progress.start()
        return lambda done: self._progress.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
