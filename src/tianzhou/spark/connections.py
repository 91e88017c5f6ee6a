"""The connections of a process to its brokers, which stay open from batch to batch.

Spark reuses its Python workers, so a module-global connection survives across tasks and micro-batches. Each process has
one event loop. The loop runs on the caller's thread while the caller waits for replies, and it is stopped while rows
are made, so no second thread competes with the decoder. The only requests in flight while the loop is stopped are pulls
of the next rows (`BrokerReader.ahead`), which can be repeated if they are lost or time out. Without TLS these pulls
bypass the loop and use a connection of `DirectPulls`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tianzhou.admin import Admin
from tianzhou.client.cluster import rpc
from tianzhou.client.cluster.tls import Tls
from tianzhou.client.consumer.pull.direct_pulls import Asked, DirectPulls
from tianzhou.client.consumer.pull.pull_consumer import PullConsumer
from tianzhou.client.consumer.pull.queue_pull import QueuePull
from tianzhou.client.consumer.subscription import sql_subscription
from tianzhou.errors import BrokerError, ClientError, TianzhouError
from tianzhou.model import MessageQueue
from tianzhou.remoting.loop import loop_factory
from tianzhou.remoting.tls import client_context, load_tls
from tianzhou.spark.option_values import ServerOptions
from tianzhou.spark.sink.options import WriteOptions
from tianzhou.spark.source.offsets import Positions, QueueBounds, SlaveBounds
from tianzhou.spark.source.read_options import ReadOptions
from tianzhou.spark.source.selection import TopicSelection
from tianzhou.spark.source.span_reader import Ask, Pulled, time_at
from tianzhou.store.queues.multi_dispatch import QUEUE_ID as LIGHT_QUEUE
from tianzhou.store.queues.multi_dispatch import is_light
from tianzhou.supervision import start_awaited
from tianzhou.wire.codes import ResponseCode

if TYPE_CHECKING:
    from tianzhou.client.option_keywords import ClientKeywords
    from tianzhou.client.producer.producer import Producer
    from tianzhou.client.staging import Staging


class LazyClient(Protocol):
    """A client that must be started before its first use."""

    async def start(self) -> None:
        """Connect."""


T = TypeVar("T")
C = TypeVar("C", bound=LazyClient)
Pulls = tuple[MessageQueue, tuple[Ask, ...], str, str | None]

TURNS_TO_SEND: Final = 3
"""Turns of the loop that pass until a request has been written to the connection."""


class SparkProcess:
    """The event loop of this process, and the clients that run on it.

    Workers are forked and must not use the loop of their parent: `here` makes a new loop for each process.
    """

    _current: SparkProcess | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = loop_factory()()
        self._clients: dict[tuple[str, ...], Any] = {}

    @classmethod
    def here(cls) -> SparkProcess:
        """Return the `SparkProcess` of the current process."""
        if cls._current is None or cls._current._pid != os.getpid():
            cls._current = SparkProcess()
        return cls._current

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop until a coroutine is done, and return its result. Timers and connections run meanwhile."""
        return self._loop.run_until_complete(work)

    def client(self, key: tuple[str, ...], make: Callable[[], C]) -> C:
        """Return the client of a key. Make and start it if there is none."""
        if key not in self._clients:
            self._clients[key] = self.run(_started(make))
        client: C = self._clients[key]
        return client

    def close(self) -> None:
        """Close every client. The next use makes new clients."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            self.run(client.stop())


async def _started(make: Callable[[], C]) -> C:
    client = make()
    await client.start()
    return client


class Puller:
    """A client of a process: a pull consumer and its connections for direct pulls.

    Args:
        consumer: the pull consumer. This object starts and stops it.
    """

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.direct = DirectPulls(consumer.instance, consumer.group)

    async def start(self) -> None:
        """See `LazyClient`."""
        await self.consumer.start()

    async def stop(self) -> None:
        """Close all connections."""
        self.direct.close()
        await self.consumer.stop()


class BrokerReader:
    """`BlockingQueueReader` over a pull consumer."""

    def __init__(self, process: SparkProcess, puller: Puller) -> None:
        self._process = process
        self._consumer = consumer = puller.consumer
        self._direct = puller.direct
        self._admin = Admin(instance=consumer.instance)
        self._sent: tuple[Pulls, Asked | list[asyncio.Task[Any]]] | None = None

    def topics(self, selection: TopicSelection) -> list[str]:
        """See `BlockingQueueReader`."""
        if selection.pattern is None:
            return selection.topics_among(())

        async def ask() -> list[str]:
            there, info = await asyncio.gather(self._admin.topics.names(), self._admin.cluster.info())
            return selection.topics_among(there, {*info.cluster_addr_table, *info.broker_addr_table})

        return self._process.run(ask())

    def serving(self) -> set[str]:
        """See `BlockingQueueReader`."""
        return self._process.run(self._serving())

    async def _serving(self) -> set[str]:
        info = await self._admin.cluster.info()
        return {name for name, broker in info.broker_addr_table.items() if broker.master is not None}

    def check_sql(self, queues: Iterable[MessageQueue], sql: str) -> None:
        """See `BlockingQueueReader`."""
        instance, group = self._consumer.instance, self._consumer.group
        one_of_each = {queue.broker_name: queue for queue in queues}

        async def ask(queue: MessageQueue) -> None:
            await rpc.check_client_config(
                instance.remoting,
                await instance.master(queue.broker_name, queue.topic),
                instance.client_id,
                group,
                sql_subscription(queue.topic, sql, 0),
            )

        self._process.run(_gathered(ask(queue) for queue in one_of_each.values()))

    def queues(self, topics: Sequence[str]) -> list[MessageQueue]:
        """See `BlockingQueueReader`."""
        found = self._process.run(
            _gathered(self._light(topic) if is_light(topic) else self._consumer.queues(topic) for topic in topics)
        )
        return sorted(queue for queues in found for queue in queues)

    async def _light(self, topic: str) -> list[MessageQueue]:
        """Return a light queue for each broker that has any.

        Name servers do not list light queues, because records create them.
        """
        masters = sorted(await self._serving())
        queues = [MessageQueue(topic, name, LIGHT_QUEUE) for name in masters]
        found = [queue for queue in queues if await self._has_light(queue)]
        if not found:
            raise ClientError(
                f"topic {topic} does not exist: no broker of {', '.join(masters) or 'none'} has light queues; set "
                "enableLmq=true and enableMultiDispatch=true there"
            )
        return found

    async def _has_light(self, queue: MessageQueue) -> bool:
        # The name server returns a broker's address for the topic that has the broker's name.
        await self._consumer.queues(queue.broker_name)
        try:
            await self._consumer.pull_raw(QueuePull(queue, await self._consumer.max_offset(queue), 1))
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return False
            raise
        return True

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
        """See `BlockingQueueReader`."""

        async def bounds(queue: MessageQueue) -> QueueBounds:
            first, following = await _gathered([self._consumer.min_offset(queue), self._consumer.max_offset(queue)])
            # An empty queue that never had a message begins at its maximum offset.
            kind = QueueBounds if self._consumer.instance.routes.master(queue.broker_name) else SlaveBounds
            return kind(max(0, min(first, following)), following)

        return self._of_each(queues, bounds)

    def maxima(self, queues: Iterable[MessageQueue]) -> Positions:
        """See `BlockingQueueReader`."""
        return self._of_each(queues, self._consumer.max_offset)

    def offsets_by_time(self, queues: Iterable[MessageQueue], timestamp_ms: int) -> Positions:
        """See `BlockingQueueReader`."""
        return self._of_each(queues, lambda queue: self._consumer.offset_by_time(queue, timestamp_ms))

    def store_times(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """See `BlockingQueueReader`."""

        async def time(queue: MessageQueue) -> int | None:
            try:
                pulled = Pulled(*(await self._consumer.pull_raw(QueuePull(queue, places[queue], 1)))[:5])
            except TianzhouError:
                return None  # checked again later
            return time_at(queue, places[queue], pulled)

        return {queue: at_ms for queue, at_ms in self._of_each(places, time).items() if at_ms is not None}

    def _of_each(
        self, queues: Iterable[MessageQueue], look_up: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        """Call `look_up` for all queues at once, and return the result of each queue."""
        there = list(queues)
        return dict(zip(there, self._process.run(_gathered(map(look_up, there))), strict=True))

    def pull(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> list[Pulled]:
        """See `BlockingQueueReader`."""
        wanted = (queue, tuple(asks), tags, sql)
        sent, self._sent = self._sent, None
        work = sent[1] if sent is not None and sent[0] == wanted else self._direct.send(_pulls(wanted))
        if isinstance(work, Asked):
            found = self._direct.collect(work)
            if found is not None:
                return [Pulled(*raw[:4], body) for raw, body in found]
            work = None
        pulls = map(self._consumer.pull_raw, _pulls(wanted)) if work is None else work
        return [Pulled(*raw[:5]) for raw in self._process.run(_gathered(pulls))]

    def ahead(self, queue: MessageQueue, asks: Sequence[Ask], tags: str, sql: str | None = None) -> None:
        """See `BlockingQueueReader`."""
        wanted = (queue, tuple(asks), tags, sql)
        asked = self._direct.send(_pulls(wanted))
        if asked is not None:
            self._sent = wanted, asked
            return

        async def send() -> list[asyncio.Task[Any]]:
            tasks = [start_awaited(self._consumer.pull_raw(pull)) for pull in _pulls(wanted)]
            for _ in range(TURNS_TO_SEND):
                await asyncio.sleep(0)
            return tasks

        self._sent = wanted, self._process.run(send())

    def publish(self, positions: Mapping[MessageQueue, int]) -> None:
        """See `BlockingQueueReader`."""
        self._process.run(self._consumer.commit_offsets(positions))

    def wait(self, milliseconds: int) -> None:
        """See `BlockingQueueReader`."""
        self._process.run(asyncio.sleep(milliseconds / 1000))

    def monotonic(self) -> float:
        """See `BlockingQueueReader`."""
        return time.monotonic()


def _pulls(wanted: Pulls) -> list[QueuePull]:
    queue, asks, tags, sql = wanted
    return [QueuePull(queue, ask.offset, ask.most, tags, sql) for ask in asks]


async def _gathered(work: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all results and return them.

    The first error is raised only after all have ended, so that none is still in flight.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


def _client(options: ServerOptions, make: Callable[[ClientKeywords], C], *key: str) -> tuple[SparkProcess, C]:
    """Return this process, and its client of a key for the servers and the account of the options.

    Args:
        options: the servers, the account and TLS.
        make: makes the client from the keyword arguments that all clients share.
        key: distinguishes this client from other clients of the process with the same options.
    """
    process, file = SparkProcess.here(), options.tls_config_file
    who: ClientKeywords = {
        "access_key": options.access_key,
        "secret_key": options.secret_key,
        "security_token": options.security_token,
        "namespace": options.namespace,
        "namespace_v2": options.namespace_v2,
    }

    def with_tls() -> C:
        tls: Tls = options.tls
        if file is not None:
            tls = client_context(load_tls({"tls.config.file": file}, source="tlsConfigFile"))
        return make({"tls": tls, **who})

    same = (options.namesrv_addr, str(options.tls), file or "", *(str(value or "") for value in who.values()))
    return process, process.client((*key, *same), with_tls)


def connect(options: ReadOptions) -> BrokerReader:
    """Return this process's reader for the brokers and the group of the options."""
    group, servers = options.consumer_group, options.namesrv_addr
    return BrokerReader(
        *_client(options, lambda more: Puller(PullConsumer(group, servers, auto_commit=False, **more)), "read", group)
    )


def staging(options: WriteOptions) -> tuple[SparkProcess, Staging]:
    """Return this process, and its client that writes exactly once."""
    from tianzhou.client.staging import Staging

    servers, timeout_ms = options.namesrv_addr, options.send_timeout_ms
    return _client(options, lambda more: Staging(servers, timeout_ms=timeout_ms, **more), "stage", str(timeout_ms))


def producer(options: WriteOptions) -> tuple[SparkProcess, Producer]:
    """Return this process, and its producer for the brokers and the group of the options."""
    from tianzhou.client.producer.producer import Producer

    group, servers, timeout_ms = options.producer_group, options.namesrv_addr, options.send_timeout_ms
    return _client(
        options,
        lambda more: Producer(group, servers, send_msg_timeout_ms=timeout_ms, **more),
        *("write", group, str(timeout_ms)),
    )
