"""Event loops of commands, and how Ctrl-C ends them: cleanly, within five seconds, at once the second time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import typer

from tianzhou.cli.output import print_note
from tianzhou.cli.process import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Interruptions,
    is_within,
    signal_again,
    start_thread,
)

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

STOP_LIMIT_S = 5.0
CLIENT_STOP_LIMIT_S = 4.0
EXIT_TERMINATED = 143


class ShutdownSignals:
    """Watches for SIGINT and SIGTERM while a loop runs, its beginning and its cleaning up included.

    Python's own handlers and not the loop's, because they run also while something keeps the loop busy. Without a
    loop the first signal is a KeyboardInterrupt; one that is raised where the interpreter ignores errors (in a
    finalizer, or around a fork) is raised again. The limit also holds for what the interpreter does at its exit.

    Args:
        limit_s: how long the clean end may take.
        at_once: ends the process; gets the reason: the limit has passed, or a second signal came.
    """

    def __init__(self, limit_s: float, at_once: Callable[[str], None]) -> None:
        self.number = 0
        self._at_once = at_once
        self._limit_s = limit_s
        self._before: dict[int, Any] = {}
        self._unraisable_before = sys.unraisablehook
        self._was_ignored = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Callable[[], object] = _interrupt

    def calls(self, end: Callable[[], object]) -> None:
        """From now on the first signal calls `end` in the running loop; at once when it has come already."""
        import asyncio  # takes longer than all else here, and `--help` needs it not

        self._loop, self._end = asyncio.get_running_loop(), end
        if self.number:
            end()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            if Interruptions.noted:
                raise KeyboardInterrupt  # an import caught the first exception
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self.watch()
            self._unraisable_before, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def watch(self) -> None:
        """Take the signals back from a library that has put its own handlers in place."""
        for number in self._before:
            signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            sys.unraisablehook = self._unraisable_before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._was_ignored:
            if is_within(frame, ShutdownSignals._raise_again.__code__):
                signal_again(number)  # the interpreter would ignore the exception here, too
                return
            self._was_ignored = False
        elif self.number:
            self._at_once("stopped at once, by a second signal")
            return
        else:
            self.number = number
            start_thread(self._watch)
        if self._loop is None:
            self._end()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _raise_again(self, ignored: sys.UnraisableHookArgs) -> None:
        if self.number and isinstance(ignored.exc_value, KeyboardInterrupt):
            self._was_ignored = True
            signal_again(self.number)
        else:
            self._unraisable_before(ignored)

    def _watch(self) -> None:
        time.sleep(self._limit_s)
        self._at_once(f"not stopped cleanly within {self._limit_s:g} s")


def _interrupt() -> None:
    raise KeyboardInterrupt


def import_msgspec() -> None:
    """Import msgspec as where `typing_extensions` is not installed.

    It then takes the same names from `typing`, which has them since Python 3.11; importing the other package would cost
    a command a tenth of its time.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    hidden: dict[str, Any] = sys.modules
    hidden["typing_extensions"] = None
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def run_client(work: Coroutine[Any, Any, T]) -> T:
    """Run a client command to its end, or until SIGINT or SIGTERM, which let it clean up.

    Raises:
        typer.Exit: it was interrupted.
    """
    import asyncio

    from tianzhou.supervision import start_awaited

    import_msgspec()

    def code() -> int:
        return EXIT_TERMINATED if ending.number == signal.SIGTERM else EXIT_INTERRUPTED

    async def main() -> T:
        task = start_awaited(work)
        ending.calls(task.cancel)
        return await task

    with ShutdownSignals(CLIENT_STOP_LIMIT_S, lambda _: os._exit(code())) as ending:
        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            raise typer.Exit(code()) from None


def run_server(
    start: Callable[[], Coroutine[Any, Any, Callable[[], Awaitable[None]]]],
    *,
    over: Callable[[], Coroutine[Any, Any, object]] | None = None,
    limit_s: float = STOP_LIMIT_S,
    at_once: Callable[[], object] | None = None,
    has_garbage: bool = False,
) -> None:
    """Run a server until SIGINT or SIGTERM, which also end one that is still starting.

    A service manager learns when it serves and when it begins to stop.

    Args:
        start: starts it and returns what stops it.
        over: waits until the server has come to an end of its own; it is then stopped as by a signal.
        limit_s: how long the clean end may take.
        at_once: called, in any thread, before the process is ended without a clean end.
        has_garbage: whether its objects end in cycles while it runs (`FrozenObjects`).
    """
    import asyncio

    from tianzhou.cli.gc_freeze import FrozenObjects
    from tianzhou.cli.serving.service_manager import READY, STOPPING, ServiceManager
    from tianzhou.remoting.loop import run
    from tianzhou.supervision import start_awaited

    manager = ServiceManager.of_environment()

    async def main() -> None:
        stopping = asyncio.Event()
        manager.notify("STATUS=starting")
        starting = start_awaited(start())

        def end() -> None:
            manager.notify(STOPPING, "STATUS=stopping")
            stopping.set()
            starting.cancel()

        ending.calls(end)
        try:
            stop = await starting
        except asyncio.CancelledError:
            return
        frozen.started()
        if not stopping.is_set():
            manager.notify(READY, "STATUS=serving")
            manager.watch()
        waits: set[asyncio.Task[Any]] = {start_awaited(stopping.wait())}
        if over is not None:
            waits.add(start_awaited(over()))
        _, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        manager.unwatch()
        await stop()

    def end_at_once(why: str) -> None:
        if at_once is not None:
            at_once()
        print_note(f"{why}; the next start recovers the store")
        os._exit(EXIT_FAILED)

    with ShutdownSignals(limit_s, end_at_once) as ending, FrozenObjects(has_garbage=has_garbage) as frozen:
        run(main())
