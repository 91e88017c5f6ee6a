"""Queues of retry topics: members must read each queue that has messages of their group.

A retry topic is created with the present `retryQueueNums` of its group. Members read as many queues as the topic has
read queues, so a message in a further queue is never delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from tianzhou.broker.messages.retry import group_of_retry_topic
from tianzhou.broker.state import Tables
from tianzhou.errors import LimitExceeded
from tianzhou.model import SubscriptionGroupConfig, TopicConfig, names
from tianzhou.store.store import MessageStore

_log = logging.getLogger(__name__)


def widen_retry_topics(tables: Tables, groups: Iterable[SubscriptionGroupConfig], now_ms: int) -> None:
    """Extend existing retry topics to the `retryQueueNums` of their groups.

    Args:
        tables: the broker's tables.
        groups: configurations of groups; a group without a retry topic is skipped.
        now_ms: stamp of the change.

    Raises:
        LimitExceeded: there would be too many queues.
    """
    for group in groups:
        tables.topics.widen(names.retry_topic(group.group_name), group.retry_queue_nums, now_ms)


def widen_to_stored(tables: Tables, store: MessageStore, now_ms: int) -> list[str]:
    """Extend retry topics to read queues for all unread messages; return the changed topics.

    Versions that chose a queue by `retryQueueNums` only have stored such messages.

    Args:
        tables: the broker's tables.
        store: the message store.
        now_ms: stamp of the change.
    """
    changed = []
    for topic, config in list(tables.topics.all().items()):
        if not topic.startswith(names.RETRY_PREFIX):
            continue
        group, offsets = group_of_retry_topic(topic), tables.offsets
        unread = [
            number
            for number in store.queues(topic)
            if max(store.min_offset(topic, number), offsets.committed(group, topic, number) or 0)
            < store.max_offset(topic, number)
        ]
        try:
            if tables.topics.widen(topic, needed_queues(config, unread), now_ms):
                changed.append(topic)
        except LimitExceeded as error:
            _log.error("queues of topic %s hold messages that no member can read: %s", topic, error)
    return changed


def needed_queues(config: TopicConfig, unread: Collection[int]) -> int:
    """Return the number of read queues with which members can read all queues that have unread messages."""
    return max(config.read_queue_nums, max(unread, default=-1) + 1)


def readable_queue(config: TopicConfig | None, queue_id: int) -> int:
    """Return the queue for a waiting message: the named one if members read it, else another one.

    A topic may have lost queues while the message waited.

    Args:
        config: the topic; None when there is none.
        queue_id: the queue that the message names.
    """
    if config is None or config.read_queue_nums <= 0 or queue_id < config.read_queue_nums:
        return queue_id
    return queue_id % config.read_queue_nums
