"""Event loops of commands, and how Ctrl-C ends them: cleanly, within five seconds, at once when asked twice."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from tianzhou.cli.main import EXIT_FAILED, EXIT_INTERRUPTED
from tianzhou.cli.output import print_note

T = TypeVar("T")

STOP_LIMIT_S = 5.0
CLIENT_STOP_LIMIT_S = 4.0
EXIT_TERMINATED = 143


def run_client(work: Coroutine[Any, Any, T]) -> T:
    """Run a client command to its end, or until SIGINT or SIGTERM, which let it clean up.

    Raises:
        typer.Exit: it was interrupted.
    """
    code = EXIT_INTERRUPTED

    async def main() -> T:
        task = asyncio.ensure_future(work)

        def end(number: int) -> None:
            nonlocal code
            code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED
            task.cancel()

        with _signals(end, CLIENT_STOP_LIMIT_S, lambda _: os._exit(code)):
            return await task

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise typer.Exit(code) from None


def run_server(start: Callable[[], Coroutine[Any, Any, Callable[[], Awaitable[None]]]]) -> None:
    """Run a server until SIGINT or SIGTERM, which also end one that is still starting.

    Args:
        start: starts it and returns what stops it.
    """
    from tianzhou.remoting.loop import run

    async def main() -> None:
        asked = asyncio.Event()
        starting = asyncio.ensure_future(start())

        def end(_: int) -> None:
            asked.set()
            starting.cancel()

        with _signals(end, STOP_LIMIT_S, _end_at_once):
            try:
                stop = await starting
            except asyncio.CancelledError:
                return
            _settle_memory()
            await asked.wait()
            await stop()

    run(main())


def _settle_memory() -> None:
    """Leave what was made at the start out of collections, and collect seldom.

    A broker's garbage is freed by reference counts; at the default threshold the collector would look through
    pending records several hundred times a second for cycles that are not there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _end_at_once(why: str) -> None:
    print_note(f"{why}; the next start recovers the store")
    os._exit(EXIT_FAILED)


@contextmanager
def _signals(end: Callable[[int], None], limit_s: float, at_once: Callable[[str], None]) -> Iterator[None]:
    """Call `end` in the loop on the first signal, and `at_once` with the reason on the second or `limit_s` later."""
    # Python's own handlers instead of the loop's: they run also while something keeps the loop busy.
    loop = asyncio.get_running_loop()
    watchdog = threading.Timer(limit_s, at_once, (f"not stopped cleanly within {limit_s:g} s",))
    watchdog.daemon = True

    def handle(number: int, _: object) -> None:
        if watchdog.ident is not None:
            at_once("stopped at once, as asked twice")
            return
        watchdog.start()
        loop.call_soon_threadsafe(end, number)

    ours = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in ours}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        watchdog.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
