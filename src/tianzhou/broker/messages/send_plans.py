"""Plans of sends: cached decisions about the sends to a topic (docs/adr/0033)."""

from __future__ import annotations

from tianzhou._hot import SendTarget
from tianzhou.broker.messages.admission import multi_tag_flag
from tianzhou.broker.send_limits.limited_sends import LimitedSends
from tianzhou.broker.services import Services
from tianzhou.broker.stats.stats import PutTraffic
from tianzhou.model import TopicConfig
from tianzhou.store.queues.queues import is_batch_type


class SendPlan(SendTarget):
    """The decisions about sends to one topic.

    Args:
        config: configuration of the topic.
        traffic: counter of its messages.

    Attributes:
        limit: queue ids of sends are below it.
        flags: bits that the topic's queue type adds to system flags.
        batched: whether a batch with a unique key is stored as one record.
        traffic: counter of the topic's messages.
        counts: messages by queue.
        sizes: bytes by queue.
        waits: milliseconds that senders waited for durability, by queue.
    """

    __slots__ = ("batched", "traffic", "waits")

    def __init__(self, config: TopicConfig, traffic: PutTraffic) -> None:
        self.limit = max(config.write_queue_nums, config.read_queue_nums)
        self.flags = multi_tag_flag(config)
        self.batched = is_batch_type(config.attributes)
        traffic.grow(self.limit)
        self.traffic = traffic
        self.counts, self.sizes, self.waits = traffic.counts, traffic.sizes, traffic.waits


class SendPlans:
    """Plans of all topics with admitted sends, and their invalidation.

    A plan is valid until its topic, a limit of senders or a setting of the broker changes.

    Args:
        services: the broker's services.

    Attributes:
        by_topic: plans of topics that no limit counts. Executors get this table; it stays the same object.
        limits: check of sends to all other topics; None while there are no limits.
        version: number of times that plans became invalid.
    """

    def __init__(self, services: Services) -> None:
        self.by_topic: dict[str, SendPlan] = {}
        self.limits: LimitedSends | None = None
        self.version = 0
        self._limited: dict[str, SendPlan] = {}
        self._limited_sends = LimitedSends(services)
        self._stats = services.stats
        services.tables.topics.listeners.append(self._topics_changed)
        services.tables.send_limits.listeners.append(self.invalidate)
        self.invalidate()

    def find(self, topic: str) -> SendPlan | None:
        """Return the plan of a topic; None when the next send has to be admitted."""
        return self.by_topic.get(topic) or self._limited.get(topic)

    def make(self, topic: str, config: TopicConfig) -> SendPlan:
        """Return the plan of a topic with admitted sends; `add` stores a new plan."""
        return self.find(topic) or SendPlan(config, self._stats.put(topic))

    def add(self, topic: str, plan: SendPlan) -> None:
        """Store the plan of a topic for further sends."""
        is_limited = self.limits is not None and self.limits.covers(topic)
        (self._limited if is_limited else self.by_topic)[topic] = plan

    def invalidate(self) -> None:
        """Drop all plans, because a setting or a limit of senders has changed."""
        self._limited_sends.follow()
        self.limits = None if self._limited_sends.is_empty else self._limited_sends
        self.by_topic.clear()
        self._limited.clear()
        self.version += 1

    def _topics_changed(self, topics: list[str]) -> None:
        for topic in topics:
            self.by_topic.pop(topic, None)
            self._limited.pop(topic, None)
        self.version += 1
