"""Age of data on pages, warnings about servers that do not reply, and gaps in charts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.console.display.freshness import LATE_MS, Freshness, State, freshness, silent_brokers
from tianzhou.console.display.live_parts import CHECK_EVERY_S, warnings
from tianzhou.console.display.series import Series, SeriesPoint
from tianzhou.console.display.zones import Zone
from tianzhou.console.layout import View, chart_options
from tianzhou.console.measures import TopicFigures
from tianzhou.console.snapshot import ANSWER_WITHIN_MS, ClusterSnapshot, Watcher
from tianzhou.errors import RequestTimeout
from tianzhou.model import BrokerData, SubscriptionGroupConfig, TopicConfig
from tianzhou.testing import run_virtual
from tianzhou.wire.bodies.offsets import TopicStats

pytestmark = pytest.mark.runner.with_args(run_virtual)
ENGLISH: Any = View(None, None, "", "en")  # type: ignore[arg-type]
A = BrokerStatus("c", "broker-a", 0, "a:1", {"putTps": "10 9 8", "getTransferredTps": "4 4 4"})
B = BrokerStatus("c", "broker-b", 0, "b:1", {"putTps": "20 9 8", "getTransferredTps": "4 4 4"})
B_SILENT = BrokerStatus("c", "broker-b", 0, "b:1", error="no answer within 2000 ms")


@pytest.mark.parametrize(
    ("last_ms", "now_ms", "failure", "expected"),
    [
        (0, 9_000, "", Freshness(State.UNSEEN)),
        (0, 9_000, "refused", Freshness(State.FAILED, 0, "refused")),
        (1_000, 3_999, "", Freshness(State.FRESH, 2)),
        (1_000, 1_000 + LATE_MS, "", Freshness(State.LATE, 5)),
        (1_000, 2_000, "refused", Freshness(State.FAILED, 1, "refused")),
        (9_000, 1_000, "", Freshness(State.FRESH, 0)),
    ],
)  # fmt: skip
def test_the_age_of_figures(last_ms: int, now_ms: int, failure: str, expected: Freshness) -> None:
    assert freshness(last_ms, now_ms, failure) == expected


def test_a_page_names_the_servers_that_do_not_answer() -> None:
    now = ClusterSnapshot(1_000, [A, B_SILENT], error="cannot connect to n:9876")
    lines = warnings(ENGLISH, now, freshness(1_000, 8_000, now.error))
    assert lines[0] == "The state of the cluster cannot be read: cannot connect to n:9876"
    assert "7 s ago" in lines[1]
    assert lines[2:] == ["Broker broker-b 0 (b:1) does not answer: no answer within 2000 ms"]
    assert warnings(ENGLISH, ClusterSnapshot(1_000, [A, B]), freshness(1_000, 2_000, "")) == []
    assert silent_brokers([A, B]) == []


def test_a_series_without_figures_has_a_gap_in_its_chart() -> None:
    series = Series()
    series.interrupt(["in"], 500)
    assert series.of("in") == []
    series.add("in", 1_000, 3.0)
    series.interrupt(["in"], 2_000)
    series.interrupt(["in"], 3_000)
    series.add("in", 4_000, 5.0)
    assert series.of("in") == [SeriesPoint(1_000, 3.0), SeriesPoint(2_000, None), SeriesPoint(4_000, 5.0)]
    (line,) = chart_options("", {"in": series.of("in")}, Zone())["series"]
    assert [value for _, value in line["data"]] == [3.0, None, 5.0]


def test_figures_of_a_broker_that_does_not_answer_are_old() -> None:
    found = TopicFigures()
    assert not found.is_old
    found.asked_ms = 1_000
    found.take(1_000, [TopicStats()])
    assert not found.is_old
    found.asked_ms = 2_000
    assert found.is_old


class Cluster:
    """Two brokers in memory, and a name server that can stop replying.

    Attributes:
        dead: whether the name server does not reply.
        brokers: replies of the brokers.
        asked: addresses of the last request to already known brokers.
    """

    def __init__(self) -> None:
        self.dead = False
        self.brokers = [A, B]
        self.asked: list[str] = []

    async def status(self) -> list[BrokerStatus]:
        if self.dead:
            await asyncio.sleep(ANSWER_WITHIN_MS / 1000)
            raise RequestTimeout("n:9876 does not answer")
        return self.brokers

    async def status_of(self, brokers: Iterable[BrokerData]) -> list[BrokerStatus]:
        self.asked = [address for one in brokers for address in one.broker_addrs.values()]
        return self.brokers


TOPICS = {"a:1": {"orders": TopicConfig("orders", 4, 4)}, "b:1": {"orders": TopicConfig("orders", 8, 8)}}


def watching(refresh_s: float = 5.0, *, hangs: bool = False) -> tuple[Watcher, Cluster]:
    cluster = Cluster()

    async def topic_configs(address: str) -> dict[str, TopicConfig]:
        if address == "b:1" and cluster.brokers[1].error:
            raise RequestTimeout(address)
        return TOPICS[address]

    async def group_configs(address: str) -> dict[str, SubscriptionGroupConfig]:
        return {}

    async def topic_stats(address: str, topic: str) -> TopicStats:
        if hangs:
            await asyncio.sleep(3_600)
        return TopicStats()

    async def names() -> list[str]:
        return ["orders"]

    async def system_names() -> set[str]:
        return set()

    servers = SimpleNamespace(topic_configs=topic_configs, group_configs=group_configs, topic_stats=topic_stats)
    topics = SimpleNamespace(names=names, system_names=system_names)
    admin: Any = SimpleNamespace(cluster=cluster, servers=servers, topics=topics)
    return Watcher(admin, refresh_s), cluster


async def test_figures_of_brokers_go_on_without_a_name_server() -> None:
    watcher, cluster = watching(0.0)
    await watcher.look()
    cluster.dead, cluster.brokers = True, [A, B_SILENT]
    assert not await watcher.look(anew=False)
    assert (watcher.now.error, cluster.asked) == ("n:9876 does not answer", ["a:1", "b:1"])
    assert watcher.now.brokers == [A, B_SILENT]
    assert [point.value for point in watcher.series.of("in:broker-a")] == [10, 10]
    assert [point.value for point in watcher.series.of("in:broker-b")] == [20, None]
    assert [point.value for point in watcher.series.of("in")] == [30, None], "a part is not shown as the whole"
    cluster.dead, cluster.brokers = False, [A, B]
    assert await watcher.look(anew=False)
    assert (watcher.now.error, watcher.now.brokers) == ("", [A, B])


async def test_the_topics_of_a_broker_that_hangs_stay_in_the_list() -> None:
    watcher, cluster = watching()
    await watcher.look()
    cluster.brokers = [A, B_SILENT]
    assert await watcher.look()
    (entry,) = watcher.now.topic_entries
    assert (entry.queues, entry.brokers) == (12, ("broker-a", "broker-b"))
    cluster.brokers = [A]
    await watcher.look()
    assert watcher.now.topic_entries[0].queues == 4, "a broker that is gone has no queues"


@pytest.mark.parametrize("refresh_s", [1.0, 60.0])
async def test_a_dead_name_server_is_known_within_five_seconds(refresh_s: float) -> None:
    watcher, cluster = watching(refresh_s)
    run = asyncio.ensure_future(watcher.run())
    await asyncio.sleep(31)
    assert watcher.now.error == ""
    cluster.dead = True
    await asyncio.sleep(5 - CHECK_EVERY_S)
    assert watcher.now.error == "n:9876 does not answer"
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


async def test_a_measurement_that_hangs_does_not_delay_looks() -> None:
    watcher, cluster = watching(1.0, hangs=True)
    run = asyncio.ensure_future(watcher.run())
    await asyncio.sleep(10)
    cluster.brokers = [A, B_SILENT]
    await asyncio.sleep(2)
    assert silent_brokers(watcher.now.brokers) == [("broker-b 0 (b:1)", "no answer within 2000 ms")]
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
