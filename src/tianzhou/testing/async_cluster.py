"""A name server and brokers inside a test's process, for async code."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from tianzhou import admin, client
from tianzhou.broker.server import Broker
from tianzhou.client.instance import ClientInstance
from tianzhou.client.option_keywords import ProducerKeywords, PullKeywords, PushKeywords
from tianzhou.client.producer.transactions import Check
from tianzhou.clock import Clock
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import ConsumeFromWhere, MessageExt, SendResult, TransactionState, names
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.testing import progress, time_limits
from tianzhou.testing.at_home import at_home
from tianzhou.testing.brokers import HOST, ClusterBroker, checked, tls_of
from tianzhou.testing.faults import Faults
from tianzhou.testing.options import LETTERS, WAIT_STEPS, ClusterOptions, NotReached, in_seconds
from tianzhou.testing.time_limits import COARSEST_S, OURS_COARSEST_S, OURS_STEPS, STEPS
from tianzhou.testing.virtual_loop import VirtualLoop

MEMORY = Path("/dev/shm")
REAL_STEP_S = 0.01
INSTANT_S = 1e-6
"""Tolerance for sums of times, seconds."""
DEFAULT_GROUP = "tianzhou_testing"


class _AsyncStoppable(Protocol):
    async def stop(self) -> None: ...


class AsyncCluster:
    """A name server and brokers in this process; `async with AsyncCluster() as cluster`.

    The cluster lives on the event loop on which it is entered. Its methods may be awaited on any loop. A virtual
    cluster needs all code on its own loop, which must be a `VirtualLoop` (`tianzhou.testing.run_virtual`).

    Args:
        options: see `ClusterOptions`; single fields may be given by name instead.

    Attributes:
        brokers: the brokers by name.
        faults: injects faults into all brokers at once; `brokers[name].faults` into one of them.

    Raises:
        ClientError: the cluster is virtual and the loop is not, or it is used before its start.
        ConfigError: there is no such option or setting.
    """

    def __init__(self, options: ClusterOptions | None = None, **fields: Any) -> None:
        try:
            self.options = replace(options or ClusterOptions(), **fields)
        except TypeError as error:
            known = ", ".join(ClusterOptions.__dataclass_fields__)
            raise ConfigError(
                f"a test cluster has no option {sorted(fields)}: {error}; its options are {known}"
            ) from None
        checked(self.options.settings)
        if not 1 <= self.options.brokers <= len(LETTERS):
            raise ConfigError(f"brokers={self.options.brokers}: a test cluster has 1 to {len(LETTERS)} brokers")
        self._home: asyncio.AbstractEventLoop | None = None
        self._stack = AsyncExitStack()
        self._clients: list[_AsyncStoppable] = []
        self._producer: client.Producer | None = None
        self._namesrv_addr = ""
        self._rest_until_ms = 0
        self.brokers: dict[str, ClusterBroker] = {}
        self.faults = Faults()

    # --- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self.options.virtual and not isinstance(loop, VirtualLoop):
            raise ClientError(
                "a virtual cluster needs a loop whose time is virtual: run the test by "
                "tianzhou.testing.run_virtual(main()), or give VirtualLoop to your runner as its loop_factory"
            )
        self._home = loop
        self._began_s = loop.time()
        if isinstance(loop, VirtualLoop):
            loop.limits.append(self._coarsest_s)
            self._stack.callback(loop.limits.remove, self._coarsest_s)
            loop.appointments.append(self._deliveries_s)
            self._stack.callback(loop.appointments.remove, self._deliveries_s)
        try:
            await self._start(loop.clock if self.options.virtual and isinstance(loop, VirtualLoop) else None)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.faults.clear()
        await self._close()

    async def _start(self, clock: Clock | None) -> None:
        folder = self.options.folder
        if folder is None:
            memory = MEMORY if self.options.memory and os.access(MEMORY, os.W_OK) else None
            folder = Path(tempfile.mkdtemp(prefix="tianzhou-testing-", dir=memory))
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        self._clock = clock
        home = folder / "namesrv"
        settings = replace(
            NamesrvSettings(),
            bind_address=HOST,
            listen_port=0,
            kv_config_path=str(home / "kvConfig.json"),
            config_store_path=str(home / "namesrv.properties"),
        )
        namesrv = await self._stack.enter_async_context(NameServer(settings, clock=clock, tls=tls_of(clock)))
        self._namesrv_addr = f"{HOST}:{namesrv.port}"
        for letter in LETTERS[: self.options.brokers]:
            place = folder / f"broker-{letter}"
            broker = ClusterBroker(f"broker-{letter}", place, self._namesrv_addr, clock, self.options.settings)
            self.brokers[broker.name] = broker
            self._stack.push_async_callback(broker.stop)
        self.faults = Faults([broker.faults for broker in self.brokers.values()])
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))
        self._producer = client.Producer(DEFAULT_GROUP, **self.client_options())
        await self._producer.start()
        self._clients.append(self._producer)

    async def _close(self) -> None:
        made, self._clients = self._clients, []
        for one in reversed(made):
            await one.stop()
        await self._stack.aclose()

    @property
    def home(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the cluster lives.

        Raises:
            ClientError: the cluster was not entered.
        """
        if self._home is None:
            raise ClientError("the cluster was not started; use 'async with AsyncCluster() as cluster'")
        return self._home

    @property
    def namesrv_addr(self) -> str:
        """The name server's address, for clients."""
        return self._namesrv_addr

    @at_home
    async def kill(self) -> None:
        """Kill all brokers as `kill -9` would, see `ClusterBroker.kill`; the name server stays."""
        await asyncio.gather(*(broker.kill() for broker in self.brokers.values()))

    @at_home
    async def up(self) -> None:
        """Start the brokers that are killed or stopped, each on its own store and port."""
        await asyncio.gather(*(broker.start() for broker in self.brokers.values()))

    # --- clients ---------------------------------------------------------------------------------------------

    def producer(
        self, group: str = DEFAULT_GROUP, *, instance: ClientInstance | None = None, **options: Unpack[ProducerKeywords]
    ) -> client.Producer:
        """Return a producer of this cluster, not started; see `tianzhou.client.Producer`."""
        return self._made(client.Producer(group, instance=instance, **self.client_options(**options)))

    def transaction_producer(
        self, group: str = DEFAULT_GROUP, *, check: Check | None = None, **options: Any
    ) -> client.TransactionProducer:
        """Return a producer of messages bound to local transactions, not started.

        Args:
            group: the producer group.
            check: returns the state of a transaction; by default UNKNOWN.
            options: see `tianzhou.client.TransactionProducer`.
        """
        return self._made(client.TransactionProducer(group, check=check or undecided, **self.client_options(**options)))

    def push_consumer(
        self, group: str, *, instance: ClientInstance | None = None, **options: Unpack[PushKeywords]
    ) -> client.PushConsumer:
        """Return a push consumer of this cluster, not started; see `tianzhou.client.PushConsumer`.

        It begins with the first message, also with messages from before its start, unless `consume_from_where` has
        another value.
        """
        options.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return self._made(client.PushConsumer(group, instance=instance, **self.client_options(**options)))

    def pull_consumer(
        self, group: str, *, instance: ClientInstance | None = None, **options: Unpack[PullKeywords]
    ) -> client.PullConsumer:
        """Return a pull consumer, not started; see `tianzhou.client.PullConsumer`. It begins as a push consumer."""
        options.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return self._made(client.PullConsumer(group, instance=instance, **self.client_options(**options)))

    def admin(self, **options: Any) -> admin.Admin:
        """Return admin operations on this cluster, not started; see `tianzhou.admin.Admin`."""
        self._check_loop()
        return admin.Admin(**self.client_options(**options))

    def client_options(self, **options: Any) -> dict[str, Any]:
        """Return the options that a client of this cluster needs, address and clock, with further ones."""
        clock = {} if self._clock is None else {"clock": self._clock}
        return {"namesrv_addr": self._namesrv_addr, **clock, **options}

    def _made(self, one: C) -> C:
        self._check_loop()
        if running_loop() is self._home:
            self._clients.append(one)
        return one

    def _check_loop(self) -> None:
        if self.options.virtual and (running := running_loop()) is not None and running is not self.home:
            raise ClientError(
                "this event loop runs in real time and the cluster in virtual time, so its clients would miss what "
                "happens while time passes: run the coroutine by cluster.run(…), or use a cluster with virtual=False"
            )

    # --- topics and messages ---------------------------------------------------------------------------------

    @at_home
    async def create_topic(
        self, topic: str, queues: int = 4, *, order: bool = False, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic on every broker.

        Args:
            topic: its name.
            queues: number of queues on each broker.
            order: whether it is an ordered topic.
            attributes: see `tianzhou.admin.Topics.create`.
        """
        async with admin.Admin(**self.client_options()) as one:
            await one.topics.create(
                topic, read_queue_nums=queues, write_queue_nums=queues, order=order, attributes=attributes
            )

    @at_home
    async def send(
        self,
        topic: str,
        body: object,
        *,
        tags: str | None = None,
        keys: str | Collection[str] = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
    ) -> SendResult:
        """Send bytes, a text or a value (`Producer.send_body`) with the cluster's own producer; see `producer`."""
        assert self._producer is not None
        return await self._producer.send_body(
            topic,
            body.encode() if isinstance(body, str) else body,
            tags=tags,
            keys=keys,
            properties=properties,
            delay_level=delay_level,
            sharding_key=sharding_key,
        )

    @at_home
    async def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic, in the order of their storage, from the stores and without faults.

        A topic without messages has an empty list. In virtual time, all work that needs no time is done before.

        Raises:
            ClientError: a broker is stopped, so its messages are unknown.
        """
        found = []
        if self.options.virtual:
            await self._virtual("messages").settle()
        for broker in self.brokers.values():
            found += await broker.messages(topic)
        # The sort is stable, so messages with equal times stay in the order of each broker.
        return sorted(found, key=lambda message: message.store_timestamp)

    async def dead_letters(self, group: str) -> list[MessageExt]:
        """Return the dead letters of a consumer group."""
        return await self.messages(names.dead_letter_topic(group))

    # --- time ------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The cluster's time, ms since the epoch."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock.now_ms()

    @property
    def elapsed(self) -> timedelta:
        """Cluster time since the start."""
        return timedelta(seconds=self.home.time() - self._began_s)

    @at_home
    async def advance(self, span: timedelta | None = None, /, **parts: float) -> None:
        """Advance the time, and return when all work due in it is done.

        Args:
            span: the time to pass.
            parts: the time by keywords: `hours=2`, `minutes=1, seconds=30`; see `datetime.timedelta`.

        Raises:
            ClientError: the cluster runs in real time, or the span is negative.
        """
        loop = self._virtual("advance")
        span = span if span is not None else timedelta(**parts)
        seconds = span.total_seconds()
        if seconds < 0:
            raise ClientError(f"advance({span}): time cannot go back")
        await loop.advance(seconds, min(seconds / STEPS, COARSEST_S), min(seconds / OURS_STEPS, OURS_COARSEST_S))

    @at_home
    async def settle(self) -> None:
        """Return when all work that needs no time is done; without more time, no further effect can appear.

        Raises:
            ClientError: the cluster runs in real time, where this state cannot be detected.
        """
        await self._virtual("settle").settle()

    def _running(self) -> list[Broker]:
        return [broker.running for broker in self.brokers.values() if broker.is_running]

    def _coarsest_s(self) -> float:
        return time_limits.coarsest_s(self._running(), int(self.home.time() * 1000))

    def _deliveries_s(self) -> list[float]:
        return time_limits.deliveries_s(self._running(), self.home.time() - self.now_ms / 1000)

    def _virtual(self, what: str) -> VirtualLoop:
        if not self.options.virtual or not isinstance(self.home, VirtualLoop):
            raise ClientError(
                f"{what}: this cluster runs in real time, which nobody can hurry; make it with virtual=True, "
                "for the fixture by @pytest.mark.tianzhou(virtual=True)"
            )
        return self.home

    @at_home
    async def wait_until(
        self, condition: Callable[[], object | Awaitable[object]], what: str = "", *, within: timedelta | float = 30
    ) -> None:
        """Wait until a condition holds; virtual time advances meanwhile.

        Args:
            condition: called repeatedly; may be async.
            what: description of the condition, for the error.
            within: maximum wait in the cluster's time; seconds, or a timedelta.

        Raises:
            NotReached: the condition did not hold in time.
        """

        async def unmet() -> list[str]:
            held = condition()
            if isinstance(held, Awaitable):
                held = await held
            return [] if held else [what or f"{getattr(condition, '__qualname__', condition)} is false"]

        await self._until(unmet, within)

    @at_home
    async def wait_until_consumed(self, group: str, topic: str, *, within: timedelta | float = 30) -> None:
        """Wait until a group has consumed all messages of a topic, including later arrivals.

        A message whose handler failed counts once it is consumed at last, or is a dead letter; set `within` to allow
        for the retries. A delayed message is in the topic once its delay is over.

        Args:
            group: the consumer group.
            topic: the topic.
            within: maximum wait in the cluster's time; seconds, or a timedelta.

        Raises:
            NotReached: the group did not finish in time; the text has the remaining messages.
            ClientError: there is no such topic.
        """

        async def left() -> list[str]:
            found = await progress.left_anywhere(self._running(), group, topic)
            self._rest_until_ms = found.due_ms or 0
            return found.texts

        await self._until(left, within, lambda text: f"group {group} has not consumed everything of {topic}: {text}")

    async def _until(
        self,
        unmet: Callable[[], Awaitable[list[str]]],
        within: timedelta | float,
        say: Callable[[str], str] = str,
    ) -> None:
        home = self.home
        limit_s = in_seconds(within)
        began = home.time()
        self._rest_until_ms = 0
        await self.pause(0, 0)
        while True:
            reasons = await unmet()
            if not reasons:
                return
            passed = home.time() - began
            if passed >= limit_s - INSTANT_S:
                raise self.not_reached(say("; ".join(reasons)), passed)
            await self.pause(passed, limit_s, rest_s=max(self._rest_until_ms - self.now_ms, 0) / 1000)

    def not_reached(self, text: str, passed_s: float) -> NotReached:
        """Return the error of a wait that has timed out."""
        kind = "virtual" if self.options.virtual else "real"
        return NotReached(f"{text} (after {passed_s:.1f} s of {kind} time; `within` allows more)")

    @at_home
    async def pause(self, passed_s: float, limit_s: float, *, rest_s: float = 0.0) -> None:
        """Pause between two checks of a wait: advance a little time, and complete the work due in it.

        Args:
            passed_s: duration of the wait so far. The longer the wait, the longer the pause.
            limit_s: maximum duration of the wait.
            rest_s: time during which the condition cannot change, in virtual time.
        """
        loop = self.home if self.options.virtual and isinstance(self.home, VirtualLoop) else None
        step = min(max(passed_s / WAIT_STEPS, REAL_STEP_S), COARSEST_S if loop is not None else 0.1)
        left_s = max(limit_s - passed_s, 0)
        if loop is not None and rest_s > step:
            await loop.advance(min(rest_s, left_s), min(max(rest_s / STEPS, step), COARSEST_S), OURS_COARSEST_S)
            return
        with loop.lateness(step) if loop is not None else nullcontext():
            await asyncio.sleep(min(step, left_s))
        if loop is not None:
            await loop.settle()

    @at_home
    async def describe(self) -> str:
        """Return the state of the cluster as text, for reports of failed tests."""
        lines = [f"{'virtual' if self.options.virtual else 'real'} time passed: {self.elapsed}"]
        for broker in self.brokers.values():
            lines += await broker.describe(self.now_ms)
        return "\n".join(lines)


C = TypeVar("C", bound=_AsyncStoppable)


def undecided(_message: MessageExt) -> TransactionState:
    """Return UNKNOWN for every transaction; the check of a producer without one."""
    return TransactionState.UNKNOWN


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None for code that is not async."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
