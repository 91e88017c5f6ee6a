"""A pull that was checked, and what it asks of the store (broker.md §9)."""

from __future__ import annotations

from typing import Any

import msgspec

from tianzhou.broker.messages.message_filter import Selection
from tianzhou.broker.settings import BrokerSettings
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.store.results import GetResult, ReadRequest
from tianzhou.wire.command import Command


class PullRequest(msgspec.Struct):
    """A pull that may be served.

    Attributes:
        command: the request.
        header: its fields.
        group: who pulls.
        topic: of the queue.
        selection: which records are wanted; changes with the group's subscription.
        reading: what is read next for it.
    """

    command: Command
    header: Any
    group: SubscriptionGroupConfig
    topic: TopicConfig
    selection: Selection
    reading: ReadRequest


def reading_of(header: Any, selection: Selection) -> ReadRequest:
    """What a pull with these fields reads first."""
    codes, accept, accept_unit, _ = selection
    return ReadRequest(
        header.topic, header.queue_id, header.queue_offset, max(header.max_msg_nums, 1), codes, accept, accept_unit
    )


def suggested_broker(settings: BrokerSettings, group: SubscriptionGroupConfig, found: GetResult) -> int:
    """Id of the broker that a consumer is to ask next; 0, the master, where slaves are not read (broker.md §9.5).

    Args:
        settings: of the broker.
        group: who pulls.
        found: what was read for it.
    """
    if not settings.slave_read_enable:
        return 0
    return group.which_broker_when_consume_slowly if found.suggest_slave else group.broker_id
