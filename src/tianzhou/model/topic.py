"""Configuration of topics and consumer groups, and the version stamp of their tables (store.md §15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1


@dataclass(slots=True, frozen=True)
class DataVersion:
    """Version stamp of a configuration table; two stamps are equal when all three parts are (store.md §15.1)."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the version after one change at `now_ms`."""
        return DataVersion(self.counter + 1, now_ms, state_version)


@dataclass(slots=True)
class TopicConfig:
    """A topic on one broker (store.md §15.2); `perm` is a sum of the PERM_ bits."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """Whether consumers may read."""
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        """Whether producers may write."""
        return bool(self.perm & PERM_WRITE)


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """A consumer group on one broker (store.md §15.4)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = field(default_factory=dict)
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    subscription_data_set: list[dict[str, Any]] | None = None
