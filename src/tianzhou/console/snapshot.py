"""The snapshot of the cluster that pages show. One task renews the snapshot every few seconds at a bounded cost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from tianzhou.admin import Admin
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.admin.groups import SYSTEM_GROUPS
from tianzhou.console.display.series import Series
from tianzhou.console.group_list import GroupEntry, group_entries, groups_by_topic
from tianzhou.console.lists import NORMAL
from tianzhou.console.measures import GroupFigures, TopicFigures
from tianzhou.console.rota import next_turn
from tianzhou.console.topic_list import TopicEntry, topic_entries
from tianzhou.errors import RemotingError, TianzhouError
from tianzhou.model import BrokerData, SubscriptionGroupConfig, TopicConfig
from tianzhou.model.names import retry_topic

TOPICS_A_TURN: Final = 200
"""Maximum number of topics to measure per turn. Later turns measure the others."""
GROUPS_A_TURN: Final = 40
"""Maximum number of groups to measure per turn. Later turns measure the others."""
QUIET_A_TURN: Final = 40
"""Maximum number of quiet topics among them. To measure a quiet topic, its broker reads the newest message of each
queue, possibly from disk."""
QUIET_REST_MS: Final = 60_000
"""Minimum time in ms between two measurements of a quiet topic that no page shows."""
TABLE_ROWS_A_SECOND: Final = 200
"""Names and configurations of topics and groups to read per second, on average: 10 000 every 50 s."""
TOPICS_OF_A_GROUP: Final = 3
"""Number of a group's topics for which the console requests the oldest unconsumed message, those with the largest
lag."""
AT_ONCE: Final = 8
"""Maximum number of topics and groups to measure at the same time."""
WATCH_S: Final = 15.0
"""Seconds for which a name has priority in measurements after a page has shown it."""
MAX_WATCHED: Final = 1_000
ANSWER_WITHIN_MS: Final = 2_000
"""Timeout in ms of a server's answer in a look. A page shows a red line for a slower server."""
LOOK_EVERY_S: Final = 1.5
"""Maximum seconds between the end of a look and the next one. With `ANSWER_WITHIN_MS` and the one second until open
pages are refreshed, a page shows within five seconds that a server does not answer."""
MEMBER_WITHIN_S: Final = 1.0
"""Seconds to wait for a member's report of whether it consumes in order."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClusterSnapshot:
    """The cluster at one time.

    Attributes:
        at_ms: time of the last successful look, in milliseconds since 1970; 0 before the first one.
        brokers: all brokers, in the order of their names.
        topics: names of topics of users.
        system_topics: names of topics of the system, of retries and of dead letters.
        groups: names of groups.
        lags: number of unconsumed messages of each measured group.
        error: why no name server answered the last look; empty when one answered. With an error, the figures of known
            brokers are still up to date.
        topic_entries: all topics, sorted by name.
        group_entries: all groups, system groups too, sorted by name.
        groups_by_topic: number of measured groups that consume each topic.
    """

    at_ms: int = 0
    brokers: list[BrokerStatus] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    system_topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)
    error: str = ""
    topic_entries: list[TopicEntry] = field(default_factory=list)
    group_entries: list[GroupEntry] = field(default_factory=list)
    groups_by_topic: dict[str, int] = field(default_factory=dict)


class Watched:
    """Names that open pages show. A name expires `WATCH_S` seconds after a page last showed it."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def add(self, names: Iterable[str], now_s: float) -> None:
        """Record that a page shows names now. Above `MAX_WATCHED`, drop the names that were shown least recently."""
        for name in names:
            self._until.pop(name, None)
            self._until[name] = now_s + WATCH_S
        while len(self._until) > MAX_WATCHED:
            del self._until[next(iter(self._until))]

    def at(self, now_s: float) -> list[str]:
        """Return the names that a page has shown within `WATCH_S` seconds."""
        self._until = {name: until for name, until in self._until.items() if until > now_s}
        return list(self._until)


@dataclass(frozen=True, slots=True)
class ReportedTables:
    """Configurations that brokers have reported.

    Attributes:
        topics: configurations of topics, by broker name.
        groups: configurations of groups, by broker name.
    """

    topics: Mapping[str, Mapping[str, TopicConfig]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]] = field(default_factory=dict)

    def changed(
        self,
        brokers: Collection[str],
        topics: Mapping[str, Mapping[str, TopicConfig]],
        groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]],
    ) -> ReportedTables:
        """Return the configurations with new answers, without those of removed brokers.

        Args:
            brokers: names of the registered brokers.
            topics: new configurations of topics, by broker name.
            groups: new configurations of groups, by broker name.
        """
        return ReportedTables(
            {name: table for name, table in {**self.topics, **topics}.items() if name in brokers},
            {name: table for name, table in {**self.groups, **groups}.items() if name in brokers},
        )


class Watcher:
    """The task that takes snapshots of a cluster.

    Each look requests the figures of the brokers, at least every `LOOK_EVERY_S` seconds, and each server separately
    with a timeout of `ANSWER_WITHIN_MS`. Each turn measures at most `TOPICS_A_TURN` topics and `GROUPS_A_TURN` groups.
    It measures topics and groups on open pages first. One reply of a broker contains the configuration of all its
    topics. The console requests this reply less often when there are more topics and groups.

    Args:
        admin: client that sends the requests.
        refresh_s: seconds between two turns of measurements, and between two points of a chart.
        quick: client for looks, with `ANSWER_WITHIN_MS` as its timeout; None uses `admin`.

    Attributes:
        now: the snapshot of the last look.
        series: figures over time: `in`, `out` and `lag` of the cluster, `in:BROKER`, `lag:GROUP` and so on.
        topics: measurements by topic.
        groups: measurements by group.
        shown_topics: topics that pages show.
        shown_groups: groups that pages show.
    """

    def __init__(self, admin: Admin, refresh_s: float, quick: Admin | None = None) -> None:
        self._admin = admin
        self._quick = quick or admin
        self._refresh_s = refresh_s
        self._read_again_at = 0.0
        self._rated_at = 0.0
        self._rated: set[str] = set()
        self._tables = ReportedTables()
        self._seen = asyncio.Event()
        self.now = ClusterSnapshot()
        self.series = Series()
        self.topics: dict[str, TopicFigures] = {}
        self.groups: dict[str, GroupFigures] = {}
        self.shown_topics = Watched()
        self.shown_groups = Watched()

    async def run(self) -> None:
        """Look and measure until cancelled. Run it in a task of its own.

        Looks do not wait for measurements, because a hung broker makes a turn of measurements slow.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_for_ever())
            tasks.create_task(self._measure_for_ever())

    async def _look_for_ever(self) -> None:
        while True:
            await self.look(anew=False)
            await asyncio.sleep(min(self._refresh_s, LOOK_EVERY_S))

    async def _measure_for_ever(self) -> None:
        await self._seen.wait()
        while True:
            await self.measure()
            await asyncio.sleep(self._refresh_s)

    async def look(self, *, anew: bool = True) -> bool:
        """Read brokers, topics and groups, and return whether a name server answered. Store an error in the snapshot.

        Args:
            anew: whether to read all names and configurations now, as after a change, even if they are not due.
        """
        at_ms = _now_ms()
        try:
            brokers = await self._quick.cluster.status()
            if anew or time.monotonic() >= self._read_again_at:
                now = await self._read(at_ms, brokers)
            else:
                now = _with(self.now, at_ms, brokers)
        except (TianzhouError, OSError) as error:
            await self._look_without_name_server(at_ms, str(error) or type(error).__name__)
            return False
        self.now = now
        self._seen.set()
        self._add_rates(at_ms)
        return True

    async def _look_without_name_server(self, at_ms: int, error: str) -> None:
        """Store the error, and read the figures of the known brokers."""
        now = self.now
        if error != now.error:
            _log.warning("the cluster cannot be looked at: %s", error)
        now.error = error
        if not now.brokers:
            return
        try:
            now.brokers = await self._quick.cluster.status_of(_data_of(now.brokers))
        except (TianzhouError, OSError):
            now.brokers = [replace(one, error=error) for one in now.brokers]
        self._add_rates(at_ms)

    async def _read(self, at_ms: int, brokers: list[BrokerStatus]) -> ClusterSnapshot:
        """Read names and configurations of all topics and groups.

        Keep the last ones of a broker that does not answer.
        """
        # The reply with 10 000 configurations may take longer than `ANSWER_WITHIN_MS`.
        masters, servers = _masters(brokers), self._admin.servers
        names, reserved, topics, groups = await asyncio.gather(
            self._admin.topics.names(),
            self._admin.topics.system_names(),
            _of_each(masters, servers.topic_configs),
            _of_each(masters, servers.group_configs),
        )
        self._tables = self._tables.changed({one.broker_name for one in brokers}, topics, groups)
        entries = topic_entries(names, reserved, self._tables.topics)
        of_groups = group_entries(self._tables.groups, SYSTEM_GROUPS)
        self._read_again_at = time.monotonic() + (len(entries) + len(of_groups)) / TABLE_ROWS_A_SECOND
        _keep(self.topics, [one.name for one in entries], TopicFigures)
        _keep(self.groups, [one.name for one in of_groups], GroupFigures)
        return ClusterSnapshot(
            at_ms,
            brokers,
            [one.name for one in entries if one.kind == NORMAL],
            [one.name for one in entries if one.kind != NORMAL],
            [one.name for one in of_groups if one.kind == NORMAL],
            topic_entries=entries,
            group_entries=of_groups,
            lags=self._lags(),
            groups_by_topic=groups_by_topic(self.groups),
        )

    def _lags(self) -> dict[str, int]:
        return {name: found.lag for name, found in self.groups.items() if found.lag is not None}

    def _add_rates(self, at_ms: int) -> None:
        """Add a point to the series of rates if one is due. Interrupt the series of brokers that do not answer."""
        masters = [broker for broker in self.now.brokers if broker.is_master]
        answering = [broker for broker in masters if broker.error is None]
        missing = self._rated - {broker.broker_name for broker in answering}
        self.series.interrupt((f"{way}:{name}" for name in missing for way in ("in", "out")), at_ms)
        if len(answering) < len(masters) or not answering:
            self.series.interrupt(("in", "out"), at_ms)
        if time.monotonic() < self._rated_at + self._refresh_s:
            return
        self._rated_at = time.monotonic()
        self._rated |= {broker.broker_name for broker in answering}
        for broker in answering:
            self.series.add(f"in:{broker.broker_name}", at_ms, broker.put_tps)
            self.series.add(f"out:{broker.broker_name}", at_ms, broker.get_tps)
        # The sum over only some brokers would look like the rate of the cluster.
        if answering and len(answering) == len(masters):
            self.series.add("in", at_ms, sum(broker.put_tps for broker in answering))
            self.series.add("out", at_ms, sum(broker.get_tps for broker in answering))

    # --- topics and groups -----------------------------------------------------------------------------------

    async def measure(self) -> None:
        """Measure the topics and groups of this turn; see `next_turn`."""
        now_s, now_ms = time.monotonic(), _now_ms()
        topics = next_turn(
            {name: found.asked_ms for name, found in self.topics.items()},
            self.shown_topics.at(now_s),
            [name for name, found in self.topics.items() if found.rate],
            at_most=TOPICS_A_TURN,
            at_most_quiet=QUIET_A_TURN,
            quiet_before_ms=now_ms - QUIET_REST_MS,
        )
        groups = next_turn(
            {name: found.asked_ms for name, found in self.groups.items()},
            self.shown_groups.at(now_s),
            (),
            at_most=GROUPS_A_TURN,
            at_most_quiet=GROUPS_A_TURN,
            quiet_before_ms=now_ms,
        )
        is_whole = await self.measure_these(topics, groups)
        now = self.now
        now.lags, now.groups_by_topic = self._lags(), groups_by_topic(self.groups)
        if is_whole:
            self.series.add("lag", _now_ms(), sum(now.lags.values()))
        else:
            self.series.interrupt(("lag",), _now_ms())

    async def measure_these(self, topics: Iterable[str], groups: Iterable[str]) -> bool:
        """Measure some topics and groups, and return whether all brokers answered.

        A broker that does not answer gets no further request.

        Args:
            topics: names of topics.
            groups: names of groups.
        """
        asking = _Asking(_masters(self.now.brokers))
        wanted, wanted_groups = frozenset(topics), frozenset(groups)
        entries = [one for one in self.now.topic_entries if one.name in wanted]
        of_groups = [one for one in self.now.group_entries if one.name in wanted_groups]
        await asking.all(
            *(self._measure_topic(asking, one) for one in entries),
            *(self._measure_group(asking, one) for one in of_groups),
        )
        return asking.is_whole and all(one.error is None for one in self.now.brokers if one.is_master)

    async def _measure_topic(self, asking: _Asking, entry: TopicEntry) -> None:
        found = self.topics.get(entry.name)
        if found is None:
            return
        servers = self._admin.servers
        answers = await asking.each(entry.brokers, lambda address: servers.topic_stats(address, entry.name))
        found.asked_ms = _now_ms()
        if answers is not None:
            found.take(found.asked_ms, answers)

    async def _measure_group(self, asking: _Asking, entry: GroupEntry) -> None:
        found, name = self.groups.get(entry.name), entry.name
        if found is None:
            return
        servers = self._admin.servers
        members = await asking.each(entry.configs, lambda address: servers.connections(address, name))
        if members is not None and found.take_members(members, entry.configs.values()) and found.clients:
            await self._ask_order(asking, entry, found)
        stats = await asking.each(entry.configs, lambda address: servers.consume_stats(address, name))
        found.asked_ms = _now_ms()
        if stats is None:
            self.series.interrupt((f"lag:{name}",), found.asked_ms)
            return
        found.take(found.asked_ms, retry_topic(name), stats)
        if found.lag:
            await self._ask_oldest(asking, entry, found)
        self.series.add(f"lag:{name}", found.asked_ms, found.lag or 0)

    async def _ask_order(self, asking: _Asking, entry: GroupEntry, found: GroupFigures) -> None:
        """Request from one member whether it consumes in order, if the group's configuration does not define this."""
        if found.orderly is not None:
            return
        member, servers = min(found.clients), self._admin.servers
        try:
            async with asyncio.timeout(MEMBER_WITHIN_S):
                info = await servers.running_info(asking.address_of(next(iter(entry.configs))), entry.name, member)
        except (TianzhouError, OSError, KeyError):
            return
        found.take_order(info.properties)

    async def _ask_oldest(self, asking: _Asking, entry: GroupEntry, found: GroupFigures) -> None:
        """Request the age of the oldest unconsumed message in the group's topics."""
        servers = self._admin.servers
        waits_ms = 0
        for topic in found.most_behind(TOPICS_OF_A_GROUP):
            ask = partial(servers.time_spans, group=entry.name, topic=topic)
            answers = await asking.each(entry.configs, ask)
            waits_ms = max([waits_ms, *(span.delay_time for spans in answers or () for span in spans)])
        found.oldest_ms = found.asked_ms - waits_ms if waits_ms else 0


class _Asking:
    """Requests of one turn to masters. A master that fails gets no further request in this turn."""

    def __init__(self, masters: Mapping[str, str]) -> None:
        self._masters = masters
        self._failed: set[str] = set()
        self._gate = asyncio.Semaphore(AT_ONCE)

    @property
    def is_whole(self) -> bool:
        """Whether no master has failed."""
        return not self._failed

    def address_of(self, broker: str) -> str:
        """Return the address of a broker's master. Raise KeyError when there is none."""
        return self._masters[broker]

    async def all(self, *works: Awaitable[None]) -> None:
        """Await all works, at most `AT_ONCE` at the same time."""

        async def one(work: Awaitable[None]) -> None:
            async with self._gate:
                await work

        await asyncio.gather(*map(one, works))

    async def each(self, brokers: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> list[T] | None:
        """Return the answers of all these brokers; None when one is missing, because partial sums would be wrong."""
        names = list(brokers)
        if not names or any(name in self._failed or name not in self._masters for name in names):
            return None
        answers = await asyncio.gather(*(ask(self._masters[name]) for name in names), return_exceptions=True)
        found: list[T] = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, RemotingError | OSError):
                self._failed.add(name)
            elif not isinstance(answer, BaseException):
                found.append(answer)
            elif not isinstance(answer, TianzhouError):
                raise answer
        return found if len(found) == len(names) else None


async def _of_each(masters: Mapping[str, str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Return the answers of the masters that answer, by broker name."""
    answers = await asyncio.gather(*(ask(address) for address in masters.values()), return_exceptions=True)
    found: dict[str, T] = {}
    for name, answer in zip(masters, answers, strict=True):
        if not isinstance(answer, BaseException):
            found[name] = answer
        elif not isinstance(answer, TianzhouError | OSError):
            raise answer
    return found


def _data_of(brokers: Iterable[BrokerStatus]) -> list[BrokerData]:
    """Return the names and addresses of broker processes, as a name server lists them."""
    found: dict[tuple[str, str], BrokerData] = {}
    for one in brokers:
        data = found.setdefault((one.cluster, one.broker_name), BrokerData(one.broker_name, one.cluster))
        data.broker_addrs[one.broker_id] = one.address
    return list(found.values())


def _masters(brokers: Iterable[BrokerStatus]) -> dict[str, str]:
    """Return the addresses of masters that answer, by broker name."""
    return {one.broker_name: one.address for one in brokers if one.is_master and one.error is None}


def _keep(figures: dict[str, Any], names: Iterable[str], make: Callable[[], Any]) -> None:
    """Drop the figures of all other names, and create the missing ones."""
    known = dict(figures)
    figures.clear()
    figures.update((name, known[name] if name in known else make()) for name in names)


def _with(before: ClusterSnapshot, at_ms: int, brokers: list[BrokerStatus]) -> ClusterSnapshot:
    """Return the snapshot with new brokers and without an error, but with the previous topics and groups."""
    return replace(before, at_ms=at_ms, brokers=brokers, error="")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
