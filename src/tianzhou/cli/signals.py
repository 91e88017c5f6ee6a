"""Event loops of commands, and their end by Ctrl-C: cleanly within five seconds, immediately at the second one."""

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
    """Handlers of SIGINT and SIGTERM while a loop runs, including its start and its cleanup.

    They are Python's own handlers instead of the loop's, because those run also while a callback blocks the loop.
    Without a loop the first signal raises KeyboardInterrupt. If the interpreter ignores the exception (in a finalizer,
    or around a fork), it is raised again. The limit also covers the interpreter's own exit.

    Args:
        limit_s: maximum seconds of a clean end.
        at_once: ends the process. Its argument is the reason: the limit has passed, or a second signal arrived.
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
        """Let the first signal call `end` in the running loop. Call it immediately if a signal has already arrived."""
        import asyncio  # This import takes longer than all others of this module, and `--help` does not need it.

        self._loop, self._end = asyncio.get_running_loop(), end
        if self.number:
            end()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            if Interruptions.noted:
                raise KeyboardInterrupt  # An import caught the first exception.
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self.watch()
            self._unraisable_before, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def watch(self) -> None:
        """Restore these handlers after a library has installed its own."""
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
                signal_again(number)  # The interpreter would ignore the exception here, too.
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
    """Import msgspec as if `typing_extensions` were not installed.

    It then imports the same names from `typing`, which has them since Python 3.11. The import of `typing_extensions`
    would take a tenth of a command's time.
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
    """Run a client command until it ends or is interrupted. SIGINT and SIGTERM let it clean up.

    Raises:
        typer.Exit: the command was interrupted.
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
    """Run a server until SIGINT or SIGTERM. The signals also end a server that is still starting.

    The service manager is notified when the server is ready and when it begins to stop.

    Args:
        start: starts the server and returns a function that stops it.
        over: waits until the server ends by itself. It is then stopped as by a signal.
        limit_s: maximum seconds of a clean end.
        at_once: called in any thread before the process is ended without a clean end.
        has_garbage: whether objects of the server end in cycles while it runs (`FrozenObjects`).
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
