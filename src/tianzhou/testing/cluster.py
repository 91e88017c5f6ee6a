"""A name server and brokers inside a test's process, on a loop in its own thread, for blocking tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack

from tianzhou import sync
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ProducerKeywords, PullKeywords, PushKeywords
from tianzhou.client.producer.transactions import Check
from tianzhou.errors import ClientError
from tianzhou.model import ConsumeFromWhere
from tianzhou.remoting.loop import loop_factory
from tianzhou.supervision import run_owned_threadsafe
from tianzhou.sync import background
from tianzhou.sync.background import STOP_WITHIN_S, Background
from tianzhou.testing.async_cluster import DEFAULT_GROUP, AsyncCluster, running_loop, undecided
from tianzhou.testing.brokers import ClusterBroker
from tianzhou.testing.faults import Faults
from tianzhou.testing.options import ClusterOptions, NotReached, in_seconds
from tianzhou.testing.virtual_loop import VirtualLoop, adopted, worker_of

T = TypeVar("T")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")

LONGEST_CALL = timedelta(hours=1)
LONGEST_RUN = timedelta(days=1)


class _Stoppable(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=_Stoppable)


class ClusterThread(Background):
    """The event loop of a cluster, in a thread.

    Args:
        virtual: whether its time is virtual; it then advances only during blocking calls.
    """

    def __init__(self, *, virtual: bool) -> None:
        super().__init__(VirtualLoop(spends=False) if virtual else loop_factory()(), "tianzhou-test-cluster")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of a blocking client: see `Background.run`."""
        self._check(work)
        loop = self.loop
        if isinstance(loop, VirtualLoop) and worker_of() is not loop:
            # A handler's calls do not advance time. The test that waits for the handler advances it.
            work = self._limited(loop, work, LONGEST_CALL, "call")
        return self.drive(work)

    def run_main(self, work: Coroutine[Any, Any, T], within: timedelta) -> T:
        """Run a coroutine of the test."""
        self._check(work)
        loop = self.loop
        return self.drive(self._limited(loop, work, within, "run") if isinstance(loop, VirtualLoop) else work)

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop, and wait for it."""
        self._check(work)
        loop = self.loop
        if isinstance(loop, VirtualLoop) and worker_of() is loop:
            work = loop.released(work)
        return super().run(work)

    def _check(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.loop.is_closed():
            work.close()
            raise ClientError(
                "the test cluster is closed, and its clients with it; stop them before, or leave that to the cluster"
            )
        if running_loop() is not None and threading.current_thread() is not self._thread:
            work.close()
            raise ClientError(
                "a blocking call of a test cluster would stop the event loop it is made on; "
                "in async code await the methods of cluster.aio instead, or run it by cluster.run(…)"
            )

    @staticmethod
    async def _limited(loop: VirtualLoop, work: Coroutine[Any, Any, T], limit: timedelta, what: str) -> T:
        try:
            async with asyncio.timeout(limit.total_seconds()) as timer:
                return await loop.spending(work)
        except TimeoutError:
            if not timer.expired():
                raise
            raise ClientError(
                f"a blocking {what} did not end within {limit} of virtual time: nothing that time could bring ends it"
            ) from None

    def stop(self) -> None:
        """Cancel all tasks of the loop, and end the loop and the thread."""
        if self._thread.is_alive():
            loop = self.loop
            ending = loop.spending(_end_all()) if isinstance(loop, VirtualLoop) else _end_all()
            with contextlib.suppress(TimeoutError):
                run_owned_threadsafe(ending, loop).result(STOP_WITHIN_S)
            super().stop()
        if not self._thread.is_alive():
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Adoption:
    """The place of `tianzhou.sync` objects that code under test creates: the newest virtual cluster."""

    threads: list[ClusterThread] = []  # noqa: RUF012 - one for the process on purpose
    before: Background | None = None

    @classmethod
    @contextmanager
    def of(cls, thread: ClusterThread, loop: VirtualLoop) -> Iterator[None]:
        before = background.replace(thread)
        if not cls.threads:
            cls.before = before
        cls.threads.append(thread)
        try:
            with adopted(loop.clock):
                yield
        finally:
            cls.threads.remove(thread)
            background.replace(cls.threads[-1] if cls.threads else cls.before)


class _Twin(Protocol[A_co]):
    """A blocking object and the async object behind it."""

    @property
    def aio(self) -> A_co: ...

    def _run(self, work: Coroutine[Any, Any, T]) -> T: ...


def _blocking(
    method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Twin[A_co], P], T]:
    """Return the blocking twin of a coroutine method, with its parameters and its docstring."""

    @wraps(method)
    def call(self: _Twin[A_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return self._run(method(self.aio, *args, **kwargs))
        except NotReached as error:
            raise error.with_traceback(None) from None

    return call


class BlockingBroker:
    """One broker of a cluster.

    Args:
        aio: the async broker.
        thread: the thread of the cluster.
    """

    def __init__(self, aio: ClusterBroker, thread: ClusterThread) -> None:
        self.aio = aio
        self._run = thread.run

    @property
    def name(self) -> str:
        """Name of the broker."""
        return self.aio.name

    @property
    def faults(self) -> Faults:
        """Injects faults into this broker."""
        return self.aio.faults

    @property
    def address(self) -> str:
        """Address of the broker, `host:port`; the same after each start."""
        return self.aio.address

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self.aio.is_running

    start = _blocking(ClusterBroker.start)
    stop = _blocking(ClusterBroker.stop)
    kill = _blocking(ClusterBroker.kill)

    @contextmanager
    def down(self, *, kill: bool = False) -> Iterator[None]:
        """Stop the broker for the block, and start it again afterwards.

        Args:
            kill: whether it is killed instead of stopped, see `ClusterBroker.kill`.
        """
        self.kill() if kill else self.stop()
        try:
            yield
        finally:
            self.start()


class Cluster:
    """A name server and brokers in this process; `with Cluster() as cluster`, or the fixture `tianzhou_cluster`.

    Its clients are those of `tianzhou.sync`. With `virtual=True` the time of the whole cluster stands still and
    advances only by the rules of `docs/howto/test-your-consumers.md`. Clients of `tianzhou.sync` that code under test
    creates then live in the cluster as well.

    Args:
        options: see `ClusterOptions`; single fields may be given by name instead.

    Attributes:
        aio: the async cluster, awaitable on any event loop.

    Raises:
        ConfigError: there is no such option or setting.
    """

    def __init__(self, options: ClusterOptions | None = None, **fields: Any) -> None:
        self.aio = AsyncCluster(options, **fields)
        self._stack = ExitStack()
        self._thread: ClusterThread | None = None
        self._clients: list[_Stoppable] = []

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ClientError("the cluster was started before; make a new one")
        with ExitStack() as stack:
            thread = self._thread = ClusterThread(virtual=self.aio.options.virtual)
            stack.callback(thread.stop)
            thread.run(self.aio.__aenter__())
            stack.callback(lambda: thread.run(self.aio.__aexit__(None, None, None)))
            if isinstance(thread.loop, VirtualLoop):
                stack.enter_context(_Adoption.of(thread, thread.loop))
            stack.callback(self._stop_clients)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all clients of the cluster, and the servers; a second call has no effect."""
        self._stack.close()

    def _stop_clients(self) -> None:
        self.faults.clear()
        made, self._clients = self._clients, []
        for one in reversed(made):
            one.stop()

    @property
    def _home(self) -> ClusterThread:
        if self._thread is None:
            raise ClientError("the cluster was not started; use 'with Cluster() as cluster'")
        return self._thread

    @property
    def namesrv_addr(self) -> str:
        """The name server's address, for clients."""
        return self.aio.namesrv_addr

    @property
    def brokers(self) -> dict[str, BlockingBroker]:
        """The brokers by name."""
        return {name: BlockingBroker(broker, self._home) for name, broker in self.aio.brokers.items()}

    @property
    def faults(self) -> Faults:
        """Injects faults into all brokers at once; `brokers[name].faults` into one of them."""
        return self.aio.faults

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
        return self._home.drive(work)

    kill = _blocking(AsyncCluster.kill)
    up = _blocking(AsyncCluster.up)

    # --- clients ---------------------------------------------------------------------------------------------

    def producer(
        self, group: str = DEFAULT_GROUP, *, instance: ClientInstance | None = None, **options: Unpack[ProducerKeywords]
    ) -> sync.Producer:
        """Return a producer of this cluster, for a `with` block; see `tianzhou.sync.Producer`."""
        return self._made(lambda: sync.Producer(group, instance=instance, **self.client_options(**options)))

    def transaction_producer(
        self, group: str = DEFAULT_GROUP, *, check: Check | None = None, **options: Any
    ) -> sync.TransactionProducer:
        """Return a transaction producer; see `AsyncCluster.transaction_producer`."""
        options["check"] = check or undecided
        return self._made(lambda: sync.TransactionProducer(group, **self.client_options(**options)))

    def push_consumer(
        self, group: str, *, instance: ClientInstance | None = None, **options: Unpack[PushKeywords]
    ) -> sync.PushConsumer:
        """Return a push consumer; see `AsyncCluster.push_consumer`. Subscribe, then use it in a `with` block."""
        options.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return self._made(lambda: sync.PushConsumer(group, instance=instance, **self.client_options(**options)))

    def pull_consumer(
        self, group: str, *, instance: ClientInstance | None = None, **options: Unpack[PullKeywords]
    ) -> sync.PullConsumer:
        """Return a pull consumer; see `AsyncCluster.pull_consumer`."""
        options.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return self._made(lambda: sync.PullConsumer(group, instance=instance, **self.client_options(**options)))

    def admin(self, **options: Any) -> sync.Admin:
        """Return admin operations on this cluster, for a `with` block; see `tianzhou.sync.Admin`."""
        with self._making():
            return sync.Admin(**self.client_options(**options))

    def client_options(self, **options: Any) -> dict[str, Any]:
        """Return the options of a client; see `AsyncCluster.client_options`."""
        return self.aio.client_options(**options)

    def _made(self, make: Callable[[], S]) -> S:
        with self._making():
            one = make()
        self._clients.append(one)
        return one

    @contextmanager
    def _making(self) -> Iterator[None]:
        home = self._home
        with _Adoption.of(home, home.loop) if isinstance(home.loop, VirtualLoop) else nullcontext():
            yield

    # --- topics and messages ---------------------------------------------------------------------------------

    create_topic = _blocking(AsyncCluster.create_topic)
    send = _blocking(AsyncCluster.send)
    messages = _blocking(AsyncCluster.messages)
    dead_letters = _blocking(AsyncCluster.dead_letters)

    # --- time ------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The cluster's time, ms since the epoch."""
        return self.aio.now_ms

    @property
    def elapsed(self) -> timedelta:
        """Cluster time since the start."""
        return self.aio.elapsed

    advance = _blocking(AsyncCluster.advance)
    settle = _blocking(AsyncCluster.settle)
    wait_until_consumed = _blocking(AsyncCluster.wait_until_consumed)

    def wait_until(self, condition: Callable[[], object], what: str = "", *, within: timedelta | float = 30) -> None:
        """Wait until a condition holds; see `AsyncCluster.wait_until`.

        The calling thread calls the condition between steps.
        """
        __tracebackhide__ = True
        home, limit_s = self._home, in_seconds(within)
        began = self.aio.home.time()
        home.drive(self.aio.pause(0, 0))
        while not condition():
            passed = self.aio.home.time() - began
            if passed >= limit_s:
                name = getattr(condition, "__qualname__", repr(condition))
                raise self.aio.not_reached(what or f"{name} is false", passed)
            home.drive(self.aio.pause(passed, limit_s))

    def run(self, main: Coroutine[Any, Any, T], *, within: timedelta = LONGEST_RUN) -> T:
        """Run a coroutine on the cluster's own loop, as `asyncio.run` would, in its virtual or real time.

        Args:
            main: the coroutine; it uses `cluster.aio` and async clients.
            within: maximum virtual time.

        Raises:
            ClientError: it did not end in that time, or this is called from an event loop.
        """
        return self._home.run_main(main, within)

    describe = _blocking(AsyncCluster.describe)
