"""Figures of topics and groups that the console measures periodically: counts, and rates of the last minute. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tianzhou.model.subscription import ConsumeType, MessageModel
from tianzhou.model.topic import SubscriptionGroupConfig
from tianzhou.wire.bodies.clients import ConsumerConnection
from tianzhou.wire.bodies.offsets import ConsumeStats, TopicStats

WINDOW_MS: Final = 60_000
"""Time window of rates, in ms."""
MAX_SAMPLES: Final = 64
"""Maximum number of samples in a counter: one minute of samples, one per second, and a few more."""
LINE_WIDTH: Final = 60
"""Width of a rate's line, in units of its drawing. One unit is one second."""
LINE_HEIGHT: Final = 16
ORDERLY: Final = "PROP_CONSUMEORDERLY"
"""Property with which a member reports whether it consumes in order."""


class Counter:
    """Samples of a count that only grows.

    A smaller count drops all samples. It means that the topic was deleted and created again, for example.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=MAX_SAMPLES)

    def add(self, at_ms: int, total: int) -> None:
        """Add a sample, and drop samples that the rate of the last minute does not need.

        Args:
            at_ms: time at which the count was read, in milliseconds since 1970.
            total: the count.
        """
        samples = self._samples
        if samples and (total < samples[-1][1] or at_ms <= samples[-1][0]):
            samples.clear()
        samples.append((at_ms, total))
        # Keep the newest sample from before the minute, because the first interval of the minute begins there.
        while len(samples) > 2 and samples[1][0] <= at_ms - WINDOW_MS:
            samples.popleft()

    @property
    def rate(self) -> float | None:
        """Growth per second over the last minute, or between the last two samples when they are further apart."""
        if len(self._samples) < 2:
            return None
        last_ms, last = self._samples[-1]
        first_ms, first = next(one for one in self._samples if one[0] >= last_ms - WINDOW_MS)
        if first_ms == last_ms:
            first_ms, first = self._samples[-2]
        return (last - first) * 1000 / (last_ms - first_ms)

    @property
    def covers_the_minute(self) -> bool:
        """Whether the samples are close enough for a rate of the last minute."""
        return len(self._samples) > 1 and self._samples[-1][0] - self._samples[-2][0] <= WINDOW_MS

    def points(self) -> list[tuple[int, float]]:
        """Return the growth per second between adjacent samples of the last minute, at the time of the later sample."""
        found: list[tuple[int, float]] = []
        before: tuple[int, int] | None = None
        for at_ms, total in self._samples:
            if before is not None and at_ms - before[0] <= WINDOW_MS:
                found.append((at_ms, (total - before[1]) * 1000 / (at_ms - before[0])))
            before = (at_ms, total)
        return found


def line_of(points: Sequence[tuple[int, float]]) -> str:
    """Return the points of an SVG polyline that draws rates of the last minute in `LINE_WIDTH` by `LINE_HEIGHT`.

    The text is empty for fewer than two points. It is also empty when all rates are 0, so that the lines of busy topics
    stand out.

    Args:
        points: times in milliseconds and rates, the oldest first.
    """
    highest = max((rate for _, rate in points), default=0.0)
    if len(points) < 2 or not highest:
        return ""
    end_ms = points[-1][0]
    places = (
        (LINE_WIDTH * max(1 - (end_ms - at_ms) / WINDOW_MS, 0), LINE_HEIGHT - 1 - rate / highest * (LINE_HEIGHT - 2))
        for at_ms, rate in points
    )
    return " ".join(f"{x:.0f},{y:.1f}" for x, y in places)


@dataclass(slots=True)
class TopicFigures:
    """Measurements of a topic.

    Attributes:
        asked_ms: time of the last request to its brokers, in milliseconds since 1970; 0 before the first one.
        messages: number of messages in its queues; None before the first answer.
        last_ms: store time of its newest message, in milliseconds since 1970; 0 without a message.
        rate: messages stored per second over the last minute; None when it is unknown.
        counter: sum of the maximum offsets of its queues.
        answered_ms: time of the last request that all its brokers answered; 0 before the first one.
    """

    asked_ms: int = 0
    messages: int | None = None
    last_ms: int = 0
    rate: float | None = None
    counter: Counter = field(default_factory=Counter)
    answered_ms: int = 0

    @property
    def is_old(self) -> bool:
        """Whether a broker did not answer the last request, so that the figures are those of an earlier one."""
        return 0 < self.answered_ms < self.asked_ms

    def take(self, at_ms: int, answers: Iterable[TopicStats]) -> None:
        """Store the answers of all brokers of the topic.

        Args:
            at_ms: time of the answers, in milliseconds since 1970.
            answers: one answer of each broker.
        """
        total = messages = last_ms = 0
        said = 0.0
        for answer in answers:
            said += max(answer.topic_put_tps, 0)
            for queue in answer.offset_table.values():
                total += queue.max_offset
                messages += max(queue.max_offset - queue.min_offset, 0)
                last_ms = max(last_ms, queue.last_update_timestamp)
        self.messages, self.last_ms = messages, last_ms
        self.answered_ms = at_ms
        self.counter.add(at_ms, total)
        idle = last_ms < at_ms - WINDOW_MS
        self.rate = _rate(self.counter, said, idle=idle)


@dataclass(slots=True)
class GroupFigures:
    """Measurements of a consumer group.

    Attributes:
        asked_ms: time of the last request to its brokers, in milliseconds since 1970; 0 before the first one.
        lag: number of stored messages that the group has not consumed; None before the first answer.
        oldest_ms: store time of the oldest unconsumed message, in milliseconds since 1970; 0 when there is no such
            message or its time is unknown.
        rate: messages consumed per second over the last minute; None when it is unknown.
        members: number of connected clients; None before the first answer.
        way: consume type of the members (push, pull or pop); None without a member or when no broker
            reports it.
        model: message model of the members (clustering or broadcasting); None as for `way`.
        orderly: whether members consume in order; None when it is unknown.
        topics: topics that the group consumes, without its retry topic.
        lags: number of unconsumed messages by topic.
        clients: ids of the members.
        counter: sum of the group's offsets.
        answered_ms: time of the last request that all its brokers answered; 0 before the first one.
    """

    asked_ms: int = 0
    lag: int | None = None
    oldest_ms: int = 0
    rate: float | None = None
    members: int | None = None
    way: ConsumeType | None = None
    model: MessageModel | None = None
    orderly: bool | None = None
    topics: frozenset[str] = frozenset()
    lags: dict[str, int] = field(default_factory=dict)
    clients: frozenset[str] = frozenset()
    counter: Counter = field(default_factory=Counter)
    answered_ms: int = 0

    @property
    def is_old(self) -> bool:
        """Whether a broker did not answer the last request, so that the figures are those of an earlier one."""
        return 0 < self.answered_ms < self.asked_ms

    def take(self, at_ms: int, retry_topic: str, answers: Iterable[ConsumeStats]) -> None:
        """Store the group's progress from its brokers' answers.

        Args:
            at_ms: time of the answers, in milliseconds since 1970.
            retry_topic: retry topic of the group.
            answers: one answer of each broker.
        """
        lags: dict[str, int] = {}
        consumed, said = 0, 0.0
        for answer in answers:
            said += max(answer.consume_tps, 0)
            for queue, progress in answer.offset_table.items():
                consumed += progress.consumer_offset
                lags[queue.topic] = lags.get(queue.topic, 0) + max(progress.broker_offset - progress.consumer_offset, 0)
        self.lag = sum(lags.values())
        self.answered_ms = at_ms
        self.lags = lags
        self.topics = frozenset(lags) - {retry_topic}
        self.counter.add(at_ms, consumed)
        # Members of a broadcasting group store their own offsets. Brokers report only how fast they deliver messages.
        is_broadcasting = self.model is MessageModel.BROADCASTING
        self.rate = said if is_broadcasting else _rate(self.counter, said, idle=not self.members)
        if not self.lag:
            self.oldest_ms = 0

    def take_members(
        self, answers: Iterable[ConsumerConnection | None], configs: Iterable[SubscriptionGroupConfig]
    ) -> bool:
        """Store the connected clients, and return whether they differ from the clients of the last answer.

        Args:
            answers: the members that each broker reports; None for a broker without members.
            configs: the group's configuration at its brokers.
        """
        found = [answer for answer in answers if answer is not None and answer.connection_set]
        clients = frozenset(one.client_id for answer in found for one in answer.connection_set)
        is_changed = clients != self.clients
        self.clients, self.members = clients, len(clients)
        self.way = next((answer.consume_type for answer in found), None)
        self.model = next((answer.message_model for answer in found), None)
        if any(config.consume_message_orderly for config in configs):
            self.orderly = True
        elif is_changed:
            self.orderly = None
        return is_changed

    def take_order(self, properties: Mapping[str, object]) -> None:
        """Store whether members consume in order, from one member's report.

        Args:
            properties: properties that the member reports.
        """
        said = properties.get(ORDERLY)
        self.orderly = None if said is None else str(said).lower() == "true"

    def most_behind(self, count: int) -> list[str]:
        """Return the topics with the most unconsumed messages.

        Args:
            count: maximum number of topics.
        """
        behind = [topic for topic, lag in self.lags.items() if lag]
        return sorted(behind, key=lambda topic: -self.lags[topic])[:count]


def _rate(counter: Counter, said: float, *, idle: bool) -> float | None:
    """Return the rate from the console's samples, or the brokers' rate while samples are missing or too far apart."""
    if counter.covers_the_minute:
        return counter.rate
    if said or idle:
        return said
    # Brokers of RocketMQ 4 report no rate, which is decoded as 0.
    return counter.rate
