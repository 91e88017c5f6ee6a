"""A pull consumer as a member of its group, for heartbeats, rebalances and operators' tools (client.md §3, §18)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tianzhou.client.consumer.pull.prefetch import Prefetcher
from tianzhou.client.consumer.rebalancer import Rebalancer
from tianzhou.errors import ClientError
from tianzhou.model import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageExt,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, DirectConsumption, ProcessQueueInfo


class PullMember:
    """A `GroupMember` over the parts of a pull consumer.

    Args:
        group: the consumer group.
        model: whether the members of the group share the messages, or each gets all.
        polling: the queues that the consumer reads.
        sharing: assigns these queues, when topics are subscribed.
        shared: the subscribed topics; the consumer changes them.
        subscription: returns the subscription of a topic.
        commit_soon: stores the positions of shared queues before other members get some of them.
    """

    def __init__(
        self,
        group: str,
        model: MessageModel,
        polling: Prefetcher,
        sharing: Rebalancer,
        *,
        shared: Collection[str],
        subscription: Callable[[str], SubscriptionData],
        commit_soon: Callable[[], None],
    ) -> None:
        self._group = group
        self._model = model
        self._polling = polling
        self._sharing = sharing
        self._shared = shared
        self._subscription = subscription
        self._commit_soon = commit_soon

    @property
    def group(self) -> str:
        """See `GroupMember`."""
        return self._group

    def consumer_data(self) -> ConsumerData:
        """See `GroupMember`."""
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            self._model,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[self._subscription(topic) for topic in sorted(self.topics())],
        )

    def topics(self) -> set[str]:
        """See `GroupMember`."""
        return set(self._shared) or {queue.topic for queue in self._polling.queues}

    def wake_rebalance(self) -> None:
        """See `GroupMember`. It has no effect when queues are assigned with `assign`."""
        self._commit_soon()
        self._sharing.wake()

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """See `GroupMember`."""
        for queue, offset in offsets.items():
            if queue in self._polling.queues:
                self._polling.move(queue, offset)

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """See `GroupMember`."""
        return {queue: at for queue, at in self._polling.known_positions().items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """See `GroupMember`."""
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"},
            subscription_set=self.consumer_data().subscription_data_set,
            mq_table={q: ProcessQueueInfo(commit_offset=at) for q, at in self._polling.known_positions().items()},
        )

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """See `GroupMember`.

        Raises:
            ClientError: always, because a pull consumer has no handler.
        """
        raise ClientError(f"group {self._group} is read by a pull consumer, which has no handler")
