"""An event loop without a kernel: virtual time, simulated connections (`network`), and counted steps.

The order of all callbacks depends only on the scheduled callbacks. Callbacks run in their asyncio order; the loop drops
callbacks of dead processes.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import socket
import sys
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tianzhou.chained_coroutines import close_unstarted
from tianzhou.testing.simulation.processes import PROCESS, SimulatedProcess

if TYPE_CHECKING:
    from tianzhou.testing.simulation.network import Network

MOST_STEPS = 5_000_000
"""Number of steps after which a run counts as endless."""
CLOSINGS = 100
"""Maximum number of waits of a coroutine while it is closed."""


class StuckError(Exception):
    """The error of a run without further events, or without an end."""


class SimulationLoop(asyncio.BaseEventLoop):
    """The event loop of a simulation, see the module.

    Args:
        rng: decides how long threads take.

    Attributes:
        steps: number of callbacks run.
        network: creates connections.
    """

    network: Network

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.steps = 0
        self._rng = rng
        self._now_s = 0.0

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now_s

    # overridden methods of BaseEventLoop

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready:
            while scheduled and _idle(scheduled[0]):
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                raise StuckError("nothing is left to happen")
            self._now_s = max(self._now_s, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._now_s:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        if self.steps > MOST_STEPS:
            raise StuckError(f"no end after {self.steps} steps")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None:
                if process.ended:
                    continue
                if process.held is not None:
                    process.held.append(handle)
                    continue
                process.steps += 1
                if process.on_step is not None:
                    process.on_step()
                    if process.ended:
                        continue
            self.steps += 1
            handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing; a cancelled timer is skipped when it is due."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing; without a kernel, there are no I/O events."""

    def _write_to_self(self) -> None:
        """Do nothing; no thread sleeps in a selector."""

    def resume(self, process: SimulatedProcess) -> None:
        """Resume a stopped process; its overdue callbacks run now."""
        held, process.held = process.held, None
        self._ready.extend(held or ())  # type: ignore[attr-defined]

    def abandon(self, tasks: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Close all tasks; the effects of their cleanup reach no program.

        Args:
            tasks: further tasks.
        """
        # A coroutine that awaits in a nested `finally` reports an error when it is closed.
        with patch.object(sys, "unraisablehook", lambda _: None):
            for task in (*tasks, *asyncio.all_tasks(self)):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                # A task that has not begun never reaches its `await`, so close the coroutine that it would await.
                arguments = _arguments_of_unstarted(coroutine)
                for _ in range(CLOSINGS):
                    try:
                        coroutine.close()
                    except RuntimeError:
                        continue
                    except BaseException:  # noqa: BLE001 - no program remains that the error could concern
                        pass
                    break
                for argument in arguments:
                    close_unstarted(argument)

    # calls of servers and clients

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a thread's function a moment later."""
        return self.done_later(self._rng.random() * 0.002, func, *args)

    def done_later(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function after a delay, and return a future with its result."""
        future = self.create_future()

        def call() -> None:
            try:
                result = function(*arguments)
            except Exception as error:  # noqa: BLE001 - it belongs to the awaiting task
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(seconds, call)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **keywords: Any) -> list[Any]:
        """Return the address itself; hosts are numeric here."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, int(port)))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect as asyncio does, over the simulated network."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Create a server as asyncio does."""
        return self.network.serve(protocol_factory, host, port)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        """Connect an accepted socket as asyncio does, for listeners of `network`."""
        protocol = protocol_factory()
        sock.end.attach(protocol)
        return sock.end, protocol

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Add a reader as asyncio does, for listeners and connections of `network`."""
        fd.on_readable(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        """Remove a reader as asyncio does."""
        return bool(fd.on_readable(None, ()))


def _idle(timer: Any) -> bool:
    if timer._cancelled:
        return True
    process = timer._context.get(PROCESS)
    return process is not None and process.ended


def _arguments_of_unstarted(coroutine: Any) -> list[Any]:
    """Return the arguments of a native coroutine that has not begun; empty for any other."""
    if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return []
    frame = coroutine.cr_frame
    return [] if frame is None else list(frame.f_locals.values())
