"""How late delayed messages come, with many of them pending at a real broker.

    python benchmarks/delays.py [--pending 100000] [--rate 4000] [--level 4] [--dir FOLDER]

A producer sends `--pending` messages of one delay level at a steady rate, so slowly that all of them wait at the same
time before the first is due, or as many as the delay allows. How late each came is the difference of two store
times of the broker: of the delivered message, and of the waiting one plus the delay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from tianzhou import Message, MessageQueue, Producer, PullConsumer  # noqa: E402 - run from a checkout
from tianzhou.admin import Admin  # noqa: E402
from tianzhou.store.settings import StoreSettings, parse_delay_levels  # noqa: E402

TOPIC = "Later"
QUEUES = 4
IN_FLIGHT = 64
TICK_S = 0.02


def serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a name server and a broker; gives the process and the name server's address."""
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tianzhou", "serve", "--data", str(folder / "data"), "-o", "json", *ports],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    return process, str(ready["namesrv"])


async def send(namesrv: str, count: int, rate: float, level: int) -> tuple[float, float]:
    """Send at a steady rate; gives the rate that was reached, and how many seconds it took."""
    limit = asyncio.Semaphore(IN_FLIGHT)
    async with Producer("P", namesrv) as producer:

        async def one(number: int) -> None:
            try:
                await producer.send(Message(TOPIC, f"{number:0100d}".encode(), delay_level=level))
            finally:
                limit.release()

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await limit.acquire()
                tasks.create_task(one(number))
                ahead = number / rate - (time.monotonic() - began)
                if ahead > TICK_S:
                    await asyncio.sleep(ahead)
        took = time.monotonic() - began
        return count / took, took


async def read(namesrv: str, topic: str, queues: Iterable[int]) -> dict[bytes, list[int]]:
    """Store times of all messages of a topic, by body."""
    found: dict[bytes, list[int]] = {}
    async with PullConsumer("R", namesrv) as consumer:
        for queue_id in queues:
            queue = MessageQueue(topic, "broker-a", queue_id)
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, max_messages=32)
                for message in result.messages:
                    found.setdefault(bytes(message.body), []).append(message.store_timestamp)
                offset = result.next_offset
    return found


def report(late: list[int]) -> str:
    """Percentiles in milliseconds."""
    late.sort()
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    parts = [f"{name} {late[min(int(share * len(late)), len(late) - 1)]}" for name, share in shares.items()]
    return ", ".join([*parts, f"max {late[-1]}", f"earliest {late[0]}"])


async def measure(namesrv: str, arguments: argparse.Namespace) -> None:
    async with Admin(namesrv) as admin:
        await admin.topics.create(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    level: int = arguments.level
    delay_ms = parse_delay_levels(StoreSettings().message_delay_level)[level - 1]
    rate, took = await send(namesrv, arguments.pending, arguments.rate, level)
    pending = int(min(arguments.pending, rate * delay_ms / 1000))
    print(f"sent {arguments.pending} in {took:.1f} s ({rate:.0f}/s); {pending} pending when the first was due")
    await asyncio.sleep(delay_ms / 1000 + 3)
    waiting = await read(namesrv, "SCHEDULE_TOPIC_XXXX", [level - 1])
    delivered = await read(namesrv, TOPIC, range(QUEUES))
    counts = Counter(len(times) for times in delivered.values())
    missing = waiting.keys() - delivered.keys()
    late = [delivered[body][0] - waiting[body][0] - delay_ms for body in waiting.keys() - missing]
    print(f"{len(late)} delivered, {len(missing)} not (yet), {counts[1]} of them once")
    print(f"ms late: {report(late)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=4_000)
    parser.add_argument("--level", type=int, default=4, help="delay level, 4 is 30 s")
    parser.add_argument("--dir", default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        process, namesrv = serve(Path(folder))
        try:
            asyncio.run(measure(namesrv, arguments))
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
