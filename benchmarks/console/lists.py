"""Processor time of the console's lists with 10 000 topics and 2 000 groups, over generated measurements.

Usage: PYTHONPATH=src .venv/bin/python benchmarks/console/lists.py [--topics N] [--groups N]

The console runs in this process, without a cluster. `page` is the time from the request to the last byte of a page's
HTML with its first rows. `view` is the console's work for each further view of an open page: filter, sort and cut the
list, and build the rows. Each line prints the median and the slowest of twenty rounds, after two warm-up rounds, in ms
of processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn

from tianzhou.admin import Admin
from tianzhou.console.accounts import ConsoleRole
from tianzhou.console.console import Console
from tianzhou.console.group_list import group_entries, groups_by_topic
from tianzhou.console.layout import View
from tianzhou.console.lists import state_of
from tianzhou.console.measures import GroupFigures, TopicFigures
from tianzhou.console.rows_table import ListSource
from tianzhou.console.server import application
from tianzhou.console.sessions import Visitor
from tianzhou.console.settings import ConsoleSettings
from tianzhou.console.snapshot import ClusterSnapshot, Watcher
from tianzhou.console.topic_list import topic_entries
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.model.subscription import ConsumeType, MessageModel
from tianzhou.wire.bodies.offsets import ConsumeStats, QueueProgress, TopicOffset, TopicStats

ROUNDS, WARM_UP = 20, 2
SAMPLES = 13


def fill(watcher: Watcher, topics: int, groups: int) -> None:
    """Store a snapshot in a watcher in which every topic and group was measured for a minute."""
    dice = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    names = [f"department-{number % 97:02}.topic-{number:05}" for number in range(topics)]
    configs = {name: TopicConfig(name, 8, 8) for name in names}
    group_configs = {name: SubscriptionGroupConfig(name) for name in (f"group-{number:04}" for number in range(groups))}
    entries, of_groups = topic_entries(names, (), {"broker-a": configs}), group_entries({"broker-a": group_configs}, ())
    for name in names:
        found, total = watcher.topics.setdefault(name, TopicFigures(now_ms)), dice.randrange(1_000_000)
        for sample in range(SAMPLES):
            total += dice.randrange(100)
            queue = TopicOffset(0, total, now_ms - dice.randrange(1_000_000))
            found.take(now_ms - (SAMPLES - sample) * 5_000, [TopicStats({MessageQueue(name, "broker-a", 0): queue})])
    for name in group_configs:
        group = watcher.groups.setdefault(name, GroupFigures(now_ms))
        group.members, group.way, group.model = 3, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING
        topic, end = dice.choice(names), dice.randrange(10_000)
        for sample in range(SAMPLES):
            at = QueueProgress(end, sample * end // SAMPLES)
            group.take(
                now_ms - (SAMPLES - sample) * 5_000, "", [ConsumeStats({MessageQueue(topic, "broker-a", 0): at})]
            )
    watcher.now = ClusterSnapshot(
        now_ms, topics=names, groups=[*group_configs], topic_entries=entries, group_entries=of_groups
    )
    watcher.now.groups_by_topic = groups_by_topic(watcher.groups)


def timed(work: Callable[[], object]) -> list[float]:
    """Return the ms of processor time of each round, which other processes do not change."""
    times: list[float] = []
    for _ in range(WARM_UP + ROUNDS):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1_000)
    return times[WARM_UP:]


def show(name: str, times: list[float], note: str = "") -> None:
    """Print one line of the results: the name, the median and the slowest round."""
    print(f"{name:32} {statistics.median(times):8.1f} {max(times):8.1f}  {note}", flush=True)


def get(port: int, path: str) -> int:
    """Request a page and return its size in bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return len(body)


async def until_it_answers(port: int) -> None:
    """Wait for the console's first answer. The listener queues connections until the console serves them."""
    await asyncio.to_thread(get, port, "/healthz")


def view(source: ListSource, **query: str) -> None:
    """Build the rows of one page of a list."""
    state = state_of(query, source.kinds, source.default, [one.name for one in source.columns])
    for one in source.cut(state).entries:
        source.row(one)
    source.counts()


async def measure(topics: int, groups: int) -> None:
    """Serve a console over a generated snapshot, and print one line for each page and view."""
    from tianzhou.console.pages import groups as groups_page
    from tianzhou.console.pages import topics as topics_page

    with tempfile.TemporaryDirectory() as scratch, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        console = Console(ConsoleSettings("127.0.0.1:9", Path(scratch)), Admin("127.0.0.1:9"))
        fill(console.watcher, topics, groups)
        server = uvicorn.Server(uvicorn.Config(application(console), log_level="error"))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        await until_it_answers(listener.getsockname()[1])
        print(f"{topics} topics, {groups} groups\n{'':32} {'median':>8} {'slowest':>8}  ms of the processor")
        port = listener.getsockname()[1]
        for path in ("/topics", "/topics?sort=in&desc=1&rows=100", "/topics?filter=0099", "/groups?sort=lag&desc=1"):
            size = await asyncio.to_thread(get, port, path)
            times = await asyncio.to_thread(timed, lambda path=path: get(port, path))
            show(f"page {path}", times, f"{size / 1024:.0f} KiB")
        visit = View(console, Visitor("", ConsoleRole.ADMIN), "", "en")
        for name, source in (("topics", topics_page.source(visit)), ("groups", groups_page.source(visit))):
            for column in source.columns:
                state = {"sort": column.name, "desc": "1", "rows": "100"}
                show(f"view {name} by {column.name}", timed(lambda source=source, state=state: view(source, **state)))
        server.should_exit = True
        await serving


def main() -> None:
    """Parse the command line, and run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    options = parser.parse_args()
    asyncio.run(measure(options.topics, options.groups))


if __name__ == "__main__":
    main()
