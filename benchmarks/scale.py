#!/usr/bin/env python3
"""Cost of a broker with many objects: connections, queues, waiting consumers, topics in use.

    .venv/bin/python benchmarks/scale.py --json scale.json        # 10 000 of each, about ten minutes
    .venv/bin/python benchmarks/scale.py --connections 1000       # 1 000 of each, about three

One broker and one name server as processes, on a fresh store with RocketMQ's default settings. The stages: the broker
alone; with one queue per later connection, each with a message; with the connections, each of a consumer that sends its
heartbeat every 30 s; with a long poll held on each of them; starts on that store; and 64 connections sending to 10, 100
and 1 000 topics. Each time: p99 of 64 connections that send one message at a time (`loadgen.c`, needs gcc), the
broker's anonymous memory, and its CPU time without requests. Targets: p99 within 2x of the first stage, within 1.5x
from 10 to 1 000 topics, and negligible idle CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from crowd import MEMBERS, POLL_MS, Crowd, topic_of
from sides import CannotRunError, Server, anon_mb, build, load

from tianzhou import Message, MessageQueue, Producer
from tianzhou.bench.local_server import process_cpu_s
from tianzhou.errors import TianzhouError
from tianzhou.model import TopicConfig
from tianzhou.remoting.client import RemotingClient
from tianzhou.remoting.loop import run
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS
from tianzhou.wire.codes import RequestCode, ResponseCode
from tianzhou.wire.command import Command

TOPICS_AT_ONCE = 200
SPARE_FILES = 1_000
QUIET_S = 10.0
ROUNDS, LOAD_S, WARM_S = 3, 5, 2
"""Loads of each stage, whose medians are shown; seconds of each load, and of the warm-up load."""
GROWTH = (10, 100, 1_000)


def allow_files(wanted: int) -> None:
    """Raise the limit of open files of this process and its children, or exit with a remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            sys.exit(
                f"{wanted} files and sockets are needed, this machine allows {hard} per process (ulimit -Hn); raise it "
                f"(as root: ulimit -Hn {wanted}), or measure fewer: --connections {max(hard - SPARE_FILES, 10)}"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Scale:
    """The measurement.

    Args:
        arguments: of the command line.
        work: scratch folder.
    """

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.program = build("loadgen", work)
        self.figures: dict[str, float] = {}
        self.server = Server("tianzhou", work, patience_s=120)
        self.broker = f"127.0.0.1:{self.server.port}"
        self.namesrv = f"127.0.0.1:{self.server.namesrv_port}"

    @property
    def cpu_s(self) -> float:
        """Return the processor time of the broker in seconds."""
        return process_cpu_s(self.server.pid) or 0.0

    @property
    def anon_bytes(self) -> float:
        """Return the anonymous resident memory of the broker in bytes."""
        return anon_mb(self.server.pid) * 2**20

    async def cpu_percent(self, seconds: float) -> float:
        """Return the broker's share of one processor during `seconds`, in percent."""
        before, began = self.cpu_s, time.monotonic()
        await asyncio.sleep(seconds)
        return 100 * (self.cpu_s - before) / (time.monotonic() - began)

    def note(self, name: str, value: float) -> None:
        """Store a figure and print it."""
        self.figures[name] = value
        print(f"{name:44s} {value:>14,.2f}", flush=True)

    async def load(self, options: str = "", seconds: int = LOAD_S) -> dict[str, float]:
        """Return the load tool's figures, as medians over the rounds; consumers send heartbeats meanwhile."""
        what = self.program, f"-c 64 -w 1 {options}", self.server.port, seconds
        rounds = [await asyncio.to_thread(load, *what) for _ in range(ROUNDS)]
        return {name: statistics.median(one[name] for one in rounds) for name in ("msgs", "p50_us", "p99_us", "bad")}

    async def measure(self, stage: str) -> None:
        """Measure latency, memory and idle CPU time in the present stage."""
        found = await self.load()
        for name, value in found.items():
            self.note(f"{stage}.{name}", value)
        if stage != "alone":
            self.note(f"{stage}.p99_ratio", found["p99_us"] / self.figures["alone.p99_us"])
        await asyncio.sleep(2)
        self.note(f"{stage}.idle_cpu_percent", await self.cpu_percent(QUIET_S))
        self.note(f"{stage}.anon_mb", self.anon_bytes / 1e6)

    def grown(self, stage: str, since: float, count: int) -> None:
        """Note the memory growth per object."""
        self.note(f"{stage}.bytes_each", (self.anon_bytes - since) / max(count, 1))

    async def make_topics(self, names: list[str], queues: int) -> float:
        """Create topics on the broker; return the seconds until the name server had them."""
        began = time.monotonic()
        async with RemotingClient() as client:
            for first in range(0, len(names), TOPICS_AT_ONCE):
                chunk = [TopicConfig(name, queues, queues) for name in names[first : first + TOPICS_AT_ONCE]]
                command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=TOPIC_CONFIGS.dumps(chunk))
                reply = await client.invoke(self.broker, command, 30_000)
                if reply.code != ResponseCode.SUCCESS:
                    raise SystemExit(f"topics were not made: {reply.remark}")
        return time.monotonic() - began

    async def fill(self, topics: list[str]) -> float:
        """Send one message into every queue; return the duration in seconds."""
        began = time.monotonic()
        async with Producer("scale", self.namesrv, send_msg_timeout_ms=60_000) as producer:
            places = [MessageQueue(topic, "broker-a", queue) for topic in topics for queue in range(MEMBERS)]
            for first in range(0, len(places), 256):
                await asyncio.gather(
                    *(producer.send(Message(one.topic, b"x" * 100), queue=one) for one in places[first : first + 256])
                )
        return time.monotonic() - began

    async def dispatched(self) -> None:
        """Wait until every message can be consumed, and note the duration."""
        began = time.monotonic()
        async with RemotingClient() as client:
            while time.monotonic() < began + 300:
                reply = await client.invoke(self.broker, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 30_000)
                if int(KV_TABLE.loads(reply.body)["dispatchBehindBytes"]) == 0:
                    break
                await asyncio.sleep(0.1)
        self.note("queues.consumable_after_s", time.monotonic() - began)
        await asyncio.sleep(3)

    async def run(self) -> None:
        """Run all stages."""
        arguments = self.arguments
        groups = arguments.connections // MEMBERS
        self.note("start_s", self.server.start_s)
        self.note("start_cpu_s", self.cpu_s)
        await self.load(seconds=WARM_S)
        await self.measure("alone")
        memory = self.anon_bytes

        topics = [topic_of(number) for number in range(groups)]
        self.note("queues.topics_made_s", await self.make_topics(topics, MEMBERS))
        self.note("queues.filled_s", await self.fill(topics))
        await self.dispatched()
        self.grown("queues", memory, arguments.connections)
        self.note("queues.one_more_topic_s", await self.make_topics(["OneMore"], MEMBERS))
        await self.measure("queues")

        crowd, memory = Crowd(), self.anon_bytes
        self.note("connections.joined_s", await crowd.join(self.server.port, arguments.connections))
        beating = asyncio.create_task(crowd.beat())
        await asyncio.sleep(3)
        self.grown("connections", memory, arguments.connections)
        await self.beating(crowd, "connections")
        await self.measure("connections")

        memory = self.anon_bytes
        await crowd.poll()
        await asyncio.sleep(3)
        self.grown("polls", memory, arguments.connections)
        await self.beating(crowd, "polls")
        await self.measure("polls")
        await self.wakes(crowd)
        await self.herd(crowd)
        self.note("crowd.lost", crowd.lost)
        self.note("crowd.bad", crowd.bad)
        if crowd.remark:
            print(f"a poll was refused: {crowd.remark}")
        beating.cancel()
        crowd.wants_polls = False
        crowd.leave()
        await asyncio.sleep(3)

        for how, number in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
            self.note(f"restart.{how}_s", self.server.restart(number))
            self.note(f"restart.{how}_cpu_s", self.cpu_s)
        await self.grow()

    async def beating(self, crowd: Crowd, stage: str) -> None:
        """Measure the CPU time of the heartbeats, then pause them and measure the idle connections."""
        self.note(f"{stage}.heartbeats_cpu_percent", await self.cpu_percent(QUIET_S))
        crowd.beating = False
        await asyncio.sleep(1)
        self.note(f"{stage}.silent_cpu_percent", await self.cpu_percent(QUIET_S))
        crowd.beating = True

    async def wakes(self, crowd: Crowd) -> None:
        """Measure the time from a send to the delivery at a waiting consumer."""
        took = []
        async with Producer("scale", self.namesrv) as producer:
            for number in range(0, len(crowd.consumers), max(len(crowd.consumers) // 200, 1)):
                one = crowd.consumers[number]
                crowd.arrived.clear()
                began = time.perf_counter()
                await producer.send(Message(one.topic, b"wake"), queue=MessageQueue(one.topic, "broker-a", one.queue))
                try:
                    async with asyncio.timeout(5):
                        await crowd.arrived.wait()
                except TimeoutError:
                    raise SystemExit("a message did not come to the consumer that waits for it") from None
                took.append((time.perf_counter() - began) * 1e6)
        self.note("polls.wake_p50_us", statistics.median(took))
        self.note("polls.wake_p99_us", sorted(took)[int(len(took) * 0.99)])

    async def herd(self, crowd: Crowd) -> None:
        """End all polls of one queue's topic together, and measure the longest send meanwhile, with one send
        in flight.
        """
        longest, before, cpu_s = 0.0, crowd.polls, self.cpu_s
        async with Producer("scale", self.namesrv, send_msg_timeout_ms=30_000) as producer:
            end = time.monotonic() + POLL_MS / 1000 + 5
            while time.monotonic() < end and crowd.polls - before < len(crowd.consumers):
                began = time.perf_counter()
                try:
                    await producer.send(Message("BenchmarkTest", b"x"))
                except TianzhouError as error:
                    raise SystemExit(f"a send failed while polls ended: {error}") from error
                longest = max(longest, time.perf_counter() - began)
                await asyncio.sleep(0.01)
        self.note("polls.ended", crowd.polls - before)
        self.note("polls.cpu_us_each_end", (self.cpu_s - cpu_s) * 1e6 / max(crowd.polls - before, 1))
        self.note("polls.longest_send_while_ending_ms", longest * 1000)

    async def grow(self) -> None:
        """Run the same load over more and more topics."""
        for count in GROWTH:
            await self.make_topics([f"Grow{number:04}" for number in range(count)], 8)
            await self.load(f"-T Grow -k {count}", WARM_S)
            found = await self.load(f"-T Grow -k {count}")
            for name, value in found.items():
                self.note(f"growth.{count}.{name}", value)
            if count != GROWTH[0]:
                self.note(f"growth.{count}.p99_ratio", found["p99_us"] / self.figures[f"growth.{GROWTH[0]}.p99_us"])
                self.note(f"growth.{count}.rate_ratio", self.figures[f"growth.{GROWTH[0]}.msgs"] / found["msgs"])


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--connections", type=int, default=10_000, help=f"consumers, a multiple of {MEMBERS}; as many queues are there"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if arguments.connections % MEMBERS or not 0 < arguments.connections <= 10_000 * MEMBERS:
        parser.error(f"--connections {arguments.connections}: expected a multiple of {MEMBERS} up to 100000")
    allow_files(arguments.connections + SPARE_FILES)
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        began = os.getloadavg()
        try:
            scale = Scale(arguments, Path(scratch))
            try:
                run(scale.run())
            finally:
                scale.server.stop()
        except CannotRunError as error:
            sys.exit(f"cannot run: {error}")
        document = {
            "connections": arguments.connections,
            "cores": os.cpu_count(),
            "load_before": began,
            "load_after": os.getloadavg(),
            "figures": scale.figures,
        }
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
