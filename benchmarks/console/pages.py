"""Response time of each console page, with a thousand topics and groups and ten thousand members.

Usage: PYTHONPATH=src:benchmarks .venv/bin/python benchmarks/console/pages.py [--topics N] [--groups N] [--members N]

Servers and console are processes. Members are connections of this one whose heartbeats name every group: ten of them
are ten members of each group. A figure is the time from the request to the last byte of a page's HTML, with all rows of
the page's first view. The table has the median and the slowest of ten requests, after two that do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crowd import topic_of

from tianzhou.admin import Admin
from tianzhou.client import Producer
from tianzhou.model import ConsumerData, HeartbeatData, Message, SubscriptionData
from tianzhou.remoting.client import RemotingClient
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command

ROUNDS, WARM_UP = 10, 2
MESSAGES = 200
GROUPS_A_BEAT = 200
AT_ONCE = 16
BEAT_S = 20.0
SETTLE_S = 15.0


def group_of(number: int) -> str:
    """The group of a topic's consumers."""
    return f"group{number:04}"


@contextlib.contextmanager
def command(folder: Path, *args: object) -> Iterator[dict[str, Any]]:
    """Run a `tianzhou` command until the context ends; yield its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tianzhou", *map(str, args), "-o", "json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)


async def fill(namesrv: str, topics: int, groups: int) -> None:
    """Create topics of ten queues and groups, several at a time."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with Admin(namesrv) as admin:

        async def make(number: int) -> None:
            async with gate:
                if number < topics:
                    await admin.topics.create(topic_of(number), read_queue_nums=10, write_queue_nums=10)
                if number < groups:
                    await admin.groups.create(group_of(number))

        await asyncio.gather(*map(make, range(max(topics, groups))))


async def send(namesrv: str, topic: str) -> str:
    """Send messages to a topic, for the pages about them; the id of the last one."""
    async with Producer("shop", namesrv, trace=True) as producer:
        for number in range(MESSAGES):
            sent = await producer.send(Message(topic, b'{"id": %d}' % number, keys=f"order-{number}"))
    return sent.msg_id


async def beat(client: RemotingClient, broker: str, name: str, topics: int, groups: int) -> None:
    """Heartbeats of one member of every group."""
    for first in range(0, groups, GROUPS_A_BEAT):
        consumers = [
            ConsumerData(group_of(number), subscription_data_set=[SubscriptionData(topic_of(number % topics), "*")])
            for number in range(first, min(first + GROUPS_A_BEAT, groups))
        ]
        body = HEARTBEAT.dumps(HeartbeatData(name, [], consumers))
        await client.invoke(broker, Command(RequestCode.HEART_BEAT, body=body), 30_000)


def taken_ms(url: str, path: str) -> tuple[list[float], int]:
    """Milliseconds of each round, and the bytes of the page."""
    host = url.removeprefix("http://")
    times: list[float] = []
    size = 0
    for _ in range(WARM_UP + ROUNDS):
        connection = http.client.HTTPConnection(host, timeout=60)
        began = time.monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        times.append((time.monotonic() - began) * 1000)
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        time.sleep(0.1)
    return times[WARM_UP:], size


async def measure(topics: int, groups: int, members: int) -> None:
    """Fill a cluster, and print a line for each page."""
    import tianzhou.console.pages  # noqa: F401 - registers the pages
    from tianzhou.console.layout import PAGES

    names = {"topic": topic_of(7), "group": group_of(7), "broker": "broker-a", "member": "member-3"}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        ports = ("--namesrv-port", 0, "--broker-port", 0)
        ready = stack.enter_context(command(folder, "serve", "--data", "data", *ports))
        await fill(ready["namesrv"], topics, groups)
        message = f"?topic={names['topic']}&id={await send(ready['namesrv'], names['topic'])}"
        queries = {
            "/messages": f"?topic={names['topic']}", "/message": message, "/trace": message,
            "/dead-letters": f"?group={names['group']}",
        }  # fmt: skip
        clients = [RemotingClient() for _ in range(members)]
        async with contextlib.AsyncExitStack() as open_clients:
            for client in clients:
                await open_clients.enter_async_context(client)

            async def beat_all() -> None:
                for number, client in enumerate(clients):
                    await beat(client, ready["broker"], f"member-{number}", topics, groups)

            async def keep_beating() -> None:
                while True:
                    await asyncio.sleep(BEAT_S)
                    await beat_all()

            await beat_all()
            beating = asyncio.create_task(keep_beating())
            url = stack.enter_context(command(folder, "console", "-n", ready["namesrv"], "--port", 0))["url"]
            await asyncio.sleep(SETTLE_S)
            print(f"{topics} topics, {groups} groups, {groups * members} members; load {os.getloadavg()[0]:.1f}")
            print(f"{'page':44} {'median ms':>9} {'slowest':>8} {'KiB':>6}")
            for page in PAGES:
                path = re.sub(r"{(\w+)}", lambda blank: quote(names[blank[1]], safe=""), page.path)
                path += queries.get(page.path, "")
                times, size = await asyncio.to_thread(taken_ms, url, path)
                print(
                    f"{page.path:44} {statistics.median(times):9.0f} {max(times):8.0f} {size / 1024:6.0f}", flush=True
                )
            beating.cancel()


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=10, help="of each group")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2] / "src")
    asyncio.run(measure(options.topics, options.groups, options.members))


if __name__ == "__main__":
    main()
