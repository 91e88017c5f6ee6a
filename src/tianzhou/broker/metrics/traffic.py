"""Incoming and outgoing messages by topic and group (broker.md §24). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tianzhou.broker.stats.message_kinds import DELAY, SIZE_BOUNDS
from tianzhou.broker.stats.stats import BrokerStats
from tianzhou.broker.tables.topic_attributes import MESSAGE_TYPE
from tianzhou.broker.tables.topics import BrokerTopicTable
from tianzhou.metrics.families import PER_STEP, Family, Histogram, Kind, SampledHistogram, Steps
from tianzhou.model import names

NORMAL, FIFO = "normal", "fifo"
_INNER: Final = frozenset({names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC})
"""Topics of waiting messages, which count under their target topics."""


def flag(value: bool) -> str:
    """Return a boolean as a label's text."""
    return "true" if value else "false"


def is_counted(topic: str) -> bool:
    """Whether a topic's messages count as in and out: retries and dead letters do not."""
    return topic not in _INNER and not topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))


class Traffic:
    """Metric families of incoming and outgoing messages.

    Args:
        stats: the counters.
        topics: the topics.
        most: maximum samples of a family.

    Attributes:
        sends: number of requests that put messages, as of the last `incoming`.
    """

    def __init__(self, stats: BrokerStats, topics: BrokerTopicTable, most: int) -> None:
        self._stats, self._topics, self._most = stats, topics, most
        self._sizes: dict[tuple[str, str], SampledHistogram] = {}
        self.sends = 0

    def incoming(self) -> Steps:
        """Yield families of producers' messages and bytes, and an estimate of message sizes."""
        labels = "topic", "message_type", "is_system"
        messages = self._family("rocketmq_messages_in_total", Kind.COUNTER, "Messages of producers.", *labels)
        size = self._family("rocketmq_throughput_in_total", Kind.COUNTER, "Bytes of their records.", *labels)
        sizes = self._family(
            "rocketmq_message_size", Kind.HISTOGRAM,
            "Sizes of records, estimated: what came between two looks counts with its mean.", *labels[:2],
        )  # fmt: skip
        stats, sends = self._stats, 0
        for number, topic in enumerate(list(stats.puts), 1):
            put = stats.puts.get(topic)
            sends += 0 if put is None else put.count - put.surplus
            if put is not None and is_counted(topic):
                own = stats.kinds.own.get(topic, (0, 0))
                found = {self._type_of(topic): (put.count - own[0], put.bytes - own[1])}
                for kind, (count, bytes_) in self._waiting(topic).items():
                    before = found.get(kind, (0, 0))
                    found[kind] = before[0] + count, before[1] + bytes_
                for kind, (count, bytes_) in found.items():
                    if count > 0:
                        system = flag(self._topics.is_system(topic))
                        messages.add(count, topic, kind, system)
                        size.add(bytes_, topic, kind, system)
                        sizes.add(self._size(topic, kind, count, bytes_), topic, kind)
            if number % PER_STEP == 0:
                yield None
        self.sends = sends
        for key in [key for key in self._sizes if key[0] not in stats.puts]:
            del self._sizes[key]
        yield from (messages, size, sizes)

    def _waiting(self, topic: str) -> Mapping[str, tuple[int, int]]:
        table = self._stats.kinds.waiting
        return {kind: (one[0], one[1]) for kind in (DELAY, "transaction") if (one := table.get((topic, kind)))}

    def _type_of(self, topic: str) -> str:
        config = self._topics.get(topic)
        declared = "" if config is None else config.attributes.get(MESSAGE_TYPE, "")
        return FIFO if declared == "FIFO" else NORMAL

    def _size(self, topic: str, kind: str, count: int, bytes_: int) -> Histogram:
        key = topic, kind
        sampled = self._sizes.get(key)
        if sampled is None:
            sampled = self._sizes[key] = SampledHistogram(SIZE_BOUNDS)
        before = sampled.histograms.get(())
        seen, total = (0, 0.0) if before is None else (before.count, before.total)
        if count > seen:
            sampled.note((), (bytes_ - total) / (count - seen))
            sampled.advance(count)
        return sampled.histograms[()].copy()

    def outgoing(self) -> Steps:
        """Yield families of messages and bytes that groups pulled."""
        labels = "topic", "consumer_group", "is_retry", "is_system"
        messages = self._family("rocketmq_messages_out_total", Kind.COUNTER, "Messages that groups got.", *labels)
        size = self._family("rocketmq_throughput_out_total", Kind.COUNTER, "Bytes of their records.", *labels)
        # Copy only the keys, because a list of items would create hundreds of thousands of tuples at once.
        for number, key in enumerate(list(self._stats.gets), 1):
            topic, group = key
            got = self._stats.gets.get(key)
            if got is not None and is_counted(topic):
                system = flag(self._topics.is_system(topic))
                messages.add(got.count, topic, group, "false", system)
                size.add(got.bytes, topic, group, "false", system)
            if number % PER_STEP == 0:
                yield None
        yield from (messages, size)

    def endings(self) -> Steps:
        """Yield families of dead letters and of transactions' outcomes."""
        dead = self._family(
            "rocketmq_send_to_dlq_messages_total", Kind.COUNTER, "Messages that became dead letters.",
            "consumer_group", "topic", "is_system",
        )  # fmt: skip
        for (topic, group), count in list(self._stats.kinds.dead.items()):
            dead.add(count, group, topic, flag(self._topics.is_system(topic)))
        yield dead
        latency = self._family(
            "rocketmq_finish_message_latency", Kind.HISTOGRAM,
            "Milliseconds from a half message to its end.", "topic", "transaction_state",
        )  # fmt: skip
        ends = {
            end: self._family(f"rocketmq_{end}_messages_total", Kind.COUNTER, f"Transactions: {end}.", "topic")
            for end in ("commit", "rollback")
        }
        for (topic, end), histogram in list(self._stats.kinds.ended.items()):
            latency.add(histogram.copy(), topic, end)
            ends[end].add(histogram.count, topic)
        yield from (latency, *ends.values())

    def _family(self, name: str, kind: Kind, text: str, *labels: str) -> Family:
        return Family(name, kind, text, labels, self._most)
