"""Counters of messages and bytes, and the rates tools show (broker.md §20).

Handlers increment plain attributes. Rates are computed on request, or every ten seconds. `BrokerStats.items` lists the
figures of request 315.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tianzhou.broker.stats.message_kinds import MessageKinds
from tianzhou.broker.stats.put_latency import PutLatency
from tianzhou.broker.stats.stats_windows import DAY_STEP_MS, HOUR_STEP_MS, MINUTE_STEP_MS, SETTLED, IdleTime, Windows
from tianzhou.limits import FIGURES, Bounds
from tianzhou.model import names
from tianzhou.wire.bodies.tables import BrokerStats as StatsBody

WINDOWS_S = (10, 60, 600)
_SAMPLE_MS = MINUTE_STEP_MS
_SAMPLES = 61
_SAMPLES_PER_KEY = 7
FIGURES_PER_TURN = 200
"""Figures sampled per loop turn, which takes about a millisecond."""
SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""Group under which reads of delayed messages are counted."""
LOOKING_GROUPS = frozenset({"TOOLS_CONSUMER", "__MONITOR_CONSUMER"})
"""Groups with which tools and consoles read messages to show them. Such a read does not consume a message."""
CONNECT, IDLE, EXCEPTION, CLOSE = "CONNECT", "IDLE", "EXCEPTION", "CLOSE"
"""Keys of CHANNEL_ACTIVITY."""
_OF_THE_BROKER = frozenset({"CHANNEL_ACTIVITY", "CONSUMER_REGISTER_TIME", "PRODUCER_REGISTER_TIME"})
_DROPPED_WHEN_IDLE = frozenset(
    {
        "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS", "GROUP_GET_LATENCY",
    }
)  # fmt: skip

LONGEST_KEY = 1_024
"""Maximum characters of a figure's key; a longer text from a peer names no topic and group."""

Item = tuple[str, str, int, int]
"""Name and key of a figure, its value, and the number of increments."""


class PutTraffic:
    """Messages put to a topic, by queue.

    Attributes:
        counts: messages.
        sizes: bytes of their records.
        waits: milliseconds that senders waited for the disk.
        surplus: messages minus calls; above 0 because of batches.
    """

    __slots__ = ("counts", "idle_time", "sizes", "surplus", "waits")

    def __init__(self) -> None:
        self.idle_time = IdleTime()
        self.counts: list[int] = []
        self.sizes: list[int] = []
        self.waits: list[int] = []
        self.surplus = 0

    @property
    def count(self) -> int:
        """Messages of all queues."""
        return sum(self.counts)

    @property
    def bytes(self) -> int:
        """Bytes of all queues."""
        return sum(self.sizes)

    def grow(self, queues: int) -> None:
        """Make room for counters of `queues` queues."""
        missing = queues - len(self.counts)
        if missing > 0:
            for figures in (self.counts, self.sizes, self.waits):
                figures += [0] * missing

    def add(self, queue_id: int, count: int, size: int) -> None:
        """Count a put of `count` messages with `size` bytes of records."""
        self.grow(queue_id + 1)
        self.counts[queue_id] += count
        self.sizes[queue_id] += size
        self.surplus += count - 1


class GetTraffic:
    """Messages that a group pulled from a topic.

    Attributes:
        counts: messages, bytes of their records, and pulls that returned them.
        from_disk: messages that were not in memory, and their bytes.
        queues: queue to messages, bytes, calls and milliseconds.
    """

    __slots__ = ("counts", "from_disk", "idle_time", "queues")

    def __init__(self) -> None:
        self.idle_time = IdleTime()
        self.counts = [0, 0, 0]
        self.from_disk = (0, 0)
        self.queues: dict[int, list[int]] = {}

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.counts[0]

    @property
    def bytes(self) -> int:
        """Bytes of their records."""
        return self.counts[1]

    @property
    def calls(self) -> int:
        """Number of pulls that returned messages."""
        return self.counts[2]

    def of_queue(self, queue_id: int) -> list[int]:
        """Return the mutable figures of a queue."""
        found = self.queues.get(queue_id)
        if found is None:
            found = self.queues[queue_id] = [0, 0, 0, 0]
        return found

    def add(self, queue_id: int, count: int, size: int) -> None:
        """Count a pull that returned messages.

        Args:
            queue_id: number of the queue.
            count: number of messages.
            size: bytes of their records.
        """
        for counts in (self.counts, self.of_queue(queue_id)):
            counts[0] += count
            counts[1] += size
            counts[2] += 1

    def add_cold(self, queue_id: int, count: int, size: int, waited_ms: int) -> None:
        """Count the disk reads and the wait of the pull that was just added."""
        self.from_disk = (self.from_disk[0] + count, self.from_disk[1] + size)
        self.queues[queue_id][3] += waited_ms


class BrokerStats:
    """All counters of a broker.

    Args:
        now_ms: start time.
        cluster: key of the figures of the whole broker.

    Attributes:
        puts: by topic.
        gets: by topic and group.
        found: pulls that returned messages.
        missed: pulls that returned none.
        failed: number of failed puts.
        put_latency: durations of puts.
        kinds: counts of messages that take the slow path.
        longest_get_ms: the longest time a pull waited for the disk.
        behind: bytes of the log after the last record read, by topic, group and queue; counted on demand only.
        bounds: limit of figures other than those of topics.
        is_system: whether a topic is the system's own.
        by_queue: whether request 315 has figures of single queues.
        by_level: whether delivered delayed messages count (`enableScheduleMessageStats`).
        forgets: whether figures of a deleted topic or group are dropped (`autoDeleteUnusedStats`).
        idle_ms: ms without a change after which figures of topics and groups are dropped; None for never.
    """

    def __init__(self, now_ms: int, cluster: str = "DefaultCluster") -> None:
        self.started_ms = now_ms
        self.cluster = cluster
        self.puts: dict[str, PutTraffic] = {}
        self.gets: dict[tuple[str, str], GetTraffic] = {}
        self.found = 0
        self.missed = 0
        self.failed = 0
        self.put_latency = PutLatency(now_ms)
        self.kinds = MessageKinds()
        self.longest_get_ms = 0
        self.behind: dict[tuple[str, str, int], int] = {}
        self.by_queue = True
        self.by_level = True
        self.forgets = True
        self.idle_ms: int | None = None
        self.bounds = Bounds()
        self._others = GetTraffic()
        self.is_system: Callable[[str], bool] = lambda name: False
        # Puts by the broker itself: copies of messages that consumers sent back.
        self._own_puts = self._own_user_puts = 0
        self._own_gets = 0
        # Counts of deleted topics and groups, because totals must not fall.
        self._gone_puts = self._gone_bytes = self._gone_user_puts = 0
        self._gone_gets = self._gone_user_gets = 0
        self._counters: dict[tuple[str, str], list[int]] = {}
        self._windows: dict[tuple[str, str], Windows] = {}
        self._dropped: dict[tuple[str, str], int] = {}
        self._hour_ms = self._day_ms = now_ms
        self._day: int | None = None
        self._mornings = (0, 0, 0, 0)
        self._samples: deque[tuple[int, tuple[int, int, int, int]]] = deque([(now_ms, (0, 0, 0, 0))], maxlen=_SAMPLES)
        self._by_key: deque[tuple[int, dict[str, int], dict[tuple[str, str], int]]] = deque(
            [(now_ms, {}, {})], maxlen=_SAMPLES_PER_KEY
        )

    # counting

    def put(self, topic: str) -> PutTraffic:
        """Return the counter of messages put to a topic."""
        found = self.puts.get(topic)
        if found is None:
            found = self.puts[topic] = PutTraffic()
        return found

    def got(self, topic: str, group: str) -> GetTraffic:
        """Return the counter of messages that a group pulled from a topic."""
        found = self.gets.get((topic, group))
        if found is None:
            if not self.bounds.allows(FIGURES, len(self.gets) + len(self._counters) + 1):
                return self._others
            found = self.gets[topic, group] = GetTraffic()
        return found

    def sent_back(
        self, topic: str, group: str, stored_in: str, queue_id: int, size: int, *, dead: bool, owner: str = "null"
    ) -> None:
        """Count a message that a group sent back and whose copy was stored.

        Args:
            topic: topic in which it was consumed.
            group: the consumer group.
            stored_in: topic of the copy.
            queue_id: queue of the copy.
            size: bytes of the copy.
            dead: whether the copy is a dead letter.
            owner: account to bill, when a request names one.
        """
        self.count("SNDBCK_PUT_NUMS", f"{topic}@{group}")
        if dead:
            self.count("SNDBCK2DLQ_TIMES", f"{owner}@{topic}@{group}@SEND_BACK_TO_DLQ")
            self.kinds.add_dead(topic, group)
        self.put(stored_in).add(queue_id, 1, size)
        self.kinds.add_own(stored_in, size)
        self._own_puts += 1
        self._own_user_puts += not self.is_system(stored_in)

    def delivered(self, level: int, topic: str, queue_id: int, size: int) -> None:
        """Count a delayed message that was delivered."""
        if self.by_level:
            self.put(topic).add(queue_id, 1, size)
            self.kinds.add_own(topic, size)
            self.got(names.SCHEDULE_TOPIC, SCHEDULE_GROUP).add(level - 1, 1, size)
            self._own_gets += 1

    def count(self, name: str, key: str, value: int = 1) -> None:
        """Increment a figure that has a counter of its own."""
        counter = self._counters.get((name, key))
        if counter is None:
            if len(key) > LONGEST_KEY or not self.bounds.allows(FIGURES, len(self.gets) + len(self._counters) + 1):
                return
            counter = self._counters[name, key] = [0, 0]
        counter[0] += value
        counter[1] += 1

    @property
    def put_count(self) -> int:
        """Messages put since the start."""
        return sum(traffic.count for traffic in self.puts.values()) + self._gone_puts

    @property
    def put_bytes(self) -> int:
        """Bytes of records put since the start."""
        return sum(traffic.bytes for traffic in self.puts.values()) + self._gone_bytes

    @property
    def get_count(self) -> int:
        """Messages got since the start."""
        got = sum(traffic.count for traffic in self.gets.values()) + self._others.count
        return got + self._gone_gets - self._own_gets

    @property
    def user_put_count(self) -> int:
        """Messages that users put since the start, without system topics and messages sent back."""
        put = sum(traffic.count for topic, traffic in self.puts.items() if not self.is_system(topic))
        return put + self._gone_user_puts - self._own_user_puts

    @property
    def user_get_count(self) -> int:
        """Messages consumed since the start, without system topics and reads of tools that only show messages."""
        got = sum(traffic.count for key, traffic in self.gets.items() if self._consumes(*key))
        return got + self._gone_user_gets

    def _consumes(self, topic: str, group: str) -> bool:
        return group not in LOOKING_GROUPS and not self.is_system(topic)

    def forget_topic(self, topic: str) -> None:
        """Drop the figures of a deleted topic if `forgets`; totals still include them."""
        if not self.forgets:
            return
        self.kinds.forget_topic(topic)
        put = self.puts.pop(topic, None)
        if put is not None:
            self._gone_puts += put.count
            self._gone_bytes += put.bytes
            self._gone_user_puts += 0 if self.is_system(topic) else put.count
        self._forget_gets([key for key in self.gets if key[0] == topic])
        self._forget(topic)

    def forget_group(self, group: str) -> None:
        """Drop the figures of a deleted group if `forgets`; totals still include them."""
        if not self.forgets:
            return
        self.kinds.forget_group(group)
        self._forget_gets([key for key in self.gets if key[1] == group])
        self._forget(group)

    def _forget_gets(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            count = self.gets.pop(key).count
            self._gone_gets += count
            self._gone_user_gets += count if self._consumes(*key) else 0

    def _forget(self, name: str) -> None:
        for place in [place for place in self.behind if name in place[:2]]:
            del self.behind[place]
        tables: list[dict[tuple[str, str], Any]] = [self._windows, self._counters, self._dropped]
        for table in tables:
            for key in [key for key in table if name in key[1].split("@") and key[0] not in _OF_THE_BROKER]:
                del table[key]

    # figures by name and key

    def items(self, moving_ms: int | None = None) -> Iterator[Item]:
        """Yield every figure with its present value.

        Args:
            moving_ms: the time; skip figures that are unchanged for so long that a sample has no effect. None for all.
        """
        for topic, put in list(self.puts.items()):
            if moving_ms is not None and self._may_skip_sample(
                put.idle_time.ms(moving_ms, put.counts[:], put.waits[:], self.by_queue)
            ):
                continue
            calls = put.count - put.surplus
            yield "TOPIC_PUT_NUMS", topic, put.count, calls
            yield "TOPIC_PUT_SIZE", topic, put.bytes, calls
            for queue_id, count in enumerate(put.counts):
                if count:
                    yield "TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", put.waits[queue_id], count
                    if self.by_queue:
                        yield "QUEUE_PUT_NUMS", f"{topic}@{queue_id}", count, count
                        yield "QUEUE_PUT_SIZE", f"{topic}@{queue_id}", put.sizes[queue_id], count
        for (topic, group), got in list(self.gets.items()):
            if moving_ms is None or not self._may_skip_sample(
                got.idle_time.ms(moving_ms, got.calls, got.from_disk, self.by_queue)
            ):
                yield from self._got(topic, group, got)
        for (name, key), (value, times) in list(self._counters.items()):
            yield name, key, value, times
        yield from self._whole()

    def _may_skip_sample(self, ms: int) -> bool:
        """Whether figures unchanged for `ms` need neither a sample nor to be dropped now."""
        idle_ms = self.idle_ms
        dropped = idle_ms is not None and idle_ms - _SAMPLE_MS < ms <= idle_ms + 3 * _SAMPLE_MS
        return ms > SETTLED * _SAMPLE_MS and not dropped

    def _got(self, topic: str, group: str, got: GetTraffic) -> Iterator[Item]:
        key = f"{topic}@{group}"
        yield "GROUP_GET_NUMS", key, got.count, got.calls
        yield "GROUP_GET_SIZE", key, got.bytes, got.calls
        if got.from_disk[0]:
            yield "GROUP_GET_FROM_DISK_NUMS", key, got.from_disk[0], got.calls
            yield "GROUP_GET_FROM_DISK_SIZE", key, got.from_disk[1], got.calls
        if not self.by_queue:
            waited = sum(of_queue[3] for of_queue in got.queues.values())
            yield "GROUP_GET_LATENCY", key, waited, got.calls
            return
        for queue_id, (count, size, calls, waited) in list(got.queues.items()):
            yield "QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}", count, calls
            yield "QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}", size, calls
            yield "GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}", waited, calls

    def _whole(self) -> Iterator[Item]:
        cluster = self.cluster
        # The number of increments is 0, as in Apache's broker.
        yield "BROKER_PUT_NUMS", cluster, self.put_count - self._own_puts, 0
        yield "BROKER_GET_NUMS", cluster, self.get_count, 0
        yield "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", cluster, self.user_put_count, 0
        yield "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", cluster, self.user_get_count, 0
        cold = [traffic.from_disk for traffic in self.gets.values()]
        if any(count for count, _ in cold):
            yield "BROKER_GET_FROM_DISK_NUMS", cluster, sum(count for count, _ in cold), 0
            yield "BROKER_GET_FROM_DISK_SIZE", cluster, sum(size for _, size in cold), 0

    def view(self, name: str, key: str) -> StatsBody | None:
        """Return a figure over the last minute, hour and day; None when it was never counted."""
        windows = self._windows.get((name, key))
        if windows is not None:
            return windows.figures(self._samples[-1][0])
        known = (name, key) not in self._dropped and any((name, key) == item[:2] for item in self.items())
        return StatsBody() if known else None

    # time

    def sample(self, now_ms: int, day: int | None = None) -> None:
        """Run `sampling` without yielding."""
        for _ in self.sampling(now_ms, day):
            pass

    def sampling(self, now_ms: int, day: int | None = None) -> Iterator[None]:
        """Sample the counters, about every ten seconds; yield to let other requests run.

        Args:
            now_ms: the time.
            day: number of the calendar day; on a new day the present counts become this morning's.
        """
        if now_ms - self._samples[-1][0] < _SAMPLE_MS * 9 // 10:
            return
        self._samples.append((now_ms, self._values()))
        self.put_latency.tick(now_ms, self.put_count)
        puts = {topic: traffic.count for topic, traffic in self.puts.items()}
        gets = {key: traffic.count for key, traffic in self.gets.items()}
        self._by_key.append((now_ms, puts, gets))
        if day != self._day:
            if self._day is not None:
                put, got = self._mornings[1], self._mornings[3]
                self._mornings = (put, self.user_put_count, got, self.user_get_count)
            self._day = day
        hour, whole_day = now_ms - self._hour_ms >= HOUR_STEP_MS, now_ms - self._day_ms >= DAY_STEP_MS
        self._hour_ms = now_ms if hour else self._hour_ms
        self._day_ms = now_ms if whole_day else self._day_ms
        for number, (name, key, value, times) in enumerate(self.items(None if hour or whole_day else now_ms), 1):
            if number % FIGURES_PER_TURN == 0:
                yield
            at = name, key
            if self._dropped:
                if self._dropped.get(at) == value:
                    continue
                self._dropped.pop(at, None)
            windows = self._windows.get(at)
            if windows is None:
                windows = self._windows[at] = Windows()
            windows.sample(now_ms, value, times, hour=hour, day=whole_day)
            if self.idle_ms is not None and name in _DROPPED_WHEN_IDLE and now_ms - windows.changed_ms > self.idle_ms:
                del self._windows[at]
                self._dropped[at] = value

    @property
    def mornings(self) -> tuple[int, int, int, int]:
        """Messages put until yesterday's and this morning, and messages pulled until both."""
        return self._mornings

    def put_rate(self, topic: str, now_ms: int) -> float:
        """Return the messages put to a topic per second over the last minute."""
        now = self.puts.get(topic)
        at, puts, _ = self._by_key[0]
        return 0.0 if now is None else _rate(now.count - puts.get(topic, 0), now_ms - at)

    def get_rate(self, topic: str, group: str, now_ms: int) -> float:
        """Return the messages that a group pulled from a topic per second over the last minute."""
        now = self.gets.get((topic, group))
        at, _, gets = self._by_key[0]
        return 0.0 if now is None else _rate(now.count - gets.get((topic, group), 0), now_ms - at)

    def rates(self, now_ms: int) -> dict[str, tuple[float, ...]]:
        """Return `put`, `found`, `missed` and `transferred` per second over 10, 60 and 600 seconds."""
        values = self._values()
        result: dict[str, list[float]] = {"put": [], "found": [], "missed": [], "transferred": []}
        for window in WINDOWS_S:
            start, before = self._samples[0]
            for at, sampled in self._samples:
                if now_ms - at >= window * 1000:
                    start, before = at, sampled
            seconds = max(now_ms - start, 1) / 1000
            for name, now, then in zip(result, values, before, strict=True):
                result[name].append((now - then) / seconds)
        return {name: tuple(rates) for name, rates in result.items()}

    def _values(self) -> tuple[int, int, int, int]:
        return self.put_count, self.found, self.missed, self.get_count


def _rate(count: int, ms: int) -> float:
    return max(count, 0) * 1000 / max(ms, 1000)
