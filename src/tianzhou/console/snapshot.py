"""What the pages show of a cluster without asking it again: looked at every few seconds, with an hour's figures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tianzhou.admin import Admin
from tianzhou.admin.cluster import BrokerStatus
from tianzhou.errors import TianzhouError
from tianzhou.model.names import DLQ_PREFIX, RETRY_PREFIX

POINTS: Final = 720
"""Points of a series: an hour at one every five seconds."""
MOST_SERIES: Final = 2_000
GROUPS_A_TURN: Final = 40
"""Groups whose lag is asked for in one look; the others have their turn in the next ones."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Point:
    """A figure at a time.

    Attributes:
        at_ms: milliseconds since 1970.
        value: the figure.
    """

    at_ms: int
    value: float


class Series:
    """Figures over time by name, bounded in names and points."""

    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}

    def add(self, name: str, at_ms: int, value: float) -> None:
        """Add a point; the series that has waited longest for one goes when there are too many."""
        points = self._points.pop(name, None)
        if points is None:
            if len(self._points) >= MOST_SERIES:
                del self._points[next(iter(self._points))]
            points = deque(maxlen=POINTS)
        points.append(Point(at_ms, value))
        self._points[name] = points

    def of(self, name: str) -> list[Point]:
        """The points of a name, the oldest first."""
        return list(self._points.get(name, ()))


@dataclass(slots=True)
class Snapshot:
    """The cluster at one time.

    Attributes:
        at_ms: when; 0 before the first look.
        brokers: all brokers, in the order of their names.
        topics: names of topics of users.
        system_topics: names of topics of the system, of retries and of dead letters.
        groups: names of groups.
        lags: messages that groups have not consumed, as far as they were asked for.
        error: why the last look failed; empty when it did not.
    """

    at_ms: int = 0
    brokers: list[BrokerStatus] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    system_topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)
    error: str = ""


def split_topics(names: Iterable[str], reserved: Iterable[str]) -> tuple[list[str], list[str]]:
    """Topics of users, and those of the system, retries and dead letters; each sorted."""
    of_system = frozenset(reserved)
    users: list[str] = []
    others: list[str] = []
    for name in sorted(names):
        is_other = name in of_system or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        (others if is_other else users).append(name)
    return users, others


class Watcher:
    """Looks at a cluster again and again.

    Args:
        admin: asks it.
        refresh_s: seconds between two looks.

    Attributes:
        now: the last look.
        series: figures over time: `in`, `out` and `lag` of the cluster, `in:BROKER`, `lag:GROUP` and so on.
    """

    def __init__(self, admin: Admin, refresh_s: float) -> None:
        self._admin = admin
        self._refresh_s = refresh_s
        self._next_group = 0
        self.now = Snapshot()
        self.series = Series()

    async def run(self) -> None:
        """Look for ever; for a task of its own."""
        while True:
            await self.look()
            await asyncio.sleep(self._refresh_s)

    async def look(self) -> None:
        """Look once; an error is part of what is seen."""
        at_ms = time.time_ns() // 1_000_000
        before = self.now
        try:
            brokers = await self._admin.cluster.status()
            names, reserved = await asyncio.gather(self._admin.topics.names(), self._admin.topics.system_names())
            groups = sorted(await self._admin.groups.names())
        except (TianzhouError, OSError) as error:
            if str(error) != before.error:
                _log.warning("the cluster cannot be looked at: %s", error)
            before.error = str(error)
            return
        topics, system = split_topics(names, reserved)
        lags = {group: before.lags[group] for group in groups if group in before.lags}
        self.now = Snapshot(at_ms, brokers, topics, system, groups, lags)
        self._add_rates(at_ms)
        await self._ask_lags(at_ms)

    def _add_rates(self, at_ms: int) -> None:
        masters = [broker for broker in self.now.brokers if broker.is_master and broker.error is None]
        for broker in masters:
            self.series.add(f"in:{broker.broker_name}", at_ms, broker.put_tps)
            self.series.add(f"out:{broker.broker_name}", at_ms, broker.get_tps)
        self.series.add("in", at_ms, sum(broker.put_tps for broker in masters))
        self.series.add("out", at_ms, sum(broker.get_tps for broker in masters))

    async def _ask_lags(self, at_ms: int) -> None:
        now = self.now
        count = len(now.groups)
        turn = [now.groups[(self._next_group + step) % count] for step in range(min(GROUPS_A_TURN, count))]
        self._next_group = (self._next_group + len(turn)) % count if count else 0
        for group in turn:
            try:
                total = (await self._admin.groups.lag(group)).total
            except (TianzhouError, OSError):
                continue
            now.lags[group] = total
            self.series.add(f"lag:{group}", at_ms, total)
        self.series.add("lag", at_ms, sum(now.lags.values()))
