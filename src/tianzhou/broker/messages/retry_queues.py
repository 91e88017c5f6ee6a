"""Queues of retry topics: each queue that holds messages of a group has to be one that its members read.

A retry topic is made with the `retryQueueNums` that its group has at that time. Members read as many queues as the
topic has read queues, so a message in a further queue is never delivered.
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
    """Give retry topics that are there as many queues as their groups want.

    Args:
        tables: of the broker.
        groups: configurations of groups; a group without a retry topic is skipped.
        now_ms: stamp of the change.

    Raises:
        LimitExceeded: there would be too many queues.
    """
    for group in groups:
        tables.topics.widen(names.retry_topic(group.group_name), group.retry_queue_nums, now_ms)


def widen_to_stored(tables: Tables, store: MessageStore, now_ms: int) -> list[str]:
    """Give retry topics read queues for all their unread messages; return the topics that were changed.

    Versions that picked a queue by `retryQueueNums` alone have left such messages behind.

    Args:
        tables: of the broker.
        store: has the queues.
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
    """Return the queue to deliver a waiting message to: the one it names, or one in its place that can be read.

    A topic may have lost queues while the message waited.

    Args:
        config: the topic; None when there is none.
        queue_id: the queue that the message names.
    """
    if config is None or config.read_queue_nums <= 0 or queue_id < config.read_queue_nums:
        return queue_id
    return queue_id % config.read_queue_nums
