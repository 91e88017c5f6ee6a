"""What a push consumer can be told when it is made, and what it tells about it (client.md §8, §17.1)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tianzhou.client.validation import check_choice, check_number
from tianzhou.model import ConsumeFromWhere, MessageModel

MIB = 1024 * 1024


@dataclass(slots=True)
class ConsumerSettings:
    """The settings of a push consumer, under the names its constructor has for them; see there.

    Raises:
        ConfigError: a value is out of its range.
    """

    orderly: bool
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int
    strategy: str
    consume_concurrency: int
    consume_message_batch_max_size: int
    consume_timeout_ms: int
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    pull_interval_ms: int
    pull_threshold_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_queue_bytes: int
    pull_threshold_size_for_topic_bytes: int
    consume_concurrently_max_span: int
    await_termination_ms: int
    post_subscription_when_pull: bool = False

    def __post_init__(self) -> None:
        check_choice("message_model", self.message_model, MessageModel)
        check_choice("consume_from_where", self.consume_from_where, ConsumeFromWhere)
        check_concurrency(self.consume_concurrency)
        check_number("consume_message_batch_max_size", self.consume_message_batch_max_size, 1, 1_024)
        check_number("pull_batch_size", self.pull_batch_size, 1, 1_024)
        check_number("pull_interval_ms", self.pull_interval_ms, 0, 65_535)
        check_number("pull_threshold_for_queue", self.pull_threshold_for_queue, 1, 65_535)
        check_number("pull_threshold_size_for_queue_bytes", self.pull_threshold_size_for_queue_bytes, 1, 1_024 * MIB)
        check_number("consume_concurrently_max_span", self.consume_concurrently_max_span, 1, 65_535)
        if self.pull_threshold_for_topic != -1:
            check_number("pull_threshold_for_topic", self.pull_threshold_for_topic, 1, 6_553_500)
        if self.pull_threshold_size_for_topic_bytes != -1:
            size = self.pull_threshold_size_for_topic_bytes
            check_number("pull_threshold_size_for_topic_bytes", size, 1, 102_400 * MIB)
        check_number("consume_timeout_ms", self.consume_timeout_ms, 1)
        check_number("max_reconsume_times", self.max_reconsume_times, -1)
        check_number("await_termination_ms", self.await_termination_ms, 0)

    def properties(self, group: str, name_servers: Iterable[str], started_ms: int) -> dict[str, str]:
        """The settings as running info gives them, under RocketMQ's names.

        Args:
            group: the consumer group.
            name_servers: their addresses.
            started_ms: when the consumer was made.
        """
        local = time.localtime(self.consume_timestamp_ms / 1000)
        values: dict[str, object] = {
            "PROP_CLIENT_VERSION": "V5_3_3",
            "PROP_CONSUMEORDERLY": self.orderly,
            "PROP_CONSUMER_START_TIMESTAMP": started_ms,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
            "PROP_THREADPOOL_CORE_SIZE": self.consume_concurrency,
            "allocateMessageQueueStrategy": self.strategy,
            "awaitTerminationMillisWhenShutdown": self.await_termination_ms,
            "consumeConcurrentlyMaxSpan": self.consume_concurrently_max_span,
            "consumeFromWhere": self.consume_from_where.value,
            "consumeMessageBatchMaxSize": self.consume_message_batch_max_size,
            "consumeThreadMax": self.consume_concurrency,
            "consumeThreadMin": self.consume_concurrency,
            "consumeTimeout": self.consume_timeout_ms // 60_000,
            "consumeTimestamp": time.strftime("%Y%m%d%H%M%S", local),
            "consumerGroup": group,
            "maxReconsumeTimes": self.max_reconsume_times,
            "messageModel": self.message_model.value,
            "postSubscriptionWhenPull": self.post_subscription_when_pull,
            "pullBatchSize": self.pull_batch_size,
            "pullBatchSizeInBytes": self.pull_batch_size_in_bytes,
            "pullInterval": self.pull_interval_ms,
            "pullThresholdForQueue": self.pull_threshold_for_queue,
            "pullThresholdForTopic": self.pull_threshold_for_topic,
            "pullThresholdSizeForQueue": self.pull_threshold_size_for_queue_bytes // MIB,
            "pullThresholdSizeForTopic": _mib_or_none(self.pull_threshold_size_for_topic_bytes),
            "suspendCurrentQueueTimeMillis": self.suspend_current_queue_time_ms,
        }
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def check_concurrency(count: int) -> None:
    """Check how many handlers may run at the same time.

    Raises:
        ConfigError: it is out of range.
    """
    check_number("consume_concurrency", count, 1, 1_000)


def _mib_or_none(size: int) -> int:
    return size if size < 0 else size // MIB
