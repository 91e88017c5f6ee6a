"""A push consumer as a member of its group, for brokers and operators (client.md §3.4, §17)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tianzhou.client.consumer.push.assigned_queues import AssignedQueues
from tianzhou.client.consumer.push.consume_directly import directly
from tianzhou.client.consumer.push.consume_rates import ConsumeRates
from tianzhou.client.consumer.push.handlers import Handlers
from tianzhou.client.consumer.push.options import MIB, PushOptions
from tianzhou.client.consumer.push.processor_time import usable_cores
from tianzhou.client.consumer.rebalancer import Rebalancer
from tianzhou.client.instance import ClientInstance
from tianzhou.model import ConsumerData, MessageExt, MessageQueue, SubscriptionData
from tianzhou.wire.bodies import handler_times
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, DirectConsumption


class PushMember:
    """A `GroupMember` over the parts of a push consumer.

    Args:
        instance: the consumer's instance.
        group: the consumer group.
        options: the consumer's options.
        subscriptions: the subscriptions by topic; the consumer changes them.
        queues: the queues of this member.
        sharing: assigns these queues.
        handlers: the handlers.
        rates: counters of pulls and handler calls.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: PushOptions,
        subscriptions: Mapping[str, SubscriptionData],
        queues: AssignedQueues,
        sharing: Rebalancer,
        handlers: Handlers,
        rates: ConsumeRates,
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
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
            message_model=self._options.message_model,
            consume_from_where=self._options.begin_where,
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
            properties=self._properties(),
            subscription_set=self.consumer_data().subscription_data_set,
            mq_table={queue: pq.info(now_s) for queue, pq in sorted(self._queues.table.items())},
            status_table={topic: self._rates.status(topic, now_s) for topic in sorted(self._subscriptions)},
            user_consumer_info=handler_times.written(self._rates.times(self._handlers.runs_in), usable_cores()),
        )

    async def consume_directly(self, message: MessageExt) -> DirectConsumption:
        """See `GroupMember`."""
        return await directly(self._handlers, message, self._group, self._instance.clock, orderly=self._options.orderly)

    def _properties(self) -> dict[str, str]:
        # The options under RocketMQ's names.
        options, threads = self._options, self._handlers.threads
        begin = time.localtime(options.begin_ms(self._made_ms) / 1000)
        topic_bytes = options.pull_threshold_size_for_topic_bytes
        values: dict[str, object] = {
            "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMEORDERLY": options.orderly,
            "PROP_CONSUMER_START_TIMESTAMP": self._made_ms,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in self._instance.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": threads,
            "allocateMessageQueueStrategy": options.strategy.name,
            "awaitTerminationMillisWhenShutdown": options.await_termination_ms,
            "consumeConcurrentlyMaxSpan": options.consume_concurrently_max_span,
            "consumeFromWhere": options.begin_where.value,
            "consumeMessageBatchMaxSize": options.consume_message_batch_max_size,
            "consumeThreadMax": threads,
            "consumeThreadMin": threads,
            "consumeTimeout": options.consume_timeout_ms // 60_000,
            "consumeTimestamp": time.strftime("%Y%m%d%H%M%S", begin),
            "consumerGroup": self._group,
            "maxReconsumeTimes": options.max_reconsume_times,
            "messageModel": options.message_model.value,
            "postSubscriptionWhenPull": options.post_subscription_when_pull,
            "pullBatchSize": options.pull_batch_size,
            "pullBatchSizeInBytes": options.pull_batch_size_in_bytes,
            "pullInterval": options.pull_interval_ms,
            "pullThresholdForQueue": options.pull_threshold_for_queue,
            "pullThresholdForTopic": options.pull_threshold_for_topic,
            "pullThresholdSizeForQueue": options.pull_threshold_size_for_queue_bytes // MIB,
            "pullThresholdSizeForTopic": topic_bytes if topic_bytes < 0 else topic_bytes // MIB,
            "suspendCurrentQueueTimeMillis": options.suspend_current_queue_time_ms,
        }
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
