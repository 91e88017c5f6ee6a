"""Topics that sends were admitted to, as the hot path needs them."""

from __future__ import annotations

from tianzhou._hot import SendTarget
from tianzhou.broker.messages.admission import multi_tag_flag
from tianzhou.broker.stats.stats import PutTraffic
from tianzhou.model import TopicConfig
from tianzhou.store.queues.queues import is_batch_type


class Target(SendTarget):
    """A topic that sends were admitted to.

    Args:
        config: of the topic.
        traffic: counts its messages.
    """

    __slots__ = ("batched", "queues", "traffic", "waits")

    def __init__(self, config: TopicConfig, traffic: PutTraffic) -> None:
        self.queues = config.write_queue_nums
        self.limit = max(config.write_queue_nums, config.read_queue_nums)
        self.flags = multi_tag_flag(config)
        self.batched = is_batch_type(config.attributes)
        traffic.grow(self.limit)
        self.traffic = traffic
        self.counts, self.sizes, self.waits = traffic.counts, traffic.sizes, traffic.waits
