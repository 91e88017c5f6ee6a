"""An event loop whose time advances only while a caller waits for it and no other work is left.

Servers, clients and their connections live on it, and handlers run in its threads. Its rules:

1. Time stands still unless a coroutine under `spending` runs.
2. Time advances only when the loop is quiet: no callback is ready, no connection has bytes to read, and no thread of
   the loop works. A thread that waits for the loop (a handler that sends with a blocking client) does not count as
   working.
3. Time then advances to the next timer, and that timer fires: never early. Inside `lateness` timers may fire late, so
   that two hours of timers every 50 ms are affordable. Timers of the cluster's user may be a little late, and timers of
   Tianzhou's servers and clients, which run all the time, may be later. `appointments` are never late.

Rule 2 needs all ends of all connections on this one loop. A connection to a server that listens on the loop is in
memory (`pipe`), costs no time in the kernel, and has no unknown bytes in flight. A client elsewhere connects over a
socket. It is served, but the loop does not wait for it.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import selectors
import socket
import sys
import threading
import time
from asyncio import events
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar
from unittest.mock import patch

from tianzhou.clock import Clock, SystemClock
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.server import RemotingServer
from tianzhou.store.log.flush import Ranges, SyncThread
from tianzhou.testing.clock import VirtualClock
from tianzhou.testing.pipe import FIRST_PORT, LAST_PORT, PipeEnd

T = TypeVar("T")

ARRIVAL_S = 0.0001
"""Maximum real time that a byte written to a loopback connection takes to become readable, seconds."""

LOOK_EVERY = 10
"""Number of busy turns of the loop after which one turn also polls the sockets."""
SERVERS = ("tianzhou.store.", "tianzhou.broker.")
LOOPBACK = frozenset({"127.0.0.1", "localhost"})

_here = threading.local()


class _PatientSelector(selectors.DefaultSelector):
    """Asks the loop for a timeout when there is no work."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[float | None], float | None] = lambda timeout: timeout
        self._passed_over = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._passed_over < LOOK_EVERY:
            self._passed_over += 1
            return []  # there is other work, nearly all of it without the kernel
        self._passed_over = 0
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        return super().select(self.idle(timeout))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, see the module.

    Use it as a loop factory: `asyncio.Runner(loop_factory=VirtualLoop)`.

    Args:
        clock: the clock that it advances.
        spends: whether time may always advance, as `asyncio.run` needs; otherwise only under `spending`.
    """

    def __init__(self, clock: VirtualClock | None = None, *, spends: bool = True) -> None:
        self.clock = clock or VirtualClock(time.time_ns() // 1_000_000)
        selector = _PatientSelector()
        super().__init__(selector)
        selector.idle = self._idle
        self._spenders = 1 if spends else 0
        self._working = 0
        self._wrote = False
        self._quiet: list[asyncio.Future[None]] = []
        self._late, self._ours_late = 0.0, 0.0
        self._stops: list[float] = []
        self._theirs: list[float] = []
        self.limits: list[Callable[[], float]] = []
        """Maximum delays of timers for parts of the loop, which also bound `lateness`."""
        self.appointments: list[Callable[[], Iterable[float]]] = []
        """Times of work that must not be late."""
        self.jumps = 0
        """Number of advances of the time."""
        self._servers: dict[int, RemotingServer] = {}
        self._client_ports = itertools.cycle(range(FIRST_PORT, LAST_PORT + 1))
        _Clocks.join(self)

    def close(self) -> None:
        """Close as asyncio does."""
        if not self.is_closed():
            _Clocks.leave(self)
        super().close()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.clock.monotonic()

    # spending time

    async def spending(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; time may advance meanwhile, by rule 2."""
        self._spenders += 1
        try:
            return await work
        finally:
            self._spenders -= 1

    async def released(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a thread of this loop that waits for it meanwhile."""
        self._working -= 1
        try:
            return await work
        finally:
            self._working += 1

    async def advance(self, seconds: float, late_s: float, ours_late_s: float | None = None) -> None:
        """Advance exactly so many seconds, with timers late as in `lateness`; return when the loop is quiet."""
        await self.settle()
        target = self.time() + seconds
        self._stops.append(target)
        try:
            with self.lateness(late_s, ours_late_s):
                await asyncio.sleep(seconds)
        finally:
            self._stops.remove(target)
        await self.settle()

    async def settle(self) -> None:
        """Return when the loop is quiet; time does not advance."""
        done = self.create_future()
        self._quiet.append(done)
        await done

    @contextmanager
    def lateness(self, seconds: float, ours: float | None = None) -> Iterator[None]:
        """Allow timers to be late meanwhile.

        Args:
            seconds: maximum delay for the cluster's user.
            ours: maximum delay for Tianzhou's servers and clients; by default the same.
        """
        before = self._late, self._ours_late
        self._late = max(seconds, self._late)
        self._ours_late = max(seconds if ours is None else ours, self._ours_late)
        try:
            yield
        finally:
            self._late, self._ours_late = before

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Set a timer as asyncio does; record the timers that are not Tianzhou's own."""
        if not _ours(sys._getframe(1)):
            heapq.heappush(self._theirs, when)
        return super().call_at(when, callback, *args, context=context)

    def _idle(self, timeout: float | None) -> float | None:
        """Return the selector's next timeout: 0 to poll again, None to wait for sockets and threads."""
        if self._working > 0:
            return None
        if self._wrote:
            # On loopback, written bytes are nearly always readable at once; a busy kernel may take a moment.
            self._wrote = False
            time.sleep(ARRIVAL_S)
            return 0
        if self._quiet:
            quiet, self._quiet = self._quiet, []
            for future in quiet:
                if not future.done():
                    future.set_result(None)
            return 0
        if timeout is None or self._spenders <= 0:
            return None
        self._move(timeout)
        return 0

    def _move(self, timeout: float) -> None:
        now, theirs = self.time(), self._theirs
        while theirs and theirs[0] <= now:
            heapq.heappop(theirs)
        most = min((limit() for limit in self.limits), default=math.inf)
        latest = now + min(self._ours_late, most)
        if theirs:
            latest = min(latest, theirs[0] + min(self._late, most))
        # Round a late time up to a whole millisecond: clocks have that resolution, and sleepers wake in it.
        target = now + timeout if now + timeout >= latest else math.ceil(latest * 1000 - 1e-6) / 1000
        fixed = itertools.chain(self._stops, *(when() for when in self.appointments))
        self.jumps += 1
        self.clock.advance(min([target, *(one for one in fixed if one > now)]) - now)

    # events that rule 2 must see

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run as asyncio does; file work of servers runs at once, because no other task waits."""
        if str(getattr(func, "__module__", "")).startswith(SERVERS):
            return self.done_at_once(func, *args)
        future = super().run_in_executor(executor, functools.partial(self._as_worker, func), *args)
        self._working += 1
        future.add_done_callback(self._worked)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's name
        """Shut down as asyncio does, without its limit of 300 s, which pass at once in virtual time."""
        del timeout
        await super().shutdown_default_executor()

    def done_at_once(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function, and return a future with its result or exception, as of a thread."""
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - it belongs to the awaiting task
            future.set_exception(error)
        return future

    def _as_worker(self, function: Callable[..., Any], *arguments: Any) -> Any:
        _here.worker = self
        try:
            return function(*arguments)
        finally:
            _here.worker = None

    def _worked(self, _future: asyncio.Future[Any]) -> None:
        self._working -= 1

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Add a reader as asyncio does; record listening servers."""
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, RemotingServer) and isinstance(fd, socket.socket) and _listens(fd):
            self._servers[fd.getsockname()[1]] = owner
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """Remove a reader as asyncio does."""
        if isinstance(fd, socket.socket) and _listens(fd):
            self._servers.pop(fd.getsockname()[1], None)
        return super().remove_reader(fd)

    async def create_connection(self, *args: Any, **keywords: Any) -> Any:
        """Connect as asyncio does; in memory to a server of this loop, unless TLS is requested."""
        if len(args) == 3 and args[1] in LOOPBACK and not keywords.get("ssl"):
            server = self._servers.get(args[2])
            if server is not None:
                protocol = args[0]()
                ports = (next(self._client_ports), args[2])
                near, _ = PipeEnd.pair(self, protocol, Connection(server.group), ports)
                return near, protocol
        self._wrote = True
        return self._noticed(await super().create_connection(*args, **keywords))

    async def connect_accepted_socket(self, *args: Any, **keywords: Any) -> Any:
        """Connect an accepted socket as asyncio does."""
        return self._noticed(await super().connect_accepted_socket(*args, **keywords))

    def _noticed(self, made: tuple[Any, Any]) -> tuple[Any, Any]:
        transport = made[0]
        real, real_lines = transport.write, transport.writelines

        def write(data: Any) -> None:
            self._wrote = True
            real(data)

        def writelines(data: Any) -> None:
            self._wrote = True
            real_lines(data)

        transport.write, transport.writelines = write, writelines
        self._wrote = True
        return made


def _ours(frame: FrameType | None) -> bool:
    """Whether Tianzhou's own code sets a timer, directly or through asyncio's functions."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith("asyncio"):
            return module.startswith("tianzhou.") and not module.startswith("tianzhou.testing.")
        frame = frame.f_back
    return True


def _listens(one: socket.socket) -> bool:
    return one.fileno() >= 0 and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def worker_of() -> VirtualLoop | None:
    """Return the loop whose executor runs this thread; None for any other thread."""
    return getattr(_here, "worker", None)


class _Clocks:
    """Patches of `SystemClock` for virtual loops: while any exist, it reads the time of the calling loop.

    Code under test creates its clients and passes them no clock. Threads without a loop read the time of the cluster
    whose blocking clients they would get (`adopted`).
    """

    loops: set[VirtualLoop] = set()  # noqa: RUF012 - one for the process on purpose
    adopted: list[VirtualClock] = []  # noqa: RUF012
    patches: list[Any] = []  # noqa: RUF012
    lock = threading.Lock()

    @classmethod
    def join(cls, loop: VirtualLoop) -> None:
        with cls.lock:
            if not cls.loops:
                for name in ("now_ms", "monotonic"):
                    cls.patches.append(patch.object(SystemClock, name, cls._reading(name)))
                cls.patches.append(patch.object(SyncThread, "sync", cls._syncing()))
                for each in cls.patches:
                    each.start()
            cls.loops.add(loop)

    @classmethod
    def leave(cls, loop: VirtualLoop) -> None:
        with cls.lock:
            cls.loops.discard(loop)
            while not cls.loops and cls.patches:
                cls.patches.pop().stop()

    @classmethod
    def _syncing(cls) -> Callable[[SyncThread, Ranges], asyncio.Future[None]]:
        real = SyncThread.sync

        def sync(self: SyncThread, ranges: Ranges) -> asyncio.Future[None]:
            running = asyncio.get_running_loop()
            # The sync thread belongs to no executor, so the loop would not see that it works.
            return running.done_at_once(self.bring, ranges) if isinstance(running, VirtualLoop) else real(self, ranges)

        return sync

    @classmethod
    def _reading(cls, name: str) -> Callable[[SystemClock], Any]:
        real = SystemClock.__dict__[name]  # a method, or a static function

        def read(self: SystemClock) -> Any:
            running = events._get_running_loop()
            clock: Clock | None = None
            if isinstance(running, VirtualLoop):
                clock = running.clock
            elif running is None:
                worker = worker_of()
                clock = worker.clock if worker is not None else cls.adopted[-1] if cls.adopted else None
            return (real.__get__(self, SystemClock) if clock is None else getattr(clock, name))()

        return read


@contextmanager
def adopted(clock: VirtualClock) -> Iterator[None]:
    """Make threads without a loop read this clock and not the machine's."""
    _Clocks.adopted.append(clock)
    try:
        yield
    finally:
        _Clocks.adopted.remove(clock)


def run_virtual(main: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """Run a coroutine as `asyncio.run` does, in virtual time: a sleep of an hour takes none, with sockets and threads.

    For tests of async code around an `AsyncCluster(virtual=True)`.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main)
