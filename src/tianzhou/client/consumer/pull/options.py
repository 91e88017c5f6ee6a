"""The options of a pull consumer (client.md §18)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.client.consumer.options import ConsumerOptions
from tianzhou.client.validation import check_number


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions(ConsumerOptions):
    """The options of a pull consumer, besides those of `ConsumerOptions`.

    The `consume_hooks` are called when `poll` returns messages: before and after one directly after the other, because
    the consumer cannot see when the caller has finished.

    Args:
        pull_timeout_ms: timeout of a pull that does not wait for messages.
        auto_commit: whether `poll` commits the messages of former polls at intervals.
        auto_commit_interval_ms: that interval.
        topic_check_interval_ms: pause between two comparisons of `watch_queues`.
    """

    pull_timeout_ms: int = 10_000
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    topic_check_interval_ms: int = 30_000

    def __post_init__(self) -> None:
        ConsumerOptions.__post_init__(self)
        check_number("pull_timeout_ms", self.pull_timeout_ms, 1)
        check_number("auto_commit_interval_ms", self.auto_commit_interval_ms, 1)
        check_number("topic_check_interval_ms", self.topic_check_interval_ms, 1)
