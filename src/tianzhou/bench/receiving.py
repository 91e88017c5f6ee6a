"""The receiving side of a worker: members of consumer groups."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from tianzhou.bench.jobs import Job
from tianzhou.bench.payloads import DUE_PROPERTY, MARK_LENGTH
from tianzhou.bench.series import Gathering
from tianzhou.client import PullConsumer, PushConsumer
from tianzhou.model import ConsumeFromWhere, MessageExt
from tianzhou.supervision import start_awaited

POLL_MS = 500


class Receiving:
    """A consumer of messages until it is closed.

    Args:
        job: the work.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stack = AsyncExitStack()
        self._members: list[tuple[PushConsumer | PullConsumer, str]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._count: Callable[[list[MessageExt]], None] = lambda messages: None

    async def connect(self) -> None:
        """Join the groups. Messages are consumed only after `start`.

        Raises:
            TianzhouError: a server cannot be reached, or rejects a request.
        """
        job, spec = self._job, self._job.spec
        where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        for topic, group in job.members:
            consumer: PushConsumer | PullConsumer
            if spec.by_pulling:
                consumer = PullConsumer(
                    group, job.namesrv, pull_batch_size=spec.pull_batch, consume_from_where=where, tls=job.tls
                )
                consumer.subscribe(topic)
            else:
                consumer = PushConsumer(
                    group,
                    job.namesrv,
                    pull_batch_size=spec.pull_batch,
                    consume_concurrency=spec.handlers,
                    consume_message_batch_max_size=spec.consume_batch,
                    consume_from_where=where,
                    tls=job.tls,
                )
                consumer.subscribe(topic, handler=self._handler())
                consumer.suspend()
            await self._stack.enter_async_context(consumer)
            self._members.append((consumer, topic))

    def queues(self) -> dict[str, int]:
        """Return the number of queues that each group has in this process."""
        found = Counter[str]()
        for consumer, topic in self._members:
            found[consumer.group] += sum(queue.topic == topic for queue in consumer.assignment)
        return found

    def start(self, gathering: Gathering) -> None:
        """Start to consume immediately, and count into `gathering`."""
        self._count = self._counter(gathering)
        for consumer, _ in self._members:
            if isinstance(consumer, PushConsumer):
                consumer.resume()
            else:
                self._tasks.append(start_awaited(self._poll(consumer)))

    async def finished(self) -> None:
        """Never return. The parent determines when all messages are consumed.

        Raises:
            Exception: a poll failed.
        """
        if self._tasks:
            await asyncio.gather(*self._tasks)
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Leave the groups."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _poll(self, consumer: PullConsumer) -> None:
        while True:
            if messages := await consumer.poll(POLL_MS):
                self._count(messages)

    def _handler(self) -> Callable[..., Awaitable[None]]:
        async def one(message: MessageExt) -> None:
            self._count([message])

        async def several(messages: list[MessageExt]) -> None:
            self._count(messages)

        return one if self._job.spec.consume_batch == 1 else several

    def _counter(self, gathering: Gathering) -> Callable[[list[MessageExt]], None]:
        clock, mark = time.monotonic, self._job.mark

        def every(messages: list[MessageExt]) -> None:
            gathering.add(clock(), sum(len(message.body) for message in messages), len(messages))

        def ours(messages: list[MessageExt]) -> None:
            now_s = clock()
            for message in messages:
                due = message.properties.get(DUE_PROPERTY)
                if due is not None and due.startswith(mark):
                    gathering.timed(now_s, now_s - int(due[MARK_LENGTH:]) / 1e9, len(message.body))

        return ours if mark else every
