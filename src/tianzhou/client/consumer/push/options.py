"""The options of a push consumer, and values derived from them (client.md §8, §12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tianzhou.client.consumer.offset_tracker import PullLimits
from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.validation import CommitMode, check_commit_mode, check_number

if TYPE_CHECKING:
    from tianzhou.client.consumer.pulling import QueuePulls
    from tianzhou.model import MessageQueue, SubscriptionData

MIB = 1024 * 1024
ANY_SPAN = 2**62
BROKER_SUSPEND_MS = 15_000
PULL_ANSWER_MS = 15_000
"""Milliseconds that a pull may take longer than the broker may hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions(ConsumerOptions):
    """The options of a push consumer, besides those of `ConsumerOptions`.

    The consumer calls the `consume_hooks` around each call of a handler, or around each message that iteration yields.

    Args:
        orderly: whether queues are consumed in order; all members of a group should use the same value.
        consume_concurrency: maximum number of handlers that run at the same time.
        consume_message_batch_max_size: maximum messages of one handler call; above 1 the handler gets lists.
        consume_timeout_ms: a message that is not consumed within this time is sent back; not with `orderly`.
        max_reconsume_times: number of attempts after which a message becomes a dead letter; -1 for the default, which
            is 16, and no limit with `orderly`.
        suspend_current_queue_time_ms: with `orderly`, ms that a queue pauses before its messages are delivered again.
        pull_batch_size_in_bytes: maximum bytes of a pull, for brokers that support it.
        pull_interval_ms: pause between pulls of a queue.
        broker_suspend_max_time_ms: ms that a broker may hold a pull while there is no new message.
        pull_threshold_for_queue: pulls of a queue pause above this number of unfinished messages.
        pull_threshold_for_topic: maximum number of unfinished messages of all queues together; -1 for no such limit.
        pull_threshold_size_for_queue_bytes: pulls of a queue pause above this number of unfinished bytes.
        pull_threshold_size_for_topic_bytes: maximum unfinished bytes of all queues together; -1 for no such limit.
        consume_concurrently_max_span: pulls of a queue pause above this span of unfinished offsets; not with `orderly`.
        persist_consumer_offset_interval_ms: interval at which offsets are stored.
        commit: "async" stores offsets with pulls and in this interval. With "sync" the next batch of a queue begins
            after the broker has confirmed the offset of the last one, so that a consumer that dies repeats one batch
            at most. A batch is the messages of one pull (`pull_batch_size`); with `orderly`, of one handler call.
        await_termination_ms: ms that `stop` waits for running handlers.
        post_subscription_when_pull: whether to send the subscription with each pull; otherwise brokers know it from
            heartbeats.
    """

    orderly: bool = False
    consume_concurrency: int = 20
    consume_message_batch_max_size: int = 1
    consume_timeout_ms: int = 15 * 60_000
    max_reconsume_times: int = -1
    suspend_current_queue_time_ms: int = 1_000
    pull_batch_size_in_bytes: int = 256 * 1024
    pull_interval_ms: int = 0
    broker_suspend_max_time_ms: int = BROKER_SUSPEND_MS
    pull_threshold_for_queue: int = 1_000
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_queue_bytes: int = 100 * MIB
    pull_threshold_size_for_topic_bytes: int = -1
    consume_concurrently_max_span: int = 2_000
    persist_consumer_offset_interval_ms: int = 5_000
    commit: CommitMode = "async"
    await_termination_ms: int = 10_000
    post_subscription_when_pull: bool = False

    def __post_init__(self) -> None:
        ConsumerOptions.__post_init__(self)
        check_concurrency(self.consume_concurrency)
        check_number("consume_message_batch_max_size", self.consume_message_batch_max_size, 1, 1_024)
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
        check_commit_mode(self.commit)

    @property
    def limits(self) -> PullLimits:
        """Limits for the unfinished messages of a queue."""
        span = ANY_SPAN if self.orderly else self.consume_concurrently_max_span
        messages = 0 if self.confirms_pulls else self.pull_threshold_for_queue
        return PullLimits(messages, self.pull_threshold_size_for_queue_bytes, span)

    @property
    def confirms_pulls(self) -> bool:
        """Whether the messages of a pull have to be finished, and their offset confirmed, before the next pull."""
        return self.commit == "sync" and not self.orderly

    @property
    def confirms_calls(self) -> bool:
        """Whether the offset of a handler's call has to be confirmed before the next call for the queue."""
        return self.commit == "sync" and self.orderly

    def pulls(self, group: str, queue: MessageQueue, subscription: SubscriptionData) -> QueuePulls:
        """Return the pulls of a queue for a group with a subscription."""
        from tianzhou.client.consumer.pulling import QueuePulls

        return QueuePulls(
            group,
            queue,
            subscription,
            max_messages=self.pull_batch_size,
            max_bytes=self.pull_batch_size_in_bytes,
            suspend_ms=self.broker_suspend_max_time_ms,
            timeout_ms=self.broker_suspend_max_time_ms + PULL_ANSWER_MS,
            post_subscription=self.post_subscription_when_pull,
        )

    @property
    def locks(self) -> bool:
        """Whether queues have to be locked. Members that get all messages do not compete for queues."""
        return self.orderly and not self.is_broadcast


def check_concurrency(count: int) -> None:
    """Check the number of handlers that may run at the same time.

    Raises:
        ConfigError: the number is out of range.
    """
    check_number("consume_concurrency", count, 1, 1_000)
