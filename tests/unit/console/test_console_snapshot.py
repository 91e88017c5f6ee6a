"""Numbers of requests and texts that the console needs for 10 000 topics and 2 000 groups; no times."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from tianzhou.admin.cluster import BrokerStatus
from tianzhou.console.accounts import ConsoleRole
from tianzhou.console.layout import View
from tianzhou.console.lists import state_of
from tianzhou.console.pages import groups as groups_page
from tianzhou.console.pages import topics as topics_page
from tianzhou.console.rows_table import ListSource
from tianzhou.console.sessions import Visitor
from tianzhou.console.snapshot import AT_ONCE, GROUPS_A_TURN, TOPICS_A_TURN, TOPICS_OF_A_GROUP, Watcher
from tianzhou.errors import BrokerError, ClientError, RequestTimeout
from tianzhou.model import MessageQueue, SubscriptionGroupConfig, TopicConfig
from tianzhou.model.subscription import ConsumeType, MessageModel
from tianzhou.wire.bodies.clients import Connection, ConsumerConnection, ConsumerRunningInfo
from tianzhou.wire.bodies.offsets import ConsumeStats, QueueProgress, QueueTimeSpan, TopicOffset, TopicStats

TOPICS, GROUPS = 10_000, 2_000
ADDRESSES = {"broker-a": "a:1", "broker-b": "b:1"}
NAMES = [f"topic{number:05}" for number in range(TOPICS)]
TOPIC_CONFIGS = {name: TopicConfig(name, 8, 8) for name in NAMES}
GROUP_CONFIGS = {name: SubscriptionGroupConfig(name) for name in (f"group{number:04}" for number in range(GROUPS))}


@dataclass
class Servers:
    """A cluster in memory that counts its requests.

    Attributes:
        asked: number of requests by kind.
        things: topics and groups of the requests, by kind.
        down: addresses that do not answer.
        now: number of requests without a reply.
        most: maximum number of requests at the same time.
    """

    asked: Counter[str] = field(default_factory=Counter)
    things: dict[str, list[str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    now: int = 0
    most: int = 0

    async def answer(self, question: str, address: str, thing: str, value: Any) -> Any:
        self.asked[question] += 1
        self.things.setdefault(question, []).append(thing)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        if address in self.down:
            raise RequestTimeout(address)
        return value

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        return await self.answer("topics", address, "", TOPIC_CONFIGS)

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        return await self.answer("groups", address, "", GROUP_CONFIGS)

    async def topic_stats(self, address: str, topic: str) -> TopicStats:
        end = 1_000 + self.asked["topic stats"]
        queues = {MessageQueue(topic, address, one): TopicOffset(0, end, 1) for one in range(8)}
        return await self.answer("topic stats", address, topic, TopicStats(queues, 1.0))

    async def connections(self, address: str, group: str) -> ConsumerConnection:
        found = ConsumerConnection([Connection("c1")], {}, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
        return await self.answer("members", address, group, found)

    async def consume_stats(self, address: str, group: str) -> ConsumeStats:
        topics = NAMES[: TOPICS_OF_A_GROUP + 4]
        table = {MessageQueue(topic, address, 0): QueueProgress(100, 40) for topic in topics}
        return await self.answer("progress", address, group, ConsumeStats(table))

    async def time_spans(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        span = QueueTimeSpan(MessageQueue(topic, address, 0), delay_time=90_000)
        return await self.answer("times", address, group, [span])

    async def running_info(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        return await self.answer("member", address, group, ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "true"}))


class Admin:
    def __init__(self) -> None:
        self.servers = Servers()
        self.topics = SimpleNamespace(names=self.names, system_names=self.system_names)
        self.cluster = SimpleNamespace(status=self.status, status_of=self.status_of)
        self.error = ""

    async def names(self) -> list[str]:
        return await self.servers.answer("names", "", "", list(NAMES))

    async def system_names(self) -> set[str]:
        return await self.servers.answer("system", "", "", {"TBW102"})

    async def status(self) -> list[BrokerStatus]:
        if self.error:
            raise ClientError(self.error)
        return await self.servers.answer("brokers", "", "", [BrokerStatus("c", *one) for one in self.brokers()])

    async def status_of(self, brokers: object) -> list[BrokerStatus]:
        raise ClientError(self.error)

    def brokers(self) -> Iterator[tuple[str, int, str]]:
        return ((name, 0, address) for name, address in ADDRESSES.items())


def watching() -> tuple[Watcher, Servers, Admin]:
    admin = Admin()
    return Watcher(admin, 5.0), admin.servers, admin  # type: ignore[arg-type]


async def test_a_look_has_a_bounded_cost_however_many_topics_there_are() -> None:
    watcher, servers, _ = watching()
    assert await watcher.look()
    assert servers.asked == {"brokers": 1, "names": 1, "system": 1, "topics": 2, "groups": 2}
    servers.asked.clear()
    assert await watcher.look(anew=False)
    assert servers.asked == {"brokers": 1}, "names and configurations are kept for a while"
    await watcher.measure()
    brokers = len(ADDRESSES)
    assert servers.asked == {
        "brokers": 1, "topic stats": TOPICS_A_TURN * brokers, "members": GROUPS_A_TURN * brokers,
        "member": GROUPS_A_TURN, "progress": GROUPS_A_TURN * brokers,
        "times": GROUPS_A_TURN * TOPICS_OF_A_GROUP * brokers,
    }  # fmt: skip
    assert servers.most <= AT_ONCE * brokers
    servers.asked.clear()
    await watcher.measure()
    assert servers.asked["topic stats"] == TOPICS_A_TURN * brokers, "the next ones have their turn"
    assert sum(1 for found in watcher.topics.values() if found.asked_ms) == 2 * TOPICS_A_TURN
    group = watcher.groups["group0000"]
    assert (group.lag, group.members, group.orderly) == (60 * 7 * 2, 1, True)
    assert group.asked_ms - group.oldest_ms == 90_000
    assert watcher.now.lags["group0000"] == group.lag
    assert watcher.now.groups_by_topic == dict.fromkeys(NAMES[:7], 2 * GROUPS_A_TURN)


async def test_names_on_open_pages_are_measured_first() -> None:
    watcher, servers, _ = watching()
    await watcher.look()
    await watcher.measure()
    watcher.shown_topics.add(NAMES[-20:], time.monotonic())
    watcher.shown_groups.add(["group1999"], time.monotonic())
    servers.things.clear()
    await watcher.measure()
    assert set(NAMES[-20:]) <= set(servers.things["topic stats"])
    assert "group1999" in servers.things["progress"]
    assert None not in {watcher.topics[name].messages for name in NAMES[-20:]}


async def test_a_broker_that_does_not_answer_is_asked_a_few_times_and_not_for_everything() -> None:
    watcher, servers, _ = watching()
    await watcher.look()
    servers.down.add(ADDRESSES["broker-b"])
    await watcher.measure()
    assert servers.asked["topic stats"] <= 2 * AT_ONCE
    assert servers.asked["progress"] == 0
    assert {found.messages for found in watcher.topics.values()} == {None}, "a part is not shown as the whole"


async def test_a_refusal_concerns_one_topic_alone() -> None:
    watcher, servers, _ = watching()
    await watcher.look()

    async def refuse(address: str, topic: str) -> TopicStats:
        if topic == NAMES[0]:
            raise BrokerError(1, "no permission")
        return TopicStats()

    servers.topic_stats = refuse  # type: ignore[method-assign]
    await watcher.measure()
    assert (watcher.topics[NAMES[0]].messages, watcher.topics[NAMES[1]].messages) == (None, 0)
    assert watcher.topics[NAMES[0]].asked_ms > 0


async def test_an_error_is_shown_until_the_cluster_is_seen_again() -> None:
    watcher, _, admin = watching()
    await watcher.look()
    admin.error = "no broker is registered"
    assert not await watcher.look(anew=False)
    assert (watcher.now.error, len(watcher.now.topics)) == ("no broker is registered", TOPICS)
    admin.error = ""
    assert await watcher.look(anew=False)
    assert watcher.now.error == ""


# --- pages -------------------------------------------------------------------------------------------------------


class Texts:
    """A view that counts the texts that pages request."""

    def __init__(self, console: Any) -> None:
        self.view = View(console, Visitor("ada", ConsoleRole.ADMIN), "", "zh")
        self.console, self.visitor, self.time = console, self.view.visitor, self.view.time
        self.asked = 0

    def text(self, key: str, **values: object) -> str:
        self.asked += 1
        return self.view.text(key, **values)


def pages_of(source: ListSource, **query: str) -> list[dict[str, Any]]:
    state = state_of(query, source.kinds, source.default, [one.name for one in source.columns])
    return [source.row(one) for one in source.cut(state).entries]


async def test_a_page_of_ten_thousand_topics_makes_its_own_rows_and_asks_nobody() -> None:
    watcher, servers, _ = watching()
    await watcher.look()
    await watcher.measure()
    servers.asked.clear()
    view: Any = Texts(SimpleNamespace(watcher=watcher))
    for make, count, names in (
        (topics_page.source, TOPICS, [one.name for one in topics_page.columns(view)]),
        (groups_page.source, GROUPS, [one.name for one in groups_page.columns(view)]),
    ):
        source = make(view)
        for name in names:
            view.asked = 0
            rows = pages_of(source, sort=name, desc="1", page="7", rows="50")
            assert len(rows) == 50
            assert len(json.dumps(rows)) < 30_000, "the browser gets one page only"
            # The column `kind` sorts by translated text, so it needs the texts of all groups.
            assert view.asked <= (4 * count if name == "kind" else 10 * len(rows))
        assert [row["key"][-4:] for row in pages_of(source, filter="1999")] == ["1999"]
    assert servers.asked == {}
