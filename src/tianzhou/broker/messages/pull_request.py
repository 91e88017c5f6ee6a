"""A checked pull and its read request to the store (broker.md §9)."""

from __future__ import annotations

from typing import Any

import msgspec

from tianzhou.broker.messages.message_filter import Selection
from tianzhou.broker.settings import BrokerSettings
from tianzhou.model import SubscriptionGroupConfig, TopicConfig
from tianzhou.store.results import GetResult, ReadRequest
from tianzhou.wire.command import Command


class PullRequest(msgspec.Struct):
    """A pull that passed all checks.

    Attributes:
        command: the request.
        header: its fields.
        group: configuration of the pulling group.
        topic: configuration of the topic.
        selection: selection of records; it changes with the group's subscription.
        reading: the next read for the pull.
    """

    command: Command
    header: Any
    group: SubscriptionGroupConfig
    topic: TopicConfig
    selection: Selection
    reading: ReadRequest


def reading_of(header: Any, selection: Selection) -> ReadRequest:
    """Return the first read of a pull with these header fields."""
    codes, accept, accept_unit, _ = selection
    return ReadRequest(
        header.topic, header.queue_id, header.queue_offset, max(header.max_msg_nums, 1), codes, accept, accept_unit
    )


def suggested_broker(settings: BrokerSettings, group: SubscriptionGroupConfig, found: GetResult) -> int:
    """Return the id of the broker for the consumer's next pull (broker.md §9.5).

    The id is 0, the master's, where consumers do not read slaves.

    Args:
        settings: settings of the broker.
        group: configuration of the pulling group.
        found: result of the pull's read.
    """
    if not settings.slave_read_enable:
        return 0
    return group.which_broker_when_consume_slowly if found.suggest_slave else group.broker_id
