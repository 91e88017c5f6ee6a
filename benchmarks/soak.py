"""A broker under half its load for a while: memory flat, nothing lost, latency as at the beginning.

    python benchmarks/soak.py [--minutes 20] [--rate 0] [--out soak.json]

One `tianzhou serve` process, one producer in this one and one consumer in a third. Without `--rate` the load is half
of what a few seconds at full speed reached. Every acknowledged message has to be consumed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from tianzhou import Message, MessageQueue, Producer, PullConsumer, SendStatus  # noqa: E402 - run from a checkout
from tianzhou.admin import Admin  # noqa: E402
from tianzhou.errors import TianzhouError  # noqa: E402

TOPIC = "Soak"
QUEUES = 8
MOST_IN_FLIGHT = 512
PROBE_SECONDS = 5.0
SAMPLE_SECONDS = 10.0
DRAIN_SECONDS = 120.0
BODY = 512


def figure(pid: int, name: str) -> int:
    """A figure of /proc/PID/status, bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


class Reader:
    """The consumer, in a process of its own: what it does must not slow down the producer, nor the other way round.

    Says every second, as a line of JSON, up to where it has consumed each queue and how many offsets were out of
    order; ends when it has everything up to the offsets it reads from its input.
    """

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.consumed = [0] * QUEUES
        self.wrong = 0
        self.ends: list[int] | None = None

    async def consume(self, consumer: PullConsumer, queue_id: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", queue_id)
        offset = 0
        while self.ends is None or offset < self.ends[queue_id]:
            result = await consumer.pull(queue, offset, suspend_ms=500)
            for message in result.messages:
                self.wrong += message.queue_offset != offset
                offset = message.queue_offset + 1
            self.consumed[queue_id] = offset = max(offset, result.next_offset)

    def tell(self) -> None:
        print(json.dumps({"consumed": self.consumed, "wrong": self.wrong}), flush=True)

    async def run(self) -> None:
        async with PullConsumer("soak_reader", self.namesrv) as consumer:
            reading = asyncio.gather(*(self.consume(consumer, n) for n in range(QUEUES)))
            last = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
            while not reading.done():
                await asyncio.wait([reading], timeout=1)
                self.tell()
                if self.ends is None and last.done():
                    self.ends = json.loads(last.result())
            reading.result()


class Soak:
    def __init__(self, namesrv: str, pid: int) -> None:
        self.namesrv = namesrv
        self.pid = pid
        self.acknowledged = [0] * QUEUES
        self.consumed = [0] * QUEUES
        self.wrong = 0
        self.failed = 0
        self.latencies: list[float] = []
        self.sent = 0
        self.samples: list[dict[str, Any]] = []

    async def send(self, producer: Producer, queue_id: int, began: float) -> None:
        body = b"%020d" % self.sent + b"x" * (BODY - 20)
        self.sent += 1
        try:
            result = await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, "broker-a", queue_id))
        except TianzhouError:
            self.failed += 1
            return
        self.latencies.append(time.perf_counter() - began)
        if result.status is SendStatus.SEND_OK:
            self.acknowledged[queue_id] = max(self.acknowledged[queue_id], result.queue_offset + 1)

    async def full_speed(self, producer: Producer) -> float:
        began = time.perf_counter()
        count = 0
        while time.perf_counter() < began + PROBE_SECONDS:
            await asyncio.gather(*(self.send(producer, n % QUEUES, time.perf_counter()) for n in range(256)))
            count += 256
        return count / (time.perf_counter() - began)

    async def load(self, producer: Producer, rate: float, until: float) -> None:
        """Send at a steady rate whatever the answers do; latency counts from when a message was due."""
        due = time.perf_counter()
        pending: set[asyncio.Task[None]] = set()
        number = 0
        while due < until:
            now = time.perf_counter()
            # More at once would only measure this process: it falls behind, and latencies say so.
            while due <= now and len(pending) < MOST_IN_FLIGHT:
                task = asyncio.create_task(self.send(producer, number % QUEUES, due))
                pending.add(task)
                task.add_done_callback(pending.discard)
                number += 1
                due += 1 / rate
            await asyncio.sleep(0.002)
        await asyncio.gather(*pending)

    async def follow(self, reader: asyncio.subprocess.Process) -> None:
        """Take down what the reader says, until it ends."""
        assert reader.stdout is not None
        async for line in reader.stdout:
            told = json.loads(line)
            self.consumed, self.wrong = told["consumed"], told["wrong"]

    async def watch(self, began: float) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            latencies, self.latencies = sorted(self.latencies), []
            sample = {
                "second": round(time.perf_counter() - began),
                "rss_anon_mib": round(figure(self.pid, "RssAnon") / 2**20, 1),
                "sent": self.sent,
                "consumed": sum(self.consumed),
                "failed": self.failed,
                "p50_ms": round(latencies[len(latencies) // 2] * 1e3, 2) if latencies else None,
                "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 2) if latencies else None,
            }
            self.samples.append(sample)
            print("  ".join(f"{name} {value}" for name, value in sample.items()), flush=True)

    async def run(self, minutes: float, rate: float) -> dict[str, Any]:
        async with Admin(self.namesrv) as admin:
            await admin.topics.create(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        reader = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--read", self.namesrv,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert reader.stdin is not None
        following = asyncio.create_task(self.follow(reader))
        try:
            async with Producer("soak", self.namesrv) as producer:
                rate = rate or await self.full_speed(producer) / 2
                self.latencies.clear()
                print(f"{rate:.0f} messages/s for {minutes} minutes", flush=True)
                began = time.perf_counter()
                watcher = asyncio.create_task(self.watch(began))
                await self.load(producer, rate, began + minutes * 60)
                watcher.cancel()
            reader.stdin.write(json.dumps(self.acknowledged).encode() + b"\n")
            await asyncio.wait_for(following, DRAIN_SECONDS)
        finally:
            if reader.returncode is None:
                reader.terminate()
            await reader.wait()
        lost = sum(max(a - c, 0) for a, c in zip(self.acknowledged, self.consumed, strict=True)) + self.wrong
        memory = [sample["rss_anon_mib"] for sample in self.samples]
        third = max(len(memory) // 3, 1)
        return {
            "rate": round(rate),
            "minutes": minutes,
            "sent": self.sent,
            "failed": self.failed,
            "lost": lost,
            "rss_anon_mib": {"first_third": max(memory[:third]), "last_third": max(memory[-third:])} if memory else {},
            "samples": self.samples,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=float, default=0, help="messages a second; half of full speed by default")
    parser.add_argument("--flush", default="ASYNC_FLUSH", choices=["ASYNC_FLUSH", "SYNC_FLUSH"])
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    parser.add_argument("--dir", help="where the store goes; the system's temporary folder by default")
    parser.add_argument("--read", metavar="NAMESRV", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        asyncio.run(Reader(arguments.read).run())
        return
    with tempfile.TemporaryDirectory(prefix="soak-", dir=arguments.dir) as folder:
        command = [sys.executable, "-m", "tianzhou", "serve", "--data", folder, "--flush", arguments.flush]
        command += ["--namesrv-port", "0", "--broker-port", "0", "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
            try:
                assert server.stdout is not None
                ready = json.loads(server.stdout.readline())
                report = asyncio.run(Soak(ready["namesrv"], server.pid).run(arguments.minutes, arguments.rate))
            finally:
                server.terminate()
                server.wait(30)
    text = json.dumps(report, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in report.items() if name != "samples"}, indent=1))


if __name__ == "__main__":
    main()
