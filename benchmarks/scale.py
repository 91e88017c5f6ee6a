#!/usr/bin/env python3
"""What a broker costs when it has many of something: connections, queues, waiting consumers, topics in use.

    .venv/bin/python benchmarks/scale.py --json scale.json        # 10 000 of each, about ten minutes
    .venv/bin/python benchmarks/scale.py --small                  # 1 000 of each, about three

One broker and one name server as processes, on a fresh store with RocketMQ's default settings. Measured in turn: alone;
with QUEUES queues, each holding a message; with CONNECTIONS connections besides, each of a consumer that sends its
heartbeat every 30 s; with a long poll held on each of them; starts on that store; and 64 connections sending to 10,
100 and 1 000 topics. Each time: p99 of 64 connections that send one message at a time (`loadgen.c`, needs gcc),
the broker's anonymous memory, and its CPU time while nobody wants anything. Wanted: p99 within 2x of alone, within 1.5x
from 10 to 1 000 topics, and no CPU time to speak of.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from crowd import MEMBERS, POLL_MS, Crowd, topic_of  # noqa: E402 - run from a checkout

from tianzhou import Message, MessageQueue, Producer  # noqa: E402 - run from a checkout
from tianzhou.errors import TianzhouError  # noqa: E402
from tianzhou.model import TopicConfig  # noqa: E402
from tianzhou.remoting.client import RemotingClient  # noqa: E402
from tianzhou.remoting.loop import run  # noqa: E402
from tianzhou.wire.bodies.tables import KV_TABLE  # noqa: E402
from tianzhou.wire.bodies.topics import TOPIC_CONFIGS  # noqa: E402
from tianzhou.wire.codes import RequestCode, ResponseCode  # noqa: E402
from tianzhou.wire.command import Command  # noqa: E402

NAMESRV_PORT, BROKER_PORT = 24876, 24911
BROKER, NAMESRV = f"127.0.0.1:{BROKER_PORT}", f"127.0.0.1:{NAMESRV_PORT}"
TOPICS_AT_ONCE = 200
SPARE_FILES = 1_000
QUIET_S = 10.0
GROWTH = (10, 100, 1_000)


def allow_files(wanted: int) -> None:
    """Let this process, and those it starts, have so many files and sockets, or say how to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            sys.exit(
                f"{wanted} files and sockets are needed, this machine allows {hard} per process (ulimit -Hn); raise it "
                f"(as root: ulimit -Hn {wanted}), or measure fewer: --connections {max(hard - SPARE_FILES, 10)}"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Servers:
    """A name server and a broker on one store.

    Args:
        work: scratch folder.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        (work / "namesrv.conf").write_text(f"listenPort={NAMESRV_PORT}\n")
        (work / "broker.conf").write_text(
            f"brokerName=broker-a\nbrokerIP1=127.0.0.1\nlistenPort={BROKER_PORT}\nnamesrvAddr={NAMESRV}\n"
            f"storePathRootDir={work}/store\ndiskMaxUsedSpaceRatio=99\n"
        )
        self.log = (work / "out.log").open("w")
        self.namesrv = self._start("namesrv", "namesrv.conf")
        self._open(NAMESRV_PORT, self.namesrv)
        self.broker, self.start_s = self.start_broker()

    def _start(self, command: str, conf: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tianzhou", command, "-c", str(self.work / conf)],
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
        )

    def start_broker(self) -> tuple[subprocess.Popen[bytes], float]:
        """Start the broker; how long until its port was open."""
        began = time.monotonic()
        broker = self._start("broker", "broker.conf")
        self._open(BROKER_PORT, broker)
        return broker, time.monotonic() - began

    def restart(self, number: int) -> float:
        """End the broker by a signal and start it again; how long until its port was open."""
        self.broker.send_signal(number)
        self.broker.wait(60)
        self.broker, seconds = self.start_broker()
        return seconds

    def _open(self, port: int, process: subprocess.Popen[bytes], limit_s: float = 120) -> None:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if process.poll() is not None:
                sys.exit(f"a server ended with {process.returncode}: {(self.work / 'out.log').read_text()[-2000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)
        sys.exit(f"port {port} not open after {limit_s:.0f} s")

    def stop(self) -> None:
        """End both."""
        for process in (self.broker, self.namesrv):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (self.broker, self.namesrv):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()


def cpu_s(pid: int) -> float:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anon_bytes(pid: int) -> int:
    """Anonymous resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Scale:
    """The measurement.

    Args:
        arguments: of the command line.
        work: scratch folder.
    """

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.work = work
        self.program = work / "loadgen"
        subprocess.run(["gcc", "-O2", "-o", str(self.program), str(HERE / "loadgen.c")], check=True)
        self.figures: dict[str, float] = {}
        self.servers = Servers(work)

    def note(self, name: str, value: float) -> None:
        """Keep a figure and show it."""
        self.figures[name] = value
        print(f"{name:44s} {value:>14,.2f}", flush=True)

    async def load(self, options: str = "") -> dict[str, float]:
        """The load tool's figures, medians over the rounds."""
        rounds = []
        for _ in range(self.arguments.rounds):
            process = await asyncio.create_subprocess_exec(
                str(self.program), "-p", str(BROKER_PORT), "-c", "64", "-w", "1", "-t", str(self.arguments.secs),
                *options.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            out, err = await process.communicate()
            if not out:
                raise SystemExit(f"loadgen ended with {process.returncode}: {err.decode()[:500]}")
            rounds.append(json.loads(out.decode().strip().splitlines()[-1]))
        return {name: statistics.median(one[name] for one in rounds) for name in ("msgs", "p50_us", "p99_us", "bad")}

    async def measure(self, stage: str) -> None:
        """Latency, memory and idle CPU time with what there is now."""
        pid = self.servers.broker.pid
        found = await self.load()
        for name, value in found.items():
            self.note(f"{stage}.{name}", value)
        if stage != "alone":
            self.note(f"{stage}.p99_ratio", found["p99_us"] / self.figures["alone.p99_us"])
        await asyncio.sleep(2)
        before, began = cpu_s(pid), time.monotonic()
        await asyncio.sleep(QUIET_S)
        self.note(f"{stage}.idle_cpu_percent", 100 * (cpu_s(pid) - before) / (time.monotonic() - began))
        self.note(f"{stage}.anon_mb", anon_bytes(pid) / 1e6)

    def grown(self, stage: str, since: int, count: int) -> None:
        """Note the memory each of so many took."""
        now = anon_bytes(self.servers.broker.pid)
        self.note(f"{stage}.bytes_each", (now - since) / max(count, 1))

    async def make_topics(self, names: list[str], queues: int) -> float:
        """Create topics on the broker; returns the seconds until the name server knew them."""
        began = time.monotonic()
        async with RemotingClient() as client:
            for first in range(0, len(names), TOPICS_AT_ONCE):
                chunk = [TopicConfig(name, queues, queues) for name in names[first : first + TOPICS_AT_ONCE]]
                command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=TOPIC_CONFIGS.dumps(chunk))
                reply = await client.invoke(BROKER, command, 30_000)
                if reply.code != ResponseCode.SUCCESS:
                    raise SystemExit(f"topics were not made: {reply.remark}")
        return time.monotonic() - began

    async def fill(self, topics: list[str]) -> float:
        """One message into every queue; returns the seconds that took."""
        began = time.monotonic()
        async with Producer("scale", NAMESRV, send_msg_timeout_ms=60_000) as producer:
            places = [MessageQueue(topic, "broker-a", queue) for topic in topics for queue in range(MEMBERS)]
            for first in range(0, len(places), 256):
                await asyncio.gather(
                    *(producer.send(Message(one.topic, b"x" * 100), queue=one) for one in places[first : first + 256])
                )
        return time.monotonic() - began

    async def dispatched(self) -> None:
        """Wait until every message can be consumed, and note how long that takes."""
        began = time.monotonic()
        async with RemotingClient() as client:
            while time.monotonic() < began + 300:
                reply = await client.invoke(BROKER, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 30_000)
                if int(KV_TABLE.loads(reply.body)["dispatchBehindBytes"]) == 0:
                    break
                await asyncio.sleep(0.1)
        self.note("queues.consumable_after_s", time.monotonic() - began)
        await asyncio.sleep(3)

    async def run(self) -> None:
        """All stages."""
        arguments = self.arguments
        groups = arguments.queues // MEMBERS
        self.note("start_s", self.servers.start_s)
        self.note("start_cpu_s", cpu_s(self.servers.broker.pid))
        await self.load("-t 2")  # warm
        await self.measure("alone")
        memory = anon_bytes(self.servers.broker.pid)

        topics = [topic_of(number) for number in range(groups)]
        self.note("queues.topics_made_s", await self.make_topics(topics, MEMBERS))
        self.note("queues.filled_s", await self.fill(topics))
        await self.dispatched()
        self.grown("queues", memory, arguments.queues)
        self.note("queues.one_more_topic_s", await self.make_topics(["OneMore"], MEMBERS))
        await self.measure("queues")

        crowd, memory = Crowd(), anon_bytes(self.servers.broker.pid)
        self.note("connections.joined_s", await crowd.join(BROKER_PORT, arguments.connections))
        beating = asyncio.create_task(crowd.beat())
        await asyncio.sleep(3)
        self.grown("connections", memory, arguments.connections)
        await self.beating(crowd, "connections")
        await self.measure("connections")

        memory = anon_bytes(self.servers.broker.pid)
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
            self.note(f"restart.{how}_s", self.servers.restart(number))
            self.note(f"restart.{how}_cpu_s", cpu_s(self.servers.broker.pid))
        await self.grow()

    async def beating(self, crowd: Crowd, stage: str) -> None:
        """CPU time of the heartbeats alone; then they pause, for what is idle has to cost nothing."""
        pid, before, began = self.servers.broker.pid, cpu_s(self.servers.broker.pid), time.monotonic()
        await asyncio.sleep(QUIET_S)
        self.note(f"{stage}.heartbeats_cpu_percent", 100 * (cpu_s(pid) - before) / (time.monotonic() - began))
        crowd.beating = False
        await asyncio.sleep(1)
        before, began = cpu_s(pid), time.monotonic()
        await asyncio.sleep(QUIET_S)
        self.note(f"{stage}.silent_cpu_percent", 100 * (cpu_s(pid) - before) / (time.monotonic() - began))
        crowd.beating = True

    async def wakes(self, crowd: Crowd) -> None:
        """How long a message takes to one of those that wait."""
        took = []
        async with Producer("scale", NAMESRV) as producer:
            for number in range(0, len(crowd.consumers), max(len(crowd.consumers) // 200, 1)):
                one = crowd.consumers[number]
                crowd.arrived.clear()
                began = time.perf_counter()
                await producer.send(
                    Message(topic_of(one.group), b"wake"),
                    queue=MessageQueue(topic_of(one.group), "broker-a", one.queue),
                )
                try:
                    async with asyncio.timeout(5):
                        await crowd.arrived.wait()
                except TimeoutError:
                    raise SystemExit("a message did not come to the consumer that waits for it") from None
                took.append((time.perf_counter() - began) * 1e6)
        self.note("polls.wake_p50_us", statistics.median(took))
        self.note("polls.wake_p99_us", sorted(took)[int(len(took) * 0.99)])

    async def herd(self, crowd: Crowd) -> None:
        """All polls of one queue's topic end together: the longest that a send takes meanwhile, one at a time."""
        longest, before = 0.0, crowd.polls
        pid, cpu = self.servers.broker.pid, cpu_s(self.servers.broker.pid)
        async with Producer("scale", NAMESRV, send_msg_timeout_ms=30_000) as producer:
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
        self.note("polls.cpu_us_each_end", (cpu_s(pid) - cpu) * 1e6 / max(crowd.polls - before, 1))
        self.note("polls.longest_send_while_ending_ms", longest * 1000)

    async def grow(self) -> None:
        """The same load over more and more topics."""
        for count in GROWTH:
            await self.make_topics([f"Grow{number:04}" for number in range(count)], 8)
            await self.load(f"-T Grow -k {count} -t 2")
            found = await self.load(f"-T Grow -k {count}")
            for name, value in found.items():
                self.note(f"growth.{count}.{name}", value)
            if count != GROWTH[0]:
                self.note(f"growth.{count}.p99_ratio", found["p99_us"] / self.figures[f"growth.{GROWTH[0]}.p99_us"])
                self.note(f"growth.{count}.rate_ratio", self.figures[f"growth.{GROWTH[0]}.msgs"] / found["msgs"])


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: benchmarks/scale.py --connections 2000 --queues 5000 --rounds 5 --json scale.json",
    )  # fmt: skip
    parser.add_argument("--connections", type=int, default=10_000, help="consumers, each with a connection and a poll")
    parser.add_argument("--queues", type=int, default=10_000, help=f"queues with a message in each, {MEMBERS} a topic")
    parser.add_argument("--small", action="store_true", help="1000 of each")
    parser.add_argument("--rounds", type=int, default=3, help="loads of each stage; medians are shown")
    parser.add_argument("--secs", type=int, default=5, help="seconds of a load")
    parser.add_argument("--work", type=Path, help="scratch folder; default: a temporary one")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.connections = arguments.queues = 1_000
    if arguments.queues < arguments.connections or arguments.queues % MEMBERS or arguments.queues > 10_000 * MEMBERS:
        parser.error(f"--queues {arguments.queues}: a multiple of {MEMBERS}, at least one a connection, at most 100000")
    if shutil.which("gcc") is None:
        parser.error("gcc is not there, and the load tool has to be compiled (apt-get install gcc)")
    allow_files(arguments.connections + SPARE_FILES)
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        began = os.getloadavg()
        scale = Scale(arguments, work)
        try:
            run(scale.run())
        finally:
            scale.servers.stop()
        document = {
            "connections": arguments.connections,
            "queues": arguments.queues,
            "cores": os.cpu_count(),
            "load_before": began,
            "load_after": os.getloadavg(),
            "figures": scale.figures,
        }
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
