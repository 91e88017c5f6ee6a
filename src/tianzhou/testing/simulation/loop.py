"""An event loop without a kernel: its time is a number, its connections are `network`'s, its steps are counted.

The order of everything that happens on it follows from what was scheduled, and from nothing else. Callbacks run in
their asyncio order; those of processes that have died are dropped.
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
"""Steps after which a run counts as one that goes round in circles."""
CLOSINGS = 100
"""How many times a coroutine may wait while it is closed."""


class StuckError(Exception):
    """Nothing is left that could ever happen, or there is no end to it."""


class SimulationLoop(asyncio.BaseEventLoop):
    """See the module.

    Args:
        rng: decides how long threads take.

    Attributes:
        steps: callbacks that were run.
        network: where connections are made.
    """

    network: Network

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.steps = 0
        self._rng = rng
        self._now_s = 0.0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    # BaseEventLoop's seams

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
        """A cancelled timer is passed over when its time comes."""

    def _process_events(self, event_list: Any) -> None:
        """There is no kernel that could have any."""

    def _write_to_self(self) -> None:
        """Nobody sleeps that would have to be woken."""

    def resume(self, process: SimulatedProcess) -> None:
        """Let a process go on that was stopped: what was due meanwhile is due now."""
        held, process.held = process.held, None
        self._ready.extend(held or ())  # type: ignore[attr-defined]

    def abandon(self, tasks: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Let go of all tasks: what they would do at their end is done to nobody.

        Args:
            tasks: further ones.
        """
        # What waits in a `finally`, deep down, complains of being let go.
        with patch.object(sys, "unraisablehook", lambda _: None):
            for task in (*tasks, *asyncio.all_tasks(self)):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                # A task that has not begun never reaches its `await`, so close what it was to await.
                arguments = _arguments_of_unstarted(coroutine)
                for _ in range(CLOSINGS):
                    try:
                        coroutine.close()
                    except RuntimeError:
                        continue
                    except BaseException:  # noqa: BLE001 - nobody is there any more whom it could concern
                        pass
                    break
                for argument in arguments:
                    close_unstarted(argument)

    # what servers and clients ask of a loop

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A call that a thread would make is made a moment later."""
        return self.done_later(self._rng.random() * 0.002, func, *args)

    def done_later(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function after a while, for who awaits its result."""
        future = self.create_future()

        def call() -> None:
            try:
                result = function(*arguments)
            except Exception as error:  # noqa: BLE001 - it belongs to who awaits it
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(seconds, call)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **keywords: Any) -> list[Any]:
        """Addresses are numbers already."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, int(port)))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """As asyncio's, over the network of the simulation."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """As asyncio's."""
        return self.network.serve(protocol_factory, host, port)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        """As asyncio's, for what `network`'s listeners accept."""
        protocol = protocol_factory()
        sock.end.attach(protocol)
        return sock.end, protocol

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """As asyncio's, for listeners and connections of `network`."""
        fd.on_readable(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        """As asyncio's."""
        return bool(fd.on_readable(None, ()))


def _idle(timer: Any) -> bool:
    if timer._cancelled:
        return True
    process = timer._context.get(PROCESS)
    return process is not None and process.ended


def _arguments_of_unstarted(coroutine: Any) -> list[Any]:
    """Return the arguments of a coroutine that has not begun; empty for one that has, or that is no native one."""
    if not inspect.iscoroutine(coroutine) or inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return []
    frame = coroutine.cr_frame
    return [] if frame is None else list(frame.f_locals.values())
