"""Thousands of consumers as a broker sees them, in one process: connections, heartbeats, long polls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

from tianzhou.model import ConsumerData, HeartbeatData, SubscriptionData
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command, decode, encode

MEMBERS = 10
"""Consumers of a group, which is also the number of its topic's queues."""
HEARTBEAT_S = 30.0
POLL_MS = 60_000
CONNECTS_AT_ONCE = 200
HEARTBEAT_OPAQUE, POLL_OPAQUE = 1, 2
"""Opaques of the two requests a consumer has on its way."""


def topic_of(number: int) -> str:
    """The topic of a group of consumers."""
    return f"Scale{number:04}"


def heartbeat(client: str, group: str, topic: str, opaque: int, expression: str = "*") -> bytes:
    """The frame of a consumer's heartbeat."""
    consumer = ConsumerData(group, subscription_data_set=[SubscriptionData(topic, expression, sub_version=1)])
    body = HEARTBEAT.dumps(HeartbeatData(client, [], [consumer]))
    return encode(Command(RequestCode.HEART_BEAT, opaque=opaque, body=body))


def long_poll(group: str, topic: str, queue: int, offset: int, opaque: int, wait_ms: int, **more: str) -> bytes:
    """The frame of a pull that waits; `more` are header fields."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "1",
    }
    return encode(Command(RequestCode.PULL_MESSAGE, opaque=opaque, fields=fields | more))


class Consumer(asyncio.Protocol):
    """A consumer as the broker sees it: a connection, heartbeats, and a long poll on one queue.

    Args:
        number: number of the consumer; `MEMBERS` of them are a group with a topic of its own.
        crowd: all consumers.
    """

    def __init__(self, number: int, crowd: Crowd) -> None:
        self.crowd = crowd
        number_of_group, self.queue = divmod(number, MEMBERS)
        self.client = f"client@{number}"
        self.group = f"group{number_of_group:04}"
        self.topic = topic_of(number_of_group)
        self.offset = 1
        self.transport: asyncio.Transport
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from asyncio's

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.lost += not self.crowd.leaving

    def beat(self) -> None:
        """Send a heartbeat."""
        self.transport.write(heartbeat(self.client, self.group, self.topic, HEARTBEAT_OPAQUE))

    def poll(self) -> None:
        """Send a long poll for the next message of the queue."""
        self.transport.write(long_poll(self.group, self.topic, self.queue, self.offset, POLL_OPAQUE, POLL_MS))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + int.from_bytes(self.buffer[:4], "big"):
            size = 4 + int.from_bytes(self.buffer[:4], "big")
            frame, self.buffer = self.buffer[4:size], self.buffer[size:]
            reply = decode(frame)
            if not reply.flag & 1:
                continue  # a notice of the broker's
            if reply.opaque == HEARTBEAT_OPAQUE:
                self.crowd.beats += 1
                self.crowd.bad += reply.code != ResponseCode.SUCCESS
            else:
                self.polled(reply)

    def polled(self, reply: Command) -> None:
        """Handle the reply to a poll: a message, or the end of the wait time."""
        self.crowd.polls += 1
        if reply.code == ResponseCode.SUCCESS:
            self.offset = int(reply.fields["nextBeginOffset"])
            self.crowd.arrived.set()
        elif reply.code != ResponseCode.PULL_NOT_FOUND:
            self.crowd.bad += 1
            self.crowd.remark = reply.remark or ""
            return
        if self.crowd.wants_polls:
            self.poll()


class Crowd:
    """Idle connected consumers."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self.lost = self.bad = self.beats = self.polls = 0
        self.remark = ""
        self.leaving = False
        self.beating = True
        self.wants_polls = False
        self.arrived = asyncio.Event()

    async def join(self, port: int, count: int) -> float:
        """Connect all of them to a port and send their heartbeats; return the duration in seconds."""
        loop, began = asyncio.get_running_loop(), time.monotonic()
        for first in range(0, count, CONNECTS_AT_ONCE):
            made = await asyncio.gather(
                *(
                    loop.create_connection(lambda number=n: Consumer(number, self), "127.0.0.1", port)  # type: ignore[misc]
                    for n in range(first, min(first + CONNECTS_AT_ONCE, count))
                )
            )
            before = self.beats
            for _, consumer in made:
                self.consumers.append(consumer)
                consumer.beat()
            await until(lambda before=before, made=made: self.beats >= before + len(made), 60)  # type: ignore[misc]
        return time.monotonic() - began

    async def beat(self) -> None:
        """Have each send a heartbeat every 30 s, one after the other."""
        step_s = 0.1
        at = 0.0
        while True:
            await asyncio.sleep(step_s)
            if not self.beating:
                continue
            most = len(self.consumers)
            begin, at = int(at), at + most * step_s / HEARTBEAT_S
            for number in range(begin, int(at)):
                self.consumers[number % most].beat()

    async def poll(self, seconds: float = 5.0) -> None:
        """Have each hold a long poll, begun one after the other."""
        self.wants_polls = True
        for number, consumer in enumerate(self.consumers):
            consumer.poll()
            if number % 100 == 99:
                await asyncio.sleep(seconds * 100 / len(self.consumers))

    def leave(self) -> None:
        """Close all connections."""
        self.leaving = True
        for consumer in self.consumers:
            consumer.transport.abort()


async def until(condition: Callable[[], bool], limit_s: float = 120) -> None:
    """Return once a condition is true; end the process when the limit is over."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not so within {limit_s:.0f} s")
        await asyncio.sleep(0.01)
