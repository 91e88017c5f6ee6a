"""Counts of what goes through, and the rates tools show (broker.md §20).

Counters are plain attributes, raised where the message is; everything derived is computed when asked for.
"""

from __future__ import annotations

from collections import deque

WINDOWS_S = (10, 60, 600)
_SAMPLE_MS = 10_000
_KEPT = 61
_KEPT_PER_KEY = 7


class Traffic:
    """How many messages and bytes; of a topic those put, of a topic and group those got."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0

    def add(self, queue_id: int, count: int, size: int) -> None:
        """`count` messages of `size` bytes of a queue."""
        self.count += count
        self.bytes += size


class BrokerStats:
    """All counters of a broker.

    Attributes:
        puts: by topic.
        gets: by topic and group.
        found: pulls that brought messages.
        missed: pulls that brought none.
        failed: puts that stored nothing.
    """

    def __init__(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self.puts: dict[str, Traffic] = {}
        self.gets: dict[tuple[str, str], Traffic] = {}
        self.found = 0
        self.missed = 0
        self.failed = 0
        self._samples: deque[tuple[int, tuple[int, int, int, int]]] = deque([(now_ms, (0, 0, 0, 0))], maxlen=_KEPT)
        self._by_key: deque[tuple[int, dict[str, int], dict[tuple[str, str], int]]] = deque(
            [(now_ms, {}, {})], maxlen=_KEPT_PER_KEY
        )

    def put(self, topic: str) -> Traffic:
        """The counter of messages put to a topic."""
        found = self.puts.get(topic)
        if found is None:
            found = self.puts[topic] = Traffic()
        return found

    def got(self, topic: str, group: str) -> Traffic:
        """The counter of messages a group got from a topic."""
        found = self.gets.get((topic, group))
        if found is None:
            found = self.gets[topic, group] = Traffic()
        return found

    @property
    def put_count(self) -> int:
        """Messages put since the start."""
        return sum(traffic.count for traffic in self.puts.values())

    @property
    def put_bytes(self) -> int:
        """Bytes of bodies put since the start."""
        return sum(traffic.bytes for traffic in self.puts.values())

    @property
    def get_count(self) -> int:
        """Messages got since the start."""
        return sum(traffic.count for traffic in self.gets.values())

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self.puts.pop(topic, None)
        for key in [key for key in self.gets if key[0] == topic]:
            del self.gets[key]

    def sample(self, now_ms: int) -> None:
        """Note the counters for the rates; called about every ten seconds."""
        if now_ms - self._samples[-1][0] >= _SAMPLE_MS * 9 // 10:
            self._samples.append((now_ms, self._values()))
            puts = {topic: traffic.count for topic, traffic in self.puts.items()}
            gets = {key: traffic.count for key, traffic in self.gets.items()}
            self._by_key.append((now_ms, puts, gets))

    def put_rate(self, topic: str, now_ms: int) -> float:
        """Messages put to a topic per second over the last minute."""
        now = self.puts.get(topic)
        at, puts, _ = self._by_key[0]
        return 0.0 if now is None else _rate(now.count - puts.get(topic, 0), now_ms - at)

    def get_rate(self, topic: str, group: str, now_ms: int) -> float:
        """Messages a group got from a topic per second over the last minute."""
        now = self.gets.get((topic, group))
        at, _, gets = self._by_key[0]
        return 0.0 if now is None else _rate(now.count - gets.get((topic, group), 0), now_ms - at)

    def rates(self, now_ms: int) -> dict[str, tuple[float, ...]]:
        """Per second over 10, 60 and 600 seconds: `put`, `found`, `missed`, `transferred`."""
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
