"""A name server and brokers that follow a test's script, on loopback in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from shared_loop import SharedLoop
from tianzhou import PushConsumer
from tianzhou.model import BrokerData, QueueData, TopicRoute
from tianzhou.records.codec import Record, encode_record
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.bodies.clients import CONSUMER_IDS
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.route import STANDARD_ROUTE
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_reply

Answer = Callable[[Command], "Command | Awaitable[Command | None] | None"]


class ScriptedBroker:
    """Answers ordinary requests well, and any of them as a test wants; notes every request."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[Command] = []
        self.connections = []
        self.consumer_ids: list[str] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.max_offset = 0
        self.records: list[bytes] = []
        self.delivered = asyncio.Event()
        self.latest_pull: Command | None = None
        self.answers: dict[int, Answer] = {}
        self.server = RemotingServer("127.0.0.1", 0, self._serve, on_connect=self.connections.append)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def asked(self, code: int) -> list:
        """The headers of the requests of a code, in order."""
        return [read_header(command) for command in self.requests if command.code == code]

    def pulls(self, topic: str = "T") -> list:
        """The headers of the pulls of a topic, in order."""
        return [header for header in self.asked(11) if header.topic == topic]

    def bodies_of(self, code: int) -> list[bytes]:
        return [bytes(command.body) for command in self.requests if command.code == code]

    def codes(self) -> list[int]:
        return [command.code for command in self.requests]

    def deliver(self, *records: Record) -> None:
        """Have the next pull return these."""
        self.records += [encode_record(record) for record in records]
        self.delivered.set()

    def _serve(self, connection, command: Command):
        command.body = bytes(command.body)
        self.requests.append(command)
        answer = self.answers.get(command.code) or getattr(self, f"_on_{command.code}", None)
        return command.reply(3, f"not scripted: {command.code}") if answer is None else answer(command)

    def _on_310(self, command: Command) -> Command:
        header = read_header(command)
        return command.reply(0, fields=sent(header.queue_id, len(self.asked(310)) - 1))

    def _on_34(self, command: Command) -> Command:
        heartbeat = HEARTBEAT.loads(command.body)
        if heartbeat.client_id not in self.consumer_ids:
            self.consumer_ids.append(heartbeat.client_id)
        return command.reply(0)

    def _on_35(self, command: Command) -> Command:
        return command.reply(0)

    def _on_38(self, command: Command) -> Command:
        return command.reply(0, body=CONSUMER_IDS.dumps(self.consumer_ids))

    def _on_14(self, command: Command) -> Command:
        header = read_header(command)
        offset = self.offsets.get((header.topic, header.queue_id))
        return command.reply(22, "none") if offset is None else command.reply(0, fields=write_reply(14, offset=offset))

    def _on_15(self, command: Command) -> Command | None:
        header = read_header(command)
        self.offsets[header.topic, header.queue_id] = header.commit_offset
        return command.reply(0)

    def _on_29(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(29, offset=read_header(command).timestamp))

    def _on_30(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(30, offset=self.max_offset))

    def _on_31(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(31, offset=0))

    def _on_36(self, command: Command) -> Command:
        return command.reply(0)

    async def _on_11(self, command: Command) -> Command:
        header = read_header(command)
        if header.topic.startswith("%RETRY%"):
            await asyncio.sleep(60)
        self.latest_pull = command
        while not self.records or self.latest_pull is not command:
            if self.latest_pull is not command:
                return command.reply(19, "given up by its client", pulled(header.queue_offset))
            self.delivered.clear()
            await self.delivered.wait()
        records, self.records = self.records, []
        offset = header.queue_offset + len(records)
        return command.reply(0, "FOUND", pulled(offset, maximum=offset), b"".join(records))


def refusing(code: int, remark: str = "no") -> Answer:
    """Answers with an error code."""
    return lambda command: command.reply(code, remark)


def sent(queue_id: int, queue_offset: int) -> dict[str, str]:
    return write_reply(310, msg_id="7F00000100002A9F0000000000000000", queue_id=queue_id, queue_offset=queue_offset)


def pulled(next_offset: int, minimum: int = 0, maximum: int = 0) -> dict[str, str]:
    return write_reply(
        11, suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=minimum, max_offset=maximum
    )


def record(topic: str, offset: int, body: bytes = b"x", properties: str = "UNIQ_KEY\x01U\x02", **fields) -> Record:
    values = {
        "topic": topic, "queue_id": 0, "queue_offset": offset, "physical_offset": offset * 1000, "flag": 0,
        "sys_flag": 0, "born_timestamp": 1, "born_host": b"\x7f\0\0\x01", "born_port": 1, "store_timestamp": 2,
        "store_host": b"\x7f\0\0\x01", "store_port": 10911, "reconsume_times": 0, "prepared_transaction_offset": 0,
        "body": body, "properties": properties.encode(),
    }  # fmt: skip
    return Record(**values | fields)


class ScriptedCluster:
    """A name server that routes every topic in `topics` to all brokers; an async context manager.

    Args:
        brokers: how many brokers.
        queues: queues per broker and topic.
        topics: the topics that exist; `%RETRY%` topics exist by themselves.
    """

    def __init__(self, brokers: int = 1, queues: int = 1, topics: tuple[str, ...] = ("T", "TBW102")) -> None:
        self.brokers = [ScriptedBroker(f"broker-{i}") for i in range(brokers)]
        self.queues = queues
        self.topics = set(topics)
        self.asked: list[str] = []
        self._server = RemotingServer("127.0.0.1", 0, self._serve)
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def route(self) -> TopicRoute:
        return TopicRoute(
            [QueueData(broker.name, self.queues, self.queues, 6) for broker in self.brokers],
            [BrokerData(broker.name, "c", {0: broker.address}) for broker in self.brokers],
        )

    def _serve(self, connection, command: Command) -> Command:
        topic = read_header(command).topic
        self.asked.append(topic)
        if topic not in self.topics and not topic.startswith("%RETRY%"):
            return command.reply(17, "no such topic")
        return command.reply(0, body=STANDARD_ROUTE.dumps(self.route()))

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._server)
        for broker in self.brokers:
            await self._stack.enter_async_context(broker.server)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


def within(seconds: float) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return a runner of async tests that fails a test which takes longer; time is virtual (`SocketLoop`)."""

    async def limited(test: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(seconds):
            await test

    def run(test: Coroutine[Any, Any, None]) -> None:
        with SharedLoop() as loop:
            loop.run(limited(test))

    return run


@asynccontextmanager
async def one_broker(
    *, offset: int | None = None, **options: Any
) -> AsyncIterator[tuple[ScriptedCluster, ScriptedBroker]]:
    """A cluster of one broker, and this; the group's offset of topic T's first queue, and options of the cluster."""
    async with ScriptedCluster(1, **options) as cluster:
        if offset is not None:
            cluster.brokers[0].offsets["T", 0] = offset
        yield cluster, cluster.brokers[0]


def noting(cluster: ScriptedCluster, **options: Any) -> tuple[PushConsumer, list[int]]:
    """A consumer of topic T in group G, and the offsets of the messages its handler has had."""
    consumer, seen = PushConsumer("G", cluster.address, **options), []
    consumer.subscribe("T", handler=lambda message: seen.append(message.queue_offset))
    return consumer, seen
