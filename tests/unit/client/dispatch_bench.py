"""A consumer's dispatcher without a network, on a loop with virtual time."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.handlers import PLAIN, Handlers
from tianzhou.client.consumer.push.options import PushOptions
from tianzhou.client.consumer.push.process_queue import ProcessQueue
from tianzhou.model import MessageExt, MessageQueue
from tianzhou.testing.clock import START_MS


def message(offset, queue_id=0, topic="T"):
    body, host = b"%d" % offset, "127.0.0.1:1"
    return MessageExt(topic, body, 0, {}, "b", queue_id, offset, 0, 0, 0, host, 0, host, 0, 0, 0, 1, f"id{offset}")


class LoopClock:
    """The clock of the loop."""

    def monotonic(self):
        return asyncio.get_running_loop().time()

    def now_ms(self):
        return START_MS + round(self.monotonic() * 1000)


class DispatchBench:
    """A dispatcher of topic T's messages; `away` receives messages that were not consumed."""

    def __init__(
        self, dispatcher, handler, away, *, batch_size=1, hooks=(), orderly=False, options=None, own=PLAIN,
        cpu_s=time.thread_time, threads=1, **parts,
    ):  # fmt: skip
        self.clock = LoopClock()
        self.tasks = set()
        self.away = away
        self.rates = ConsumeRates(0.0)
        consumer = PushOptions(**options or {})
        handlers = Handlers(
            "G", orderly=orderly, batch_size=batch_size, threads=threads, hooks=hooks,
            is_broadcast=consumer.is_broadcast, rates=self.rates, cpu_s=cpu_s, wall_s=self.clock.monotonic,
        )  # fmt: skip
        self.handlers = handlers
        handlers.add("T", handler, own)
        self.consuming = dispatcher("G", consumer, handlers, away, self.rates, self.clock, self.spawn, **parts)

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def queue(self, queue_id=0, limits=None):
        return ProcessQueue(MessageQueue("T", "b", queue_id), 0, limits or PullLimits(), 0)

    def put(self, pq, *offsets):
        """Add messages as a pull does."""
        self.consuming.put(pq, pq.take_in([message(n, pq.queue.queue_id) for n in offsets], offsets[-1] + 1))

    @asynccontextmanager
    async def running(self, workers):
        """Call handlers inside the context."""
        self.consuming.start_workers(workers)
        yield self
        await self.consuming.drain(1.0)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
