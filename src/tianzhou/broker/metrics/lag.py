"""Consumer lag of groups, in messages and in time (broker.md §24).

The lag in messages comes from the tables. The lag in time comes from the log: a scrape reads a few records, those of
the largest lags first, and reads no record twice while a group makes no progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from tianzhou.broker.metrics.traffic import flag
from tianzhou.broker.state import Tables
from tianzhou.broker.tables.consumer_offsets import ConsumerOffsetTable
from tianzhou.clock import Clock
from tianzhou.metrics.families import PER_STEP, Family, Kind
from tianzhou.model import names
from tianzhou.slices import each_in_turns
from tianzhou.store.store import MessageStore

MOST_LOOK_UPS: Final = 400
"""Maximum records read in a scrape; most are in memory and take about 20 µs each."""
PER_PAIR: Final = 4
"""Number of queues of a group and topic whose oldest message is read: those with the largest lag."""
_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


class Pair(NamedTuple):
    """Lag of a group in a topic.

    Attributes:
        group: the group.
        topic: the topic.
        lag: number of messages that are not consumed.
        ready: number of messages that are not pulled.
        waiting: for each queue, its lag, its id, and the offsets of the oldest unconsumed and the oldest unpulled
            message; largest lag first.
    """

    group: str
    topic: str
    lag: int
    ready: int
    waiting: list[tuple[int, int, int, int]]


class ConsumerLag:
    """Metric families of consumer lag.

    Args:
        tables: the broker's tables.
        store: the message store.
        clock: wall-clock time.
        most: maximum samples of a family.
    """

    def __init__(self, tables: Tables, store: MessageStore, clock: Clock, most: int) -> None:
        self._tables, self._store, self._clock, self._most = tables, store, clock, most
        self._times: dict[tuple[str, int, int], int] = {}

    async def families(self) -> AsyncIterator[Family]:
        """Yield the families with present values."""
        lag = self._family("rocketmq_consumer_lag_messages", "Messages that a group has not consumed.")
        inflight = self._family("rocketmq_consumer_inflight_messages", "Those that it has pulled.")
        ready = self._family("rocketmq_consumer_ready_messages", "Those that it has still to pull.")
        late = self._family(
            "rocketmq_consumer_lag_latency", "Milliseconds since the oldest message not consumed was stored."
        )
        queueing = self._family(
            "rocketmq_consumer_queueing_latency", "Milliseconds since the oldest message not pulled was stored."
        )
        longest: list[tuple[int, int, Pair]] = []
        behind = 0
        async for pair in each_in_turns(await self._pairs(), PER_STEP):
            labels = self._labels(pair)
            lag.add(pair.lag, *labels)
            inflight.add(pair.lag - pair.ready, *labels)
            ready.add(pair.ready, *labels)
            if pair.waiting:
                behind += 1
                (heappush if behind <= MOST_LOOK_UPS else heappushpop)(longest, (pair.lag, behind, pair))
            else:
                late.add(0, *labels)
                queueing.add(0, *labels)
        await self._add_latencies([pair for *_, pair in sorted(longest, reverse=True)], late, queueing)
        for family in (late, queueing):
            family.left_out += behind - len(longest)
        for family in (lag, inflight, ready, late, queueing):
            yield family

    def _labels(self, pair: Pair) -> tuple[str, str, str, str]:
        retry = pair.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))
        return pair.group, pair.topic, flag(retry), flag(self._tables.topics.is_system(pair.topic))

    async def _pairs(self) -> list[Pair]:
        tables, found = self._tables, []
        looked_at = 0
        for group in list(tables.groups.all()):
            for topic in tables.offsets.topics_of(group):
                if topic not in tables.topics or tables.clients.leaves_out(group, topic):
                    continue
                found.append(pair_of(tables.offsets, self._store, group, topic))
                looked_at += 1
                if looked_at % PER_STEP == 0:
                    await asyncio.sleep(0)
            if len(found) >= self._most + PER_STEP:
                break
        return found

    async def _add_latencies(self, longest: list[Pair], late: Family, queueing: Family) -> None:
        times: dict[tuple[str, int, int], int] = {}
        left = MOST_LOOK_UPS
        now = self._clock.now_ms()
        async for pair in each_in_turns(longest, PER_STEP):
            oldest: list[list[int]] = [[], []]
            for _, queue_id, consumed, pulled in pair.waiting:
                for found, offset in zip(oldest, (consumed, pulled), strict=True):
                    at = pair.topic, queue_id, offset
                    if offset >= self._store.max_offset(pair.topic, queue_id):
                        continue
                    time = times.get(at) or self._times.get(at)
                    if time is None:
                        if left <= 0:
                            break
                        left -= 1
                        time = await self._store.find(self._store.lookups.time_steps(*at))
                    if time > 0:
                        times[at] = time
                        found.append(time)
            labels = self._labels(pair)
            for family, found in zip((late, queueing), oldest, strict=True):
                if found:
                    family.add(max(now - min(found), 0), *labels)
                elif family is queueing and not pair.ready:
                    family.add(0, *labels)
                elif left <= 0:
                    family.left_out += 1
        self._times = times

    def _family(self, name: str, text: str) -> Family:
        return Family(name, Kind.GAUGE, text, _LABELS, self._most)


def pair_of(offsets: ConsumerOffsetTable, store: MessageStore, group: str, topic: str) -> Pair:
    """Return the lag of a group in the queues of a topic for which it committed offsets.

    Args:
        offsets: consumer offsets.
        store: the message store, for the ends of queues.
        group: the group.
        topic: the topic.
    """
    lag = ready = 0
    waiting = []
    for queue_id, committed in offsets.queues(group, topic).items():
        begin, end = max(store.min_offset(topic, queue_id), 0), max(store.max_offset(topic, queue_id), 0)
        consumed = max(committed, 0)
        of_queue = max(end - consumed, 0)
        if not of_queue:
            continue
        pulled = max(offsets.pull_offset(group, topic, queue_id) or 0, consumed)
        lag += of_queue
        ready += max(end - pulled, 0)
        waiting.append((of_queue, queue_id, max(consumed, begin), max(pulled, begin)))
    waiting.sort(reverse=True)
    return Pair(group, topic, lag, ready, waiting[:PER_PAIR])
