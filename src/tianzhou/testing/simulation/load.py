"""Producers and push consumers of a simulated cluster, which record their sends, answers and received messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tianzhou.client import Producer, PushConsumer
from tianzhou.errors import TianzhouError
from tianzhou.model import ConsumeFromWhere, ConsumeResult, Message, MessageExt
from tianzhou.remoting.client import Exchange
from tianzhou.testing.simulation.history import (
    Acked,
    Committed,
    Consumed,
    Ended,
    History,
    QueuePlace,
    Refused,
    Sent,
)
from tianzhou.testing.simulation.machines import Machine
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.fields import read_header

TOPIC: Final = "Orders"
MOST_PADDING: Final = 300


class ProducerOn:
    """A program with one thread that sends one message after the other.

    Args:
        machine: where it runs.
        rng: source of random numbers.
        history: records the events.
        options: of its client.
        messages: number of messages to send.
        pause_s: maximum pause between two, seconds.
        keyed: whether its messages belong together and are sent to one queue.

    Attributes:
        done: whether all sends have ended.
    """

    def __init__(
        self,
        machine: Machine,
        rng: Random,
        history: History,
        options: dict[str, Any],
        *,
        messages: int,
        pause_s: float,
        keyed: bool,
    ) -> None:
        self.machine = machine
        self.done = False
        self._rng = rng
        self._history = history
        self._options = options
        self._messages = messages
        self._pause_s = pause_s
        self._keyed = keyed
        self._number = 0

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    def start(self) -> None:
        """Start the program; a later life continues after the last message of the one before."""
        if self.machine.process is None:
            self.machine.start(self._run)

    def died(self) -> None:
        """Record the death of the process."""
        self._history.add(Ended, self.name)

    async def _run(self) -> None:
        rng = self._rng
        options = {**self._options, "client_id": f"{self.name}@{self.machine.process}"}
        async with Producer(f"P_{self.name}", clock=self.machine.clock, rng=rng, **options) as producer:
            while self._number < self._messages:
                self._number += 1
                await self._send(producer, self._number)
                await asyncio.sleep(rng.random() * self._pause_s)
            self.done = True
            await asyncio.get_running_loop().create_future()

    async def _send(self, producer: Producer, number: int) -> None:
        history, rng = self._history, self._rng
        name = f"{self.name}-{number}"
        body = f"{name}/".encode() + rng.randbytes(rng.randrange(MOST_PADDING)).hex().encode()
        history.bodies[name] = body
        message = Message(TOPIC, body, sharding_key=self.name if self._keyed else None)
        history.add(Sent, name, self.name)
        try:
            result = await producer.send(message)
        except TianzhouError as error:
            history.add(Refused, name, type(error).__name__)
        else:
            queue = result.queue
            place = QueuePlace(queue.broker_name, queue.topic, queue.queue_id)
            history.add(Acked, name, result.status.name, place, result.queue_offset)


class ConsumerOn:
    """A member of a consumer group.

    Args:
        machine: where it runs.
        rng: source of random numbers.
        history: records the events.
        options: of its client.
        group: the consumer group.
        orderly: whether queues are consumed in order.
        brokers: names of brokers by their addresses.
    """

    def __init__(
        self,
        machine: Machine,
        rng: Random,
        history: History,
        options: dict[str, Any],
        *,
        group: str,
        orderly: bool,
        brokers: dict[str, str],
    ) -> None:
        self._brokers = brokers
        self.machine = machine
        self.group = group
        self.orderly = orderly
        self._rng = rng
        self._history = history
        self._options = options

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    def start(self) -> None:
        """Start the program."""
        if self.machine.process is None:
            self.machine.start(self._run)

    def died(self) -> None:
        """Record the death of the process."""
        self._history.add(Ended, self.name)

    async def _run(self) -> None:
        consumer = PushConsumer(
            self.group,
            clock=self.machine.clock,
            rng=self._rng,
            client_id=f"{self.name}@{self.machine.process}",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            orderly=self.orderly,
            persist_consumer_offset_interval_ms=1_000,
            rpc_hooks=[self._commit_hook],
            **self._options,
        )
        consumer.on(TOPIC)(self._consume)
        async with consumer:
            await asyncio.get_running_loop().create_future()

    async def _consume(self, message: MessageExt) -> ConsumeResult:
        rng = self._rng
        name = bytes(message.body).partition(b"/")[0].decode("utf-8", "backslashreplace")
        if self._history.bodies.get(name) != bytes(message.body):
            name = f"never sent: {bytes(message.body[:40])!r}"
        place = QueuePlace(message.broker_name, TOPIC, message.queue_id)
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() * 0.02)
        self._history.add(Consumed, name, self.group, self.name, place, message.queue_offset, message.reconsume_times)
        if rng.random() < 0.005:
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if self.orderly else ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    def _commit_hook(self, exchange: Exchange) -> Callable[[Exchange], None] | None:
        if exchange.request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            header: Any = read_header(exchange.request)
            if header.topic == TOPIC:
                place = QueuePlace(self._brokers[exchange.address], TOPIC, header.queue_id)
                self._history.add(Committed, self.group, self.name, place, header.commit_offset)
        return None
