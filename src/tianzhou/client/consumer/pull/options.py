"""The options of a pull consumer (client.md §18)."""

from __future__ import annotations

from dataclasses import dataclass

from tianzhou.client.consumer.options import ConsumerKeywords, ConsumerOptions, SharesChanged
from tianzhou.client.validation import check_number


class ScheduleKeywords(ConsumerKeywords, total=False):
    """Keyword arguments of `PullSchedule`, which has its own use for those that it leaves out; see `PullOptions`."""

    pull_timeout_ms: int
    topic_check_interval_ms: int


class PullKeywords(ScheduleKeywords, total=False):
    """Keyword arguments of `PullConsumer`; see `PullOptions`."""

    auto_commit: bool
    auto_commit_interval_ms: int
    queues_changed: SharesChanged | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions(ConsumerOptions):
    """What a pull consumer is told, besides the options of `ConsumerOptions`.

    The `consume_hooks` are called before `poll` returns messages, before and after at once because nobody tells what
    becomes of them.

    Args:
        pull_timeout_ms: limit of a pull that does not wait for messages.
        auto_commit: whether `poll` commits now and then what former polls returned.
        auto_commit_interval_ms: how often.
        topic_check_interval_ms: how often `watch_queues` looks.
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
