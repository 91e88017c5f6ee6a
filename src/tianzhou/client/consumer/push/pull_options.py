"""How a push consumer pulls its queues, as its settings want it (client.md §12). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.push.consumer_settings import ConsumerSettings
from tianzhou.client.hooks import FilterHook
from tianzhou.model import ConsumeFromWhere, MessageModel

ANY_SPAN = 2**62
BROKER_SUSPEND_MS = 15_000


@dataclass(slots=True, frozen=True)
class PullOptions:
    """How queues are pulled.

    Args:
        model: only in clustering do pulls commit offsets on the way.
        where: where queues without a stored offset begin.
        timestamp_ms: the time for CONSUME_FROM_TIMESTAMP.
        batch_size: most messages asked for at once.
        batch_bytes: most bytes asked for at once.
        interval_s: pause between pulls.
        suspend_ms: how long the broker may hold a pull while there is no new message.
        limits: how much of a queue may wait.
        topic_messages: how many messages of all queues may wait together, -1 for no such limit.
        topic_bytes: how many bytes of all queues may wait together, -1 for no such limit.
        orderly: only queues whose lock is ours are pulled.
        post_subscription: whether each pull says what is subscribed to, which brokers else know from heartbeats.
        filters: take out what nobody shall get.
    """

    model: MessageModel
    where: ConsumeFromWhere
    timestamp_ms: int
    batch_size: int = 32
    batch_bytes: int = 256 * 1024
    interval_s: float = 0.0
    suspend_ms: int = BROKER_SUSPEND_MS
    limits: PullLimits = field(default_factory=PullLimits)
    topic_messages: int = -1
    topic_bytes: int = -1
    orderly: bool = False
    post_subscription: bool = False
    filters: tuple[FilterHook, ...] = ()

    @classmethod
    def of(cls, settings: ConsumerSettings, suspend_ms: int, filters: Iterable[FilterHook] = ()) -> Self:
        """As a push consumer's settings want it."""
        limits = PullLimits(
            settings.pull_threshold_for_queue,
            settings.pull_threshold_size_for_queue_bytes,
            ANY_SPAN if settings.orderly else settings.consume_concurrently_max_span,
        )
        return cls(
            settings.message_model,
            settings.consume_from_where,
            settings.consume_timestamp_ms,
            settings.pull_batch_size,
            settings.pull_batch_size_in_bytes,
            settings.pull_interval_ms / 1000,
            suspend_ms,
            limits,
            settings.pull_threshold_for_topic,
            settings.pull_threshold_size_for_topic_bytes,
            settings.orderly,
            settings.post_subscription_when_pull,
            tuple(filters),
        )

    @property
    def locks(self) -> bool:
        """Whether queues have to be locked; members that get all messages do not compete for them."""
        return self.orderly and self.model is MessageModel.CLUSTERING
