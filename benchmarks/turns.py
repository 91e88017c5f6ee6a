#!/usr/bin/env python3
"""Longest block of a broker's loop when thousands of clients send requests in the same moment.

    .venv/bin/python benchmarks/turns.py                  # 10 000 of each, about a minute
    .venv/bin/python benchmarks/turns.py --count 1000

A broker and a name server run in this process; consumers run on a loop of another thread. Each iteration of the
servers' loop is measured in CPU time of its thread, so that other load on the machine has little effect. The table
shows for each case the longest iteration, the number of iterations above 5 ms, and the total CPU time. Target: no
iteration above 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from crowd import heartbeat, long_poll, until
from scale import allow_files

from tianzhou.broker.server import Broker
from tianzhou.broker.settings import BrokerSettings
from tianzhou.cli.gc_freeze import FrozenObjects
from tianzhou.model import TopicConfig
from tianzhou.namesrv.server import NameServer
from tianzhou.namesrv.settings import NamesrvSettings
from tianzhou.store import NewRecord, StoreSettings
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode

LONG_S = 0.005
POLLS_A_CONNECTION = 5
BENCHMARK_TOPIC = "BenchmarkTest"


class CountedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with the CPU time of each of its iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.turns.append(time.thread_time() - began)


class Peer(asyncio.Protocol):
    """A client that counts frames without decoding them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.buffer = bytearray()
        self.replies = self.notices = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer
        buffer += data
        at = 0
        while len(buffer) >= at + 4 and len(buffer) >= (end := at + 4 + int.from_bytes(buffer[at : at + 4], "big")):
            if buffer.find(b'"flag":1', at, end) >= 0:
                self.replies += 1
            else:
                self.notices += 1
            at = end
        del buffer[:at]


class Crowd:
    """Clients on a loop of their own, in another thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peers: list[Peer] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    async def do(self, what: Awaitable[Any]) -> Any:
        """Run a coroutine on the crowd's loop."""
        done: Future[Any] = asyncio.run_coroutine_threadsafe(what, self.loop)  # type: ignore[arg-type]
        return await asyncio.wrap_future(done)

    async def connect(self, count: int) -> None:
        """Open `count` connections."""
        while len(self.peers) < count:
            some = range(min(100, count - len(self.peers)))
            made = await asyncio.gather(*(self.loop.create_connection(Peer, "127.0.0.1", self.port) for _ in some))
            self.peers += [peer for _, peer in made]

    async def say(self, each: Callable[[int], list[bytes]], at_once: int = 50) -> None:
        """Send frames on each connection."""
        for number, peer in enumerate(self.peers):
            peer.transport.write(b"".join(each(number)))
            if number % at_once == at_once - 1:
                await asyncio.sleep(0.002)

    @property
    def replies(self) -> int:
        """Return the number of replies so far."""
        return sum(peer.replies for peer in self.peers)

    @property
    def notices(self) -> int:
        """Return the number of requests from the broker so far."""
        return sum(peer.notices for peer in self.peers)

    async def drop(self) -> None:
        """Close all connections."""
        for peer in self.peers:
            peer.transport.abort()
        self.peers = []

    def end(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Turns:
    """The measurement.

    Args:
        broker: the broker.
        crowd: its clients.
        loop: the broker's loop.
        count: number of connections, topics and other objects.
    """

    def __init__(self, broker: Broker, crowd: Crowd, loop: CountedLoop, count: int) -> None:
        self.broker, self.crowd, self.loop, self.count = broker, crowd, loop, count
        self.figures: dict[str, float] = {}

    @contextlib.contextmanager
    def measured(self, what: str) -> Iterator[None]:
        """Note the loop iterations inside the context."""
        self.loop.turns.clear()
        yield
        turns = self.loop.turns[1:]  # the first iteration is the one that began this measurement
        found = {"longest_ms": max(turns) * 1e3, "cpu_ms": sum(turns) * 1e3}
        found["above_5_ms"] = sum(one > LONG_S for one in turns)
        self.figures |= {f"{what}.{name}": round(value, 2) for name, value in found.items()}
        print(f"{what:34s} longest {found['longest_ms']:8.1f} ms, above 5 ms {found['above_5_ms']:5.0f}, "
              f"CPU {found['cpu_ms']:9.0f} ms in {len(turns)} turns", flush=True)  # fmt: skip

    async def run(self) -> None:
        """All cases."""
        crowd, count = self.crowd, self.count
        await self.queues()
        await self.topics()
        await crowd.do(crowd.connect(count // POLLS_A_CONNECTION))
        await self.polls()
        await crowd.do(crowd.drop())
        await asyncio.sleep(1)
        with self.measured("connections that are made"):
            await crowd.do(crowd.connect(min(count, 5_000)))
            await asyncio.sleep(2)
        await self.members()

    async def queues(self) -> None:
        """Send the first messages of many queues together."""
        topics = [TopicConfig(f"Queues{number:04}", 8, 8) for number in range(self.count // 8)]
        for topic in topics:
            self.broker.tables.topics.put(topic, 1)
        await asyncio.sleep(1)
        store = self.broker.store
        with self.measured("first messages of queues"):
            for number, topic in enumerate(topics):
                for queue in range(8):
                    store.append(NewRecord(topic.topic_name, queue, b"x" * 100, b""))
                if number % 16 == 15:
                    await asyncio.sleep(0)
            await until(lambda: store.dispatch_behind_bytes == 0)

    async def topics(self) -> None:
        """Create new topics one after the other; the broker registers each at the name servers immediately."""
        for number in range(self.count):
            self.broker.tables.topics.put(TopicConfig(f"Topics{number:05}", 8, 8), 1)
            if number % 200 == 199:
                await asyncio.sleep(0)
        await asyncio.sleep(2)
        with self.measured("100 new topics beside many"):
            for number in range(100):
                self.broker.tables.topics.put(TopicConfig(f"Later{number:05}", 8, 8), 1)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
        with self.measured("registrations without news"):
            for _ in range(5):
                await self.broker._parts.registrar._round(periodic=True)
                await asyncio.sleep(0.2)

    def poll(self, number: int, wait_ms: int) -> list[bytes]:
        """Return long polls of one connection, all on one queue."""
        with_subscription = {"sysFlag": "6", "subscription": "*", "expressionType": "TAG"}
        return [
            long_poll("crowd", BENCHMARK_TOPIC, 0, self.at, number * 10 + one, wait_ms, **with_subscription)
            for one in range(POLLS_A_CONNECTION)
        ]

    async def polls(self) -> None:
        """End many long polls together."""
        crowd, store = self.crowd, self.broker.store
        polls = len(crowd.peers) * POLLS_A_CONNECTION
        self.at = 0
        store.append(NewRecord(BENCHMARK_TOPIC, 0, b"x" * 100, b""))
        await asyncio.sleep(0.5)
        self.at = store.max_offset(BENCHMARK_TOPIC, 0)
        arrived = store.arrived(BENCHMARK_TOPIC, 0)
        await crowd.do(crowd.say(lambda number: self.poll(number, 600_000)))
        await until(lambda: arrived.waiting >= polls)
        before = crowd.replies
        with self.measured("polls that one message ends"):
            store.append(NewRecord(BENCHMARK_TOPIC, 0, b"x" * 100, b""))
            await until(lambda: crowd.replies - before >= polls)
        self.at = store.max_offset(BENCHMARK_TOPIC, 0)
        before = crowd.replies
        began = time.monotonic()
        # Each waits a little less than the one before, so that all end in the same moment.
        await crowd.do(crowd.say(lambda number: self.poll(number, int(8_000 - (time.monotonic() - began) * 1000))))
        await until(lambda: arrived.waiting >= polls)
        with self.measured("polls that time out together"):
            await until(lambda: crowd.replies - before >= polls)

    def beat(self, number: int, expression: str = "*") -> list[bytes]:
        """Return the heartbeat of a member of a large group."""
        return [heartbeat(f"client@{number}", "large", BENCHMARK_TOPIC, number, expression)]

    async def members(self) -> None:
        """Let a group grow to thousands of members, then close it."""
        crowd = self.crowd
        members, consumers = len(crowd.peers), self.broker.tables.clients.consumers
        with self.measured("members that join one group"):
            before = crowd.replies
            await crowd.do(crowd.say(self.beat))
            await until(lambda: crowd.replies - before >= members)
            await asyncio.sleep(2)
        print(f"{'':34s} {crowd.notices} notices to {members} members")
        with self.measured("heartbeats of the group"):
            before = crowd.replies
            await crowd.do(crowd.say(self.beat))
            await until(lambda: crowd.replies - before >= members)
        with self.measured("members ask who is there"):
            before = crowd.replies
            ask = {"consumerGroup": "large"}
            request = encode(Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, opaque=1, fields=ask))
            await crowd.do(crowd.say(lambda number: [request] if number < 500 else []))
            await until(lambda: crowd.replies - before >= min(members, 500))
        with self.measured("half of them subscribe otherwise"):
            before = crowd.replies
            await crowd.do(crowd.say(lambda number: self.beat(number, "a") if number % 2 else []))
            await until(lambda: crowd.replies - before >= members // 2)
        with self.measured("a sweep"):
            self.broker._parts.housekeeping.sweep()
            await asyncio.sleep(0.1)
        with self.measured("members that are gone"):
            await crowd.do(crowd.drop())
            await until(lambda: "large" not in consumers)


async def measure(loop: CountedLoop, count: int, folder: Path) -> dict[str, float]:
    """Start the servers and run all cases."""
    namesrv = replace(
        NamesrvSettings(), bind_address="127.0.0.1", listen_port=0, kv_config_path=str(folder / "kv.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )  # fmt: skip
    store = replace(StoreSettings(), store_path_root_dir=str(folder / "broker"), disk_max_used_space_ratio=99)
    async with NameServer(namesrv) as names:
        settings = replace(
            BrokerSettings(), broker_name="broker-a", broker_ip1="127.0.0.1", bind_address="127.0.0.1", listen_port=0,
            namesrv_addr=f"127.0.0.1:{names.port}",
        )  # fmt: skip
        async with Broker(settings, store) as broker:
            await broker.ready()
            crowd = Crowd(broker.port)
            try:
                turns = Turns(broker, crowd, loop, count)
                await turns.run()
            finally:
                crowd.end()
    return turns.figures


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="queues, topics, polls")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    allow_files(2 * min(arguments.count, 5_000) + 1_000)
    loop = CountedLoop()
    with contextlib.ExitStack() as stack:
        stack.enter_context(FrozenObjects())  # as in the commands
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="turns-"))
        runner = stack.enter_context(asyncio.Runner(loop_factory=lambda: loop))
        figures = runner.run(measure(loop, arguments.count, Path(folder)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"count": arguments.count, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
