"""How fast a consumer is in each topic, over the last minute and hour (client.md §17.3). Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tianzhou.wire.bodies.clients import ConsumeStatus

MINUTE_SAMPLES = 7
MINUTE_STEP_S = 10.0
HOUR_SAMPLES = 7
HOUR_STEP_S = 600.0


class _Sample(NamedTuple):
    at_s: float
    pulls: int
    pull_ms: float
    pulled: int
    calls: int
    call_ms: float
    consumed: int
    failed: int


class TopicRates:
    """Counters of one topic; whoever does something adds to them.

    Attributes:
        pulls: pulls answered.
        pull_ms: how long they took together.
        pulled: messages they brought.
        calls: calls of handlers.
        call_ms: how long they took together.
        consumed: messages consumed.
        failed: messages not consumed.
    """

    __slots__ = ("_hour", "_minute", "call_ms", "calls", "consumed", "failed", "pull_ms", "pulled", "pulls")

    def __init__(self, now_s: float) -> None:
        self.pulls = self.pulled = self.calls = self.consumed = self.failed = 0
        self.pull_ms = self.call_ms = 0.0
        first = self._now(now_s)
        self._minute: deque[_Sample] = deque([first], MINUTE_SAMPLES)
        self._hour: deque[_Sample] = deque([first], HOUR_SAMPLES)

    def _now(self, now_s: float) -> _Sample:
        return _Sample(
            now_s,
            self.pulls,
            self.pull_ms,
            self.pulled,
            self.calls,
            self.call_ms,
            self.consumed,
            self.failed,
        )

    def called(self, seconds: float) -> None:
        """Count a call of a handler, and how long it took."""
        self.calls += 1
        self.call_ms += seconds * 1000

    def sample(self, now_s: float) -> None:
        """Remember where the counters stand; call it every few seconds."""
        if now_s - self._minute[-1].at_s >= MINUTE_STEP_S:
            self._minute.append(self._now(now_s))
        if now_s - self._hour[-1].at_s >= HOUR_STEP_S:
            self._hour.append(self._now(now_s))

    def status(self, now_s: float) -> ConsumeStatus:
        """The figures as running info gives them: of the last minute, failures of the last hour."""
        now, minute, hour = self._now(now_s), self._minute[0], self._hour[0]
        seconds = max(now_s - minute.at_s, 1.0)
        consume_ms = _mean(now.call_ms - minute.call_ms, now.calls - minute.calls)
        return ConsumeStatus(
            pull_rt=_mean(now.pull_ms - minute.pull_ms, now.pulls - minute.pulls),
            pull_tps=(now.pulled - minute.pulled) / seconds,
            consume_rt=consume_ms or _mean(now.call_ms - hour.call_ms, now.calls - hour.calls),
            consume_ok_tps=(now.consumed - minute.consumed) / seconds,
            consume_failed_tps=(now.failed - minute.failed) / seconds,
            consume_failed_msgs=now.failed - hour.failed,
        )


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


class ConsumeRates:
    """The counters of all topics.

    Args:
        now_s: the present, seconds of a monotonic clock.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._topics: dict[str, TopicRates] = {}

    def of(self, topic: str) -> TopicRates:
        """A topic's counters."""
        rates = self._topics.get(topic)
        if rates is None:
            rates = self._topics[topic] = TopicRates(self._began_s)
        return rates

    def sample(self, now_s: float) -> None:
        """See `TopicRates.sample`."""
        for rates in self._topics.values():
            rates.sample(now_s)

    @property
    def consumed(self) -> int:
        """Messages consumed, of all topics."""
        return sum(rates.consumed for rates in self._topics.values())

    @property
    def failed(self) -> int:
        """Messages not consumed, of all topics."""
        return sum(rates.failed for rates in self._topics.values())
