"""What a push consumer tells and lets be done to it as a member of its group (client.md §3.4, §17)."""

from __future__ import annotations

from collections.abc import Mapping

from tianzhou.client.consumer.push.assigned_queues import OwnedQueues
from tianzhou.client.consumer.push.consume_directly import directly
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.consumer_settings import ConsumerSettings
from tianzhou.client.consumer.push.handlers import Handlers
from tianzhou.client.consumer.rebalancer import Sharing
from tianzhou.client.instance import ClientInstance
from tianzhou.model import ConsumerData, MessageExt, MessageQueue, SubscriptionData
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, DirectConsumption


class PushMember:
    """A `GroupMember` over the parts of a push consumer.

    Args:
        instance: the consumer's.
        group: the consumer group.
        settings: what the consumer was told.
        subscriptions: by topic; the consumer changes them.
        queues: the queues it owns.
        sharing: decides which these are.
        handlers: who consumes.
        rates: how fast.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: ConsumerSettings,
        subscriptions: Mapping[str, SubscriptionData],
        queues: OwnedQueues,
        sharing: Sharing,
        handlers: Handlers,
        rates: ConsumeRates,
    ) -> None:
        self._instance = instance
        self._group = group
        self._settings = settings
        self._subscriptions = subscriptions
        self._queues = queues
        self._sharing = sharing
        self._handlers = handlers
        self._rates = rates
        self._made_ms = instance.clock.now_ms()

    @property
    def group(self) -> str:
        """See `GroupMember`."""
        return self._group

    def consumer_data(self) -> ConsumerData:
        """See `GroupMember`."""
        return ConsumerData(
            self._group,
            message_model=self._settings.message_model,
            consume_from_where=self._settings.consume_from_where,
            subscription_data_set=[self._subscriptions[topic] for topic in sorted(self._subscriptions)],
        )

    def topics(self) -> set[str]:
        """See `GroupMember`."""
        return set(self._subscriptions)

    def wake_rebalance(self) -> None:
        """See `GroupMember`."""
        self._queues.persist_soon()
        self._sharing.wake()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See `GroupMember`."""
        await self._queues.reset(offsets)

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """See `GroupMember`."""
        return {q: pq.tracker.committable for q, pq in self._queues.table.items() if q.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """See `GroupMember`."""
        now_s = self._instance.clock.monotonic()
        return ConsumerRunningInfo(
            properties=self._settings.properties(self._group, self._instance.name_servers, self._made_ms),
            subscription_set=self.consumer_data().subscription_data_set,
            mq_table={queue: pq.info() for queue, pq in sorted(self._queues.table.items())},
            status_table={topic: self._rates.of(topic).status(now_s) for topic in sorted(self._subscriptions)},
        )

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """See `GroupMember`."""
        return await directly(
            self._handlers, message, self._group, self._instance.clock, orderly=self._settings.orderly
        )
