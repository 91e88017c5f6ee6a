"""An event loop whose time passes only while somebody waits for it and nothing else is left to do.

Servers, clients and their connections live on it, handlers run in its threads. Its rules:

1. Time stands still unless it is being spent: by a coroutine that runs under `spending`.
2. It moves only when the loop is quiet: nothing is ready, no connection has anything to read, no thread of the loop
   works. A thread that waits for the loop itself (a handler that sends by a blocking client) does not count as working.
3. It then moves to the next timer, and that one fires: never early. Inside `lateness` timers may fire late, which
   is what makes two hours of timers every 50 ms affordable: by a little those of whoever uses the cluster, by more
   those of Tianzhou's servers and clients, which look after themselves all the time. For `appointments` nobody is late.

Rule 2 needs all ends of all connections on this one loop. Whoever dials a server that listens on the loop gets a
connection in memory (`pipe`), which costs no time in the kernel and needs no guess about what is still on its way. A
client elsewhere comes over a socket; it is served, but not waited for.
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
"""How long a byte that was written to a loopback connection may take to become readable, in real time."""

LOOK_EVERY = 10
"""Turns of the loop with work to do, of which one looks whether a socket has something as well."""
SERVERS = ("tianzhou.store.", "tianzhou.broker.")
LOOPBACK = frozenset({"127.0.0.1", "localhost"})

_here = threading.local()


class _PatientSelector(selectors.DefaultSelector):
    """Asks the loop what to do when there is nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[float | None], float | None] = lambda timeout: timeout
        self._passed_over = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 and self._passed_over < LOOK_EVERY:
            self._passed_over += 1
            return []  # there is other work; nearly all of it comes without the kernel
        self._passed_over = 0
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        return super().select(self.idle(timeout))


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. Use it as a loop factory: `asyncio.Runner(loop_factory=VirtualLoop)`.

    Args:
        clock: the clock it moves.
        spends: whether time is spent all along, as it is right for `asyncio.run`; else only under `spending`.
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
        """How late timers may be for those who live here, whatever `lateness` says."""
        self.appointments: list[Callable[[], Iterable[float]]] = []
        """When those who live here have something to do that must not be late."""
        self.jumps = 0
        """How often time has moved."""
        self._servers: dict[int, RemotingServer] = {}
        self._client_ports = itertools.cycle(range(FIRST_PORT, LAST_PORT + 1))
        _Clocks.join(self)

    def close(self) -> None:
        """As asyncio's."""
        if not self.is_closed():
            _Clocks.leave(self)
        super().close()

    def time(self) -> float:
        """Virtual seconds."""
        return self.clock.monotonic()

    # spending time

    async def spending(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; time may pass meanwhile, as rule 2 says."""
        self._spenders += 1
        try:
            return await work
        finally:
            self._spenders -= 1

    async def released(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of a thread of this loop that waits for it meanwhile."""
        self._working -= 1
        try:
            return await work
        finally:
            self._working += 1

    async def advance(self, seconds: float, late_s: float, ours_late_s: float | None = None) -> None:
        """Let exactly so much time pass, with timers late as in `lateness`, and return when all is quiet again."""
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
        """Return when the loop is quiet; no time passes."""
        done = self.create_future()
        self._quiet.append(done)
        await done

    @contextmanager
    def lateness(self, seconds: float, ours: float | None = None) -> Iterator[None]:
        """Let timers be late by up to so much meanwhile.

        Args:
            seconds: those of whoever uses the cluster.
            ours: those of Tianzhou's servers and clients; the same unless given.
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
        """As asyncio's; notes the timers that are not Tianzhou's own."""
        if not _ours(sys._getframe(1)):
            heapq.heappush(self._theirs, when)
        return super().call_at(when, callback, *args, context=context)

    def _idle(self, timeout: float | None) -> float | None:
        """What the selector does next: 0 to look again, None to wait for sockets and threads."""
        if self._working > 0:
            return None
        if self._wrote:
            # On loopback what was written can nearly always be read at once; a busy kernel may take a moment.
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
        # What is late comes in a whole millisecond: clocks tell no less, and who sleeps until one wakes in it.
        target = now + timeout if now + timeout >= latest else math.ceil(latest * 1000 - 1e-6) / 1000
        fixed = itertools.chain(self._stops, *(when() for when in self.appointments))
        self.jumps += 1
        self.clock.advance(min([target, *(one for one in fixed if one > now)]) - now)

    # what has to be known about for rule 2

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """As asyncio's; what servers have threads do with their files is done at once, because nobody else waits."""
        if str(getattr(func, "__module__", "")).startswith(SERVERS):
            return self.done_at_once(func, *args)
        future = super().run_in_executor(executor, functools.partial(self._as_worker, func), *args)
        self._working += 1
        future.add_done_callback(self._worked)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's name
        """As asyncio's, without its limit: from Python 3.12 on it is 300 s, which pass at once in virtual time."""
        del timeout
        await super().shutdown_default_executor()

    def done_at_once(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What a function returns or raises, as who awaits a thread gets it."""
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - it belongs to who awaits it
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
        """As asyncio's; notes who listens."""
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, RemotingServer) and isinstance(fd, socket.socket) and _listens(fd):
            self._servers[fd.getsockname()[1]] = owner
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """As asyncio's."""
        if isinstance(fd, socket.socket) and _listens(fd):
            self._servers.pop(fd.getsockname()[1], None)
        return super().remove_reader(fd)

    async def create_connection(self, *args: Any, **keywords: Any) -> Any:
        """As asyncio's; in memory to a server of this loop, unless TLS is wanted."""
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
        """As asyncio's."""
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
    """Whether Tianzhou's own code sets a timer, as it does by asyncio's functions."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith("asyncio"):
            return module.startswith("tianzhou.") and not module.startswith("tianzhou.testing.")
        frame = frame.f_back
    return True


def _listens(one: socket.socket) -> bool:
    return one.fileno() >= 0 and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def worker_of() -> VirtualLoop | None:
    """The loop whose thread of an executor this is, None for any other thread."""
    return getattr(_here, "worker", None)


class _Clocks:
    """While there are virtual loops, `SystemClock` reads the time of the one it is called on.

    Code under test makes its clients itself and gives them no clock. Threads without a loop read the time of the
    cluster whose blocking clients they would get (`adopted`).
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
            # Its thread is none of an executor, so nobody would know that it works.
            return running.done_at_once(self.bring, ranges) if isinstance(running, VirtualLoop) else real(self, ranges)

        return sync

    @classmethod
    def _reading(cls, name: str) -> Callable[[SystemClock], Any]:
        real = SystemClock.__dict__[name]  # a method, or a function of no class

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
    """Have threads without a loop read this clock where they would read the machine's."""
    _Clocks.adopted.append(clock)
    try:
        yield
    finally:
        _Clocks.adopted.remove(clock)


def run_virtual(main: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """`asyncio.run` in virtual time: a sleep of an hour takes none, with sockets and threads.

    For tests of async code around an `AsyncCluster(virtual=True)`.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main)
