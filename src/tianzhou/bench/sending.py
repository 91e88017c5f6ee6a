"""The sending side of a worker: connections, each with many sends in flight."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from tianzhou.bench.jobs import Job
from tianzhou.bench.pacer import Pacer
from tianzhou.bench.payloads import DUE_PROPERTY, bodies_of_lines, half_random, key_source, letters
from tianzhou.bench.schedule import Tickets
from tianzhou.bench.series import Gathering
from tianzhou.bench.spec import Payload
from tianzhou.client import Producer
from tianzhou.errors import BrokerError, ConfigError, TianzhouError
from tianzhou.model import Message, SendStatus
from tianzhou.supervision import start_awaited

AFTER_FAILURE_S = 0.01
NEVER_COMPRESSED = 1 << 62
LAST_ANSWERS_S = 0.8
PRODUCER_GROUP = "tianzhou-bench"


def make_bodies(payload: Payload) -> list[bytes]:
    """Return the bodies, which are used round-robin.

    Raises:
        ConfigError: the file cannot be read, or has no body.
    """
    if payload.file:
        try:
            data = Path(payload.file).read_bytes()
        except OSError as error:
            raise ConfigError(f"--payload-file {payload.file}: {error.strerror}; name a file of bodies") from None
        if payload.whole:
            if not data:
                raise ConfigError(f"--payload-file {payload.file}: is empty; its content is the body of all messages")
            return [data]
        return bodies_of_lines(data, payload.file)
    if payload.random_ratio is not None:
        return half_random(payload.size, payload.random_ratio, payload.pool, os.urandom)
    return [letters(payload.size, os.urandom)]


def reason_of(error: TianzhouError) -> str:
    """Return the reason of a failure, for counts. It has no text that differs from message to message."""
    if isinstance(error, BrokerError):
        return f"code {error.code}: {str(error).partition(': ')[2] or error}"[:200]
    return f"{type(error).__name__}: {error}"[:200]


class BenchSending:
    """A sender of messages until the schedule ends or it is closed.

    Args:
        job: the work.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._stack = AsyncExitStack()
        self._producers: list[tuple[Producer, str]] = []
        self._bodies = make_bodies(job.spec.payload)
        self._tasks: list[asyncio.Task[None]] = []
        self._tickets: Tickets | None = None
        self._pacer: Pacer | None = None

    async def connect(self) -> None:
        """Open the connections and fetch the routes, so that the first message is not delayed.

        Raises:
            TianzhouError: a server cannot be reached.
        """
        job = self._job
        for topic, _ in job.members:
            producer = Producer(
                PRODUCER_GROUP,
                job.namesrv,
                tls=job.tls,
                # Automatic retries would hide failures, and compression would hide the size of bodies.
                retry_times_when_send_failed=0,
                compress_msg_body_over_howmuch=NEVER_COMPRESSED,
            )
            await self._stack.enter_async_context(producer)
            await producer.queues(topic)
            self._producers.append((producer, topic))

    def queues(self) -> dict[str, int]:
        """Return no queues, because producers own none."""
        return {}

    def start(self, gathering: Gathering) -> None:
        """Start to send when the run begins, and count into `gathering`."""
        job = self._job
        self._tickets = Tickets(
            gathering.start_s,
            rate=job.tickets_a_second,
            warm_up_s=job.spec.warm_up_s,
            seconds=job.seconds,
            count=job.tickets,
            share=job.share,
            of=job.of,
        )
        self._pacer = Pacer()
        # Order the tasks by connection, so that a slow rate uses all connections.
        self._tasks = [
            start_awaited(self._work(producer, topic, self._tickets, self._pacer, gathering))
            for _ in range(job.spec.in_flight)
            for producer, topic in self._producers
        ]

    async def finished(self) -> None:
        """Wait until all messages are sent and acknowledged.

        Raises:
            Exception: an error that does not belong to a message.
        """
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def close(self) -> None:
        """Start no more sends, wait a moment for acknowledgements, and disconnect."""
        if self._tickets is not None:
            self._tickets.closed = True
        if self._pacer is not None:
            self._pacer.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LAST_ANSWERS_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._stack.aclose()

    async def _work(self, producer: Producer, topic: str, tickets: Tickets, pacer: Pacer, gathering: Gathering) -> None:
        batch, clock = self._job.spec.batch, time.monotonic
        make = self._maker(topic)
        await pacer.until(gathering.start_s)
        while (due_s := tickets.next(now_s := clock())) is not None:
            if due_s > now_s:
                await pacer.until(due_s)
                if tickets.closed:
                    return
            try:
                if batch == 1:
                    message = make(due_s)
                    size = len(message.body)
                    result = await producer.send(message)
                else:
                    messages = [make(due_s) for _ in range(batch)]
                    size = sum(len(message.body) for message in messages)
                    result = await producer.send_batch(messages)
            except TianzhouError as error:
                gathering.fail(clock(), reason_of(error), batch)
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            now_s = clock()
            if result.status is SendStatus.SEND_OK:
                gathering.timed(now_s, now_s - due_s, size, batch)
            else:
                gathering.fail(now_s, result.status.name, batch)

    def _maker(self, topic: str) -> Callable[[float], Message]:
        """Return a function that makes the next message of a topic from the time at which it is due."""
        mark, tags = self._job.mark, self._job.spec.tags
        keys = key_source(self._job.spec.keys, self._job.share, os.urandom)
        bodies: Iterator[bytes] = itertools.cycle(self._bodies)
        if keys is None and not mark:
            # Sends do not change messages, so the same messages are used round-robin.
            ready = itertools.cycle([Message(topic, body, tags) for body in self._bodies])
            return lambda due_s: next(ready)

        def make(due_s: float) -> Message:
            properties = {DUE_PROPERTY: f"{mark}{int(due_s * 1e9)}"} if mark else {}
            return Message(topic, next(bodies), tags, next(keys) if keys is not None else "", properties=properties)

        return make
